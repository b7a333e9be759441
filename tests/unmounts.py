#!/usr/bin/env python3
"""One mount ends in some way under load, and nothing stays behind: unmounts.py EVENT A B PID_A PID_B [SERVER_PID...].

A and B are mounts of one file system, PID_A and PID_B the processes that serve them. Processes on both write, read and
map the same pages, append, truncate, list, create, remove and ask for the space. At a random moment EVENT happens to A
(`servers`: to both). Within PATIENCE seconds (longer if the machine is busy) umount has returned, the mount's process has ended, and so has every
process of the load on that mount; the other mount goes on, and no operation there takes longer than its limit.
"""

import ctypes
import errno
import mmap
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time

from patience import patience

fork = multiprocessing.get_context("fork")
PATIENCE = 10
# A client that is gone without a word is thrown out after 20 s without a connection; by each of five targets that is
# asked, after 5 s at least (docs/locks.md).
EVICTION = 20 + 5 * 5
# What an operation on the other mount may take besides, on a machine that has other things to do.
STALL = 12
UNIT = 65536
MAPPED = 6 * UNIT


def mapped(top):
    return os.path.join(top, "load", "mapped")


def map_write(top, rng, state):
    """Writes into a mapping, next to what the other mount writes."""
    with open(mapped(top), "r+b", buffering=0) as file, mmap.mmap(file.fileno(), MAPPED) as memory:
        while True:
            # One page in two, and pages at the borders of stripes.
            at = rng.choice((rng.randrange(8), rng.randrange(1, 6) * 16 - 1, rng.randrange(1, 6) * 16)) * 4096
            at += rng.randrange(4000)
            memory[at : at + 50] = bytes([rng.randrange(256)]) * 50
            if rng.random() < 0.1:
                memory.flush()
            state.value += 1


def map_read(top, rng, state):
    """Reads a mapping, and the same pages with read(2)."""
    while True:
        with open(mapped(top), "rb", buffering=0) as file:
            with mmap.mmap(file.fileno(), MAPPED, prot=mmap.PROT_READ) as memory:
                for _ in range(20):
                    at = rng.randrange(MAPPED // 4096) * 4096
                    memory[at : at + 10]
                    os.pread(file.fileno(), 3 * UNIT, rng.randrange(MAPPED))
                    state.value += 1


def write(top, rng, state):
    """Writes pieces of all sizes into the file that others have mapped."""
    fd = os.open(mapped(top), os.O_RDWR)
    while True:
        os.pwrite(fd, rng.randbytes(rng.choice((100, 5000, 40_000))), rng.randrange(MAPPED - 40_000))
        state.value += 1


def append(top, rng, state):
    fd = os.open(os.path.join(top, "load", "appended"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while True:
        os.write(fd, b"x" * rng.randrange(1, 3000))
        if os.fstat(fd).st_size > 1 << 20:
            os.ftruncate(fd, 0)
        state.value += 1


def truncate(top, rng, state):
    """Cuts the mapped file behind what is mapped, and another one anywhere."""
    with open(os.path.join(top, "load", "cut"), "a+b", buffering=0) as cut, open(mapped(top), "r+b") as file:
        while True:
            os.ftruncate(file.fileno(), rng.randrange(MAPPED, 2 * MAPPED))
            os.ftruncate(cut.fileno(), rng.randrange(3 * UNIT))
            os.pread(cut.fileno(), 3 * UNIT, 0)
            os.pwrite(cut.fileno(), b"cut", rng.randrange(3 * UNIT))
            state.value += 1


def walk(top, rng, state):
    while os.lstat(mapped(top)):
        for directory, _, names in os.walk(top):
            for name in names:
                try:
                    os.lstat(os.path.join(directory, name))
                except OSError as error:
                    if error.errno not in (errno.ENOENT, errno.ESTALE):
                        raise
            state.value += 1


def create(top, rng, state):
    directory, me = os.path.join(top, "load", "names"), os.getpid()
    while True:
        path = os.path.join(directory, f"{me}-{rng.randrange(20)}")
        with open(path, "wb") as file:
            file.write(b"y" * rng.randrange(20_000))
        os.rename(path, path + ".moved")
        os.mkdir(path)
        os.rmdir(path)
        os.unlink(path + ".moved")
        state.value += 1


def space(top, rng, state):
    fd = os.open(top, os.O_RDONLY)
    while True:
        os.fstatvfs(fd)
        time.sleep(0.005)
        state.value += 1


LOAD = (map_write, map_write, map_read, map_read, write, append, truncate, walk, create, space)


class Worker:
    """A process of the load. It ends by itself when its mount does."""

    def __init__(self, work, top, over, seed):
        self.name, self.top = work.__name__, top
        self.count = fork.Value("Q", 0, lock=False)
        self.process = fork.Process(target=self.run, args=(work, top, over, seed))
        self.process.start()

    def run(self, work, top, over, seed):
        # Whatever happens to the judge, nobody stays.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        try:
            work(top, random.Random(seed), self.count)
        except (OSError, ValueError) as error:
            if not over.value:
                print(f"{self}: {error}", flush=True)
                os._exit(3)
        os._exit(0)

    def __str__(self):
        return f"{self.name} ({self.process.pid}) on {self.top}"


class Prober(Worker):
    """Does one operation after another and remembers the longest."""

    def __init__(self, top, over, seed):
        self.now = fork.Value("d", time.monotonic(), lock=False)
        self.longest = fork.Array("d", 8, lock=False)
        super().__init__(self.probe, top, over, seed)
        self.name = "prober"

    def operations(self, top):
        directory = os.path.join(top, "load")
        fd = os.open(mapped(top), os.O_RDWR)
        own = os.open(os.path.join(directory, "appended"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        memory = mmap.mmap(fd, MAPPED)

        def touch():
            memory[5000:5010] = b"0123456789"

        def named():
            path = os.path.join(directory, "names", "probe")
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
            os.unlink(path)

        return (
            lambda: os.statvfs(top),
            lambda: os.listdir(os.path.join(directory, "names")),
            lambda: os.stat(mapped(top)),
            lambda: os.pread(fd, UNIT, 0),
            lambda: os.write(own, b"probe\n"),
            touch,
            memory.flush,
            named,
        )

    NAMES = ("statfs", "list", "stat", "read", "append", "map", "msync", "create")

    def probe(self, top, _rng, state):
        operations = self.operations(top)
        while True:
            for number, operation in enumerate(operations):
                start = time.monotonic()
                operation()
                self.now.value = time.monotonic()
                self.longest[number] = max(self.longest[number], self.now.value - start)
            state.value += 1


def wait_until(what, seconds, condition):
    end = time.monotonic() + seconds
    while not (done := condition()):
        if time.monotonic() > end:
            wrong(f"not within {seconds} s: {what}")
            return None
        time.sleep(0.01)
    return done


failures = []


def wrong(what):
    failures.append(what)
    print("FAIL", what, flush=True)


def threads(pid):
    """What each thread of a process waits for in the kernel."""
    try:
        tasks = sorted(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return
    for task in tasks:
        try:
            base = f"/proc/{pid}/task/{task}"
            with open(f"{base}/comm") as comm, open(f"{base}/stat") as stat, open(f"{base}/stack") as stack:
                kind = stat.read().rsplit(")", 1)[1].split()[0]
                calls = [line.split("] ")[-1].split("+")[0] for line in stack.read().splitlines()]
                print(f"  {pid}/{task} {comm.read().strip()} {kind}: {' < '.join(calls)}")
        except OSError:
            pass


def ended(pid):
    """A process that somebody else has to reap has ended too."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] in "ZX" and len(os.listdir(f"/proc/{pid}/task")) <= 1
    except OSError:
        return True


def umount(*arguments):
    """Runs umount(8); `None` if it does not come back."""
    start = time.monotonic()
    process = subprocess.Popen(("umount",) + arguments, stderr=subprocess.DEVNULL)
    status = wait_until(f"umount {' '.join(arguments)} returns", patience(PATIENCE), lambda: None if process.poll() is None else (process.returncode,))
    if status is None:
        threads(process.pid)
        process.kill()
    else:
        print(f"  umount {' '.join(arguments)}: status {status[0]} after {time.monotonic() - start:.2f} s")
    return status


def kill(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        wrong(f"process {pid} is gone before its time")


def happens(event, mounts, servers):
    """Lets it happen."""
    if event in ("force", "force-lazy"):
        umount(*(["-f"] if event == "force" else ["-f", "-l"]), mounts[0].top)
    elif event == "kill":
        kill(mounts[0].pid, signal.SIGKILL)
        # A process that was killed has to go by itself.
        wait_until("the killed process has ended", patience(PATIENCE), lambda: ended(mounts[0].pid))
        umount("-l", mounts[0].top)
    elif event == "term":
        kill(mounts[0].pid, signal.SIGTERM)
    elif event == "servers":
        for server in servers:
            kill(server, signal.SIGKILL)
        time.sleep(random.uniform(0, 2))
        for mount in mounts:
            umount("-f", mount.top)
    else:
        sys.exit(f"no such event: {event}")


class Mount:
    def __init__(self, top, pid, seed, probed):
        self.top, self.pid = top, pid
        self.over = fork.Value("b", 0, lock=False)
        self.load = [Worker(work, top, self.over, seed + n) for n, work in enumerate(LOAD)]
        self.prober = Prober(top, self.over, seed) if probed else None

    def workers(self):
        return self.load + ([self.prober] if self.prober else [])

    def check_running(self):
        for worker in self.workers():
            if not worker.process.is_alive():
                wrong(f"{worker} ended with {worker.process.exitcode}")

    def check_ended(self, start):
        """Everything has ended, within what is left of the time."""
        left = max(0.5, patience(PATIENCE) - (time.monotonic() - start))
        if not wait_until(f"the process {self.pid} of {self.top} ends", left, lambda: ended(self.pid)):
            threads(self.pid)
        else:
            print(f"  {self.top}: its process ended {time.monotonic() - start:.2f} s later")
        left = max(0.5, patience(PATIENCE) - (time.monotonic() - start))
        gone = lambda: not any(worker.process.is_alive() for worker in self.workers())
        if not wait_until(f"the load on {self.top} ends", left, gone):
            for worker in self.workers():
                if worker.process.is_alive():
                    print(f"  {worker} is still there")
                    threads(worker.process.pid)

    def stop(self, seconds):
        """Kills the load. Who changes something ends when that is done (crates/fuse/src/interrupt.rs), within `seconds`."""
        for worker in self.workers():
            worker.process.kill()
        end = time.monotonic() + seconds
        for worker in self.workers():
            worker.process.join(max(0, end - time.monotonic()))
            if worker.process.is_alive():
                wrong(f"{worker} cannot be killed")
                threads(worker.process.pid)


def prepare(top):
    directory = os.path.join(top, "load")
    os.makedirs(os.path.join(directory, "names"), exist_ok=True)
    fd = os.open(mapped(top), os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 2 * MAPPED)
    os.close(fd)


def main():
    event, a, b, pid_a, pid_b = sys.argv[1:6]
    servers = [int(pid) for pid in sys.argv[6:]]
    seed = int(os.environ.get("SEED", "1"))
    random.seed(seed)
    prepare(a)
    mounts = [Mount(a, int(pid_a), seed, False), Mount(b, int(pid_b), seed + 100, event != "servers")]
    everybody = [worker for mount in mounts for worker in mount.workers()]
    if not wait_until("everybody has begun", 30, lambda: all(w.count.value for w in everybody)):
        print("  waiting:", ", ".join(str(w) for w in everybody if not w.count.value))
        for mount in mounts:
            threads(mount.pid)
    time.sleep(random.uniform(0, 2))
    struck = mounts if event == "servers" else mounts[:1]
    for mount in mounts:
        mount.check_running()
    for mount in struck:
        mount.over.value = 1
    counts = sum(w.count.value for w in everybody)
    start = time.monotonic()
    happens(event, mounts, servers)
    for mount in struck:
        mount.check_ended(start)
    if event != "servers":
        judge_other(event, mounts[1], start)
    print(f"{event}: {counts} operations before")
    # A change may wait for a client that was killed.
    left = patience(5) + (max(0, start + EVICTION - time.monotonic()) if event == "kill" else 0)
    for mount in mounts:
        mount.stop(left)
    return not failures


def judge_other(event, other, start):
    """The other mount goes on, and soon."""
    prober, limit = other.prober, patience(STALL) + (EVICTION if event == "kill" else 0)
    rounds = prober.count.value + 3
    if not wait_until(f"{prober} goes on", limit, lambda: prober.count.value >= rounds or not prober.process.is_alive()):
        threads(prober.process.pid)
        threads(other.pid)
    other.check_running()
    longest = max(zip(prober.longest, prober.NAMES))
    print(f"  the longest operation on the other mount: {longest[1]}, {longest[0]:.2f} s")
    if longest[0] > limit:
        wrong(f"{longest[1]} took {longest[0]:.1f} s on the other mount")


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
