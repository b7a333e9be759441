#!/usr/bin/env python3
"""Memory: what a process of weft holds stays below its limit, and nothing stands still when memory is short.

  memory.py limit --weft BIN --dir DIR --seconds N [--limit 64] [--mib 256]
      A mount of its own process with -o mem_limit_mb: streams, small records, many names and reads, past the kernel's cache and
      through it. Fails if an operation fails, or `memused_max` is more than the limit; then a limit that is set while it is mounted
      has to hold within a second.
  memory.py group --weft BIN --dir DIR --seconds N [--group 2048] [--stream]
      `weft up` (client, MDT and OSTs in one process) and its applications in one memory group (cgroup 1 or 2): writers that check what
      they read, writers through mappings, readers that fill the page cache, and one that takes and gives back memory. With --stream one
      stream alone, whose throughput is printed for each second. Fails if the kernel kills, an operation fails, or for STILL_MAX seconds
      nothing goes on.
"""
import argparse
import ctypes
import mmap
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time

from churn import Group

MIB = 1 << 20
# So long an application may do nothing before it counts as standing still, in seconds.
STILL_MAX = 60


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: {done.stderr}{done.stdout}")
    return done.stdout


class System:
    """A file system on this machine, and what is asked of its processes."""

    def __init__(self, arguments, fsname):
        self.weft, self.dir, self.fsname = arguments.weft, arguments.dir, fsname
        self.lctl = os.path.join(os.path.dirname(self.weft), "lctl")
        self.data, self.mount = f"{self.dir}/data", f"{self.dir}/mnt"
        self.second = f"{self.dir}/second"
        self.process = None

    def up(self, *more, enter=None):
        os.makedirs(self.mount, exist_ok=True)
        words = [self.weft, "up", self.mount, "--data", self.data, "--fsname", self.fsname, "--foreground", "--no-uring", *more]
        log = open(f"{self.dir}/log", "ab")
        self.process = subprocess.Popen(words, stdout=log, stderr=log, preexec_fn=enter)
        self.wait_for(self.mount)

    def wait_for(self, path):
        for _ in range(600):
            if os.path.ismount(path):
                return
            if self.process.poll() is not None:
                sys.exit(f"weft ended with {self.process.returncode}")
            time.sleep(0.1)
        sys.exit(f"{path} is not mounted")

    def down(self):
        subprocess.run(["umount", self.second], capture_output=True)
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            sys.exit("weft does not end")
        for kind in ("server", "client"):
            key = f"/etc/weft/{self.fsname}.{kind}.key"
            if os.path.exists(key):
                os.unlink(key)

    def parameter(self, pid, name):
        """What the process says; if there are several they say one line each."""
        lines = run(self.lctl, "get_param", "-n", name).split("\n")
        for line in lines:
            if line.startswith(f"{pid}: "):
                return int(line.split()[1])
        return int(lines[0])


def peak_bytes(pid):
    with open(f"/proc/{pid}/status") as status:
        return {line.split(":")[0]: int(line.split()[1]) << 10 for line in status if line.startswith(("VmRSS", "VmHWM"))}


def pattern(seed, length):
    return random.Random(seed).randbytes(4096) * (length // 4096)


def direct(path, flags=0):
    return os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o644)


def stream(path, mib, tell=lambda: None):
    """Writes a file and reads it back twice; past the kernel's cache, as handles that write are."""
    file = direct(path)
    block = pattern(path, MIB)
    for at in range(mib):
        os.pwrite(file, block, at * MIB)
        tell()
    os.fsync(file)
    for size in (MIB, 64 << 10):
        for at in range(0, mib * MIB, size):
            if os.pread(file, size, at) != block[:size]:
                raise OSError(f"{path} has other bytes at {at}")
            if at % MIB == 0:
                tell()
    os.close(file)
    with open(path, "rb") as cached:
        while cached.read(MIB):
            tell()


def records(path, count, tell=lambda: None):
    """Small writes at random places, checked as they go."""
    rng, file, known = random.Random(path), direct(path), {}
    for number in range(count):
        at = rng.randrange(1 << 15) * 1000
        data = number.to_bytes(8, "little") * 125
        os.pwrite(file, data, at)
        known[at] = data
        if number % 7 == 0:
            at = rng.choice(list(known)) if number % 700 == 0 else at
            if os.pread(file, 1000, at) != known[at]:
                raise OSError(f"{path} has other bytes at {at}")
        tell()
    os.fsync(file)
    os.close(file)


def mapped(path, rounds, tell=lambda: None):
    """Writes through a mapping: the kernel writes its pages back when it needs memory."""
    size = 64 * MIB
    file = direct(path)
    os.ftruncate(file, size)
    view = mmap.mmap(file, size)
    for number in range(rounds):
        stamp = (number + 1).to_bytes(8, "little")
        for at in range(0, size, 4096):
            view[at:at + 8] = stamp
            if at % MIB == 0:
                tell()
        for at in range(0, size, 4096):
            if view[at:at + 8] != stamp:
                raise OSError(f"{path} has other bytes at {at}")
        if number % 2:
            view.flush()
            tell()
    view.close()
    os.close(file)


def names(base, count, tell=lambda: None):
    os.makedirs(base, exist_ok=True)
    for number in range(count):
        with open(f"{base}/{number}", "wb") as file:
            file.write(b"x" * 100)
        tell()
    if len(os.listdir(base)) != count:
        raise OSError(f"{base} has other names")
    for number in range(count):
        os.stat(f"{base}/{number}")
        tell()
    for number in range(count):
        os.unlink(f"{base}/{number}")
        tell()


def hog(mib, tell=lambda: None):
    """Takes memory, touches it, and gives it back."""
    for part in (2, 4, 1):
        held = bytearray(mib * MIB // part)
        for at in range(0, len(held), 4096):
            held[at] = 1
        for _ in range(8):
            time.sleep(0.25)
            tell()
        del held
        ctypes.CDLL(None).malloc_trim(0)


class Worker:
    """Does something again and again in a process of its own."""

    def __init__(self, name, work, until, enter=None):
        self.name, self.done = name, multiprocessing.Value("q", 0)
        self.failed = multiprocessing.Value("i", 0)
        self.process = multiprocessing.Process(target=self.go, args=(work, until, enter), daemon=True)
        self.process.start()

    def go(self, work, until, enter):
        if enter:
            enter()

        class Over(Exception):
            pass

        def tell():
            self.done.value += 1
            if time.time() > until:
                raise Over

        try:
            while time.time() < until:
                work(tell)
        except Over:
            pass
        except OSError as error:
            print(f"{self.name}: {error}", flush=True)
            self.failed.value = 1


def limit(arguments):
    system = System(arguments, "wmlim")
    os.makedirs(system.second, exist_ok=True)
    system.up("--osts", "2", "--listen", "127.0.0.1:0@tcp")
    try:
        return limited(arguments, system)
    finally:
        system.down()


def limited(arguments, system):
    nids = run(system.weft, "status", system.mount, "--json")
    import json
    address = next(word for word in json.dumps(json.loads(nids)).replace('"', " ").split() if word.endswith("@tcp"))
    run(system.weft, "mount", f"{address}:/{system.fsname}", system.second, "-o", f"mem_limit_mb={arguments.limit}")
    import json as js
    told = js.loads(os.getxattr(system.second, "weft.status"))
    pid = told["pid"]
    base = system.parameter(pid, "memused")
    until = time.time() + arguments.seconds
    make = lambda kind, *rest: lambda tell: kind(*rest, tell)
    work = [("stream", make(stream, f"{system.second}/stream", arguments.mib)),
            ("stream2", make(stream, f"{system.second}/stream2", arguments.mib)),
            ("records", make(records, f"{system.second}/records", 20000)),
            ("mapped", make(mapped, f"{system.second}/mapped", 4)),
            ("names", make(names, f"{system.second}/names", 5000))]
    workers = [Worker(name, one, until) for name, one in work]
    status = watch(workers, until)
    most, limit_bytes = system.parameter(pid, "memused_max"), arguments.limit * MIB
    peak = peak_bytes(pid)
    print(f"limit {arguments.limit} MiB: memused {base / MIB:.1f} MiB at first, memused_max {most / MIB:.1f} MiB, "
          f"resident at most {peak['VmHWM'] / MIB:.0f} MiB; {', '.join(f'{w.name} {w.done.value}' for w in workers)}")
    print(run(system.lctl, "get_param", "memused_users"))
    if most > limit_bytes:
        print(f"memused_max is {most}, more than the limit of {limit_bytes}")
        status = 1
    return status or shrink(arguments, system, pid)


def shrink(arguments, system, pid):
    """A limit that is set while it is mounted: caches that were full are small within a second."""
    run(system.lctl, "set_param", "mem_limit_mb=0")
    time.sleep(0.5)
    file = direct(f"{system.second}/shrink")
    for at in range(arguments.mib):
        os.pwrite(file, pattern(at, MIB), at * MIB)
    os.fsync(file)
    for at in range(0, arguments.mib * MIB, 128 << 10):
        os.pread(file, 128 << 10, at)
    before, resident = system.parameter(pid, "memused"), peak_bytes(pid)["VmRSS"]
    run(system.lctl, "set_param", f"mem_limit_mb={arguments.limit}")
    time.sleep(1)
    after, left = system.parameter(pid, "memused"), peak_bytes(pid)["VmRSS"]
    os.close(file)
    print(f"set while mounted: memused from {before / MIB:.0f} to {after / MIB:.0f} MiB, resident from {resident / MIB:.0f} to "
          f"{left / MIB:.0f} MiB within a second")
    if before < after + 64 * MIB or after > arguments.limit * MIB or left > resident - 32 * MIB:
        print("the limit does not hold")
        return 1
    return 0


def watch(workers, until, each_second=lambda: None):
    """Until all have ended; somebody who does nothing for long stands still."""
    moved = {worker.name: (time.time(), 0) for worker in workers}
    while any(worker.process.is_alive() for worker in workers):
        time.sleep(1)
        each_second()
        for worker in workers:
            since, before = moved[worker.name]
            if worker.done.value != before or not worker.process.is_alive():
                moved[worker.name] = (time.time(), worker.done.value)
            elif time.time() - since > STILL_MAX:
                print(f"{worker.name} stands still since {STILL_MAX} s")
                return 1
    failed = [worker.name for worker in workers if worker.failed.value or worker.process.exitcode]
    if failed:
        print(f"failed: {' '.join(failed)}")
    return 1 if failed else 0


def group(arguments):
    system = System(arguments, "wmgrp")
    room = Group(f"weft-memory-{os.getpid()}", arguments.group * MIB)
    try:
        system.up("--osts", "2", enter=room.enter)
        try:
            return grouped(arguments, system, room)
        finally:
            system.down()
    finally:
        room.remove()


def grouped(arguments, system, room):
    until = time.time() + arguments.seconds
    make = lambda kind, *rest: lambda tell: kind(*rest, tell)
    if arguments.stream:
        work = [("stream", make(stream, f"{system.mount}/stream", 2 * arguments.group))]
    else:
        work = [("stream", make(stream, f"{system.mount}/stream", arguments.group // 2)),
                ("stream2", make(stream, f"{system.mount}/stream2", arguments.group // 4)),
                ("records", make(records, f"{system.mount}/records", 20000)),
                ("mapped", make(mapped, f"{system.mount}/mapped", 4)),
                ("mapped2", make(mapped, f"{system.mount}/mapped2", 4)),
                ("names", make(names, f"{system.mount}/names", 5000)),
                ("hog", make(hog, arguments.group // 2))]
    workers = [Worker(name, one, until, room.enter) for name, one in work]
    rates, last = [], [0]

    def second():
        now = workers[0].done.value
        rates.append(now - last[0])
        last[0] = now

    status = watch(workers, until, second)
    kills, peak = room.kills(), peak_bytes(system.process.pid)
    most = system.parameter(system.process.pid, "memused_max")
    print(f"group {arguments.group} MiB, {arguments.seconds} s: memused_max {most / MIB:.0f} MiB, resident at most "
          f"{peak['VmHWM'] / MIB:.0f} MiB, {kills} kills; {', '.join(f'{w.name} {w.done.value}' for w in workers)}")
    if arguments.stream:
        middle = sorted(rates[:-1])
        print(f"MiB of each second: least {middle[0]}, median {middle[len(middle) // 2]}, most {middle[-1]}")
        print(" ".join(map(str, rates)))
    if kills or most > arguments.group * MIB // 2:
        print("the kernel has killed, or more than half of the group was held")
        status = 1
    return status


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["limit", "group"])
    parser.add_argument("--weft", required=True)
    parser.add_argument("--dir", required=True)
    parser.add_argument("--seconds", type=int, required=True)
    parser.add_argument("--limit", type=int, default=64)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--group", type=int, default=2048)
    parser.add_argument("--stream", action="store_true")
    arguments = parser.parse_args()
    sys.exit({"limit": limit, "group": group}[arguments.what](arguments))


if __name__ == "__main__":
    main()
