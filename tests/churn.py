#!/usr/bin/env python3
"""Churn in a small memory group: files come and go for long, and nothing grows.

`weft up` with 4 OSTs runs in a memory group (cgroup 1 or 2) of --memory MiB. Processes outside make, write, append to, rename and
remove files and directories. Every few seconds the process's memory and the sizes of its logs and engines are noted, and some times
its keys: the process is stopped for the moment of a copy, and `weft check` counts them in the copy.

It fails if the process ends or is killed, if an operation fails, or if one of the four lines is higher in the last quarter than in
the second one by more than the margins below. Writes a table and a plot of the four lines.

Usage: churn.py --weft BIN --dir DIR --minutes 60 [--memory 512] [--table FILE.tsv] [--plot FILE.svg]
"""
import argparse
import glob
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time

FSNAME = "churn"
OSTS = 4
# A line may be so much higher at the end: a factor, and units of the line.
MARGINS = {"memory_mib": (1.15, 24), "keys": (1.25, 3000), "log_mib": (1.25, 70), "engine_mib": (1.25, 70)}


class Group:
    """A memory group for one process; of whichever version the machine has."""

    def __init__(self, name, limit):
        is_v1 = os.path.exists("/sys/fs/cgroup/memory/memory.limit_in_bytes")
        self.path = os.path.join("/sys/fs/cgroup/memory" if is_v1 else "/sys/fs/cgroup", name)
        os.makedirs(self.path, exist_ok=True)
        self.write("memory.limit_in_bytes" if is_v1 else "memory.max", limit)
        self.events = "memory.oom_control" if is_v1 else "memory.events"

    def write(self, file, value):
        with open(os.path.join(self.path, file), "w") as out:
            out.write(str(value))

    def enter(self):
        self.write("cgroup.procs", os.getpid())

    def kills(self):
        with open(os.path.join(self.path, self.events)) as events:
            return sum(int(line.split()[1]) for line in events if line.startswith("oom_kill "))

    def remove(self):
        try:
            os.rmdir(self.path)
        except OSError as error:
            print(f"the group {self.path} stays: {error}")


def put(path, data, flags=os.O_CREAT | os.O_EXCL | os.O_WRONLY):
    file = os.open(path, flags, 0o644)
    try:
        os.write(file, data)
    finally:
        os.close(file)


def come_and_go(base, number):
    path = f"{base}/f{number}"
    put(path, b"0123456789")
    os.unlink(path)


def stay_a_while(base, number):
    put(f"{base}/s{number}", b"x" * 5000)
    if number >= 300:
        os.unlink(f"{base}/s{number - 300}")


def replace(base, number):
    put(f"{base}/new", b"%d" % number)
    os.rename(f"{base}/new", f"{base}/kept{number % 50}")


def append(base, number):
    path = f"{base}/log{number // 200 % 5}"
    put(path, b"a line\n", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    if number % 1000 == 999:
        for log in glob.glob(f"{base}/log*"):
            os.unlink(log)


def directories(base, number):
    os.mkdir(f"{base}/d{number}")
    put(f"{base}/d{number}/f", b"y")
    os.rename(f"{base}/d{number}/f", f"{base}/d{number}/g")
    os.unlink(f"{base}/d{number}/g")
    os.rmdir(f"{base}/d{number}")


KINDS = [come_and_go, stay_a_while, replace, append, directories]


def work(kind, base, until, done, failed):
    os.makedirs(base, exist_ok=True)
    number = 0
    while time.time() < until:
        try:
            kind(base, number)
        except OSError as error:
            print(f"{kind.__name__}: {error}", flush=True)
            failed.value += 1
            return
        number += 1
        done.value = number


def rss_mib(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


def bytes_of(pattern):
    total = 0
    for path in glob.glob(pattern, recursive=True):
        try:
            total += os.stat(path).st_blocks * 512
        except FileNotFoundError:
            pass
    return total


def targets(data):
    return sorted(os.path.dirname(label) for label in glob.glob(f"{data}/**/label", recursive=True))


def keys(weft, pid, data, scratch):
    """Keys of all targets, in a copy that is as after a crash."""
    shutil.rmtree(scratch, ignore_errors=True)
    os.kill(pid, signal.SIGSTOP)
    try:
        for target in targets(data):
            place = os.path.join(scratch, os.path.relpath(target, data))
            ignore = shutil.ignore_patterns("data", "evictions")
            shutil.copytree(target, place, ignore=ignore)
    finally:
        os.kill(pid, signal.SIGCONT)
    total = 0
    for target in targets(scratch):
        told = subprocess.run([weft, "check", target], capture_output=True, text=True).stdout
        total += int(told.strip().splitlines()[-1].split(",")[-1].split()[0])
    shutil.rmtree(scratch, ignore_errors=True)
    return total


def judge(rows):
    """What has grown: a sentence each."""
    found = []
    for name, (factor, units) in MARGINS.items():
        line = [(row["seconds"], row[name]) for row in rows if row[name] is not None]
        end = line[-1][0]
        early = [value for at, value in line if end / 4 <= at < end / 2]
        late = [value for at, value in line if at >= end * 3 / 4]
        if not early or not late:
            continue
        early, late = sorted(early)[len(early) // 2], sorted(late)[len(late) // 2]
        if late > early * factor + units:
            found.append(f"{name} grew from {early:.0f} to {late:.0f}")
    return found


def plot(rows, path, title):
    width, height, left, top = 760, 150, 90, 40
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + left + 20}" height="{4 * (height + 40) + top}" '
           'font-family="sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="white"/>', f'<text x="{left}" y="20" font-size="14">{title}</text>']
    end = max(row["seconds"] for row in rows) or 1
    for index, name in enumerate(MARGINS):
        base = top + index * (height + 40) + height
        line = [(row["seconds"], row[name]) for row in rows if row[name] is not None]
        most = max(value for _, value in line) * 1.1 or 1
        points = " ".join(f"{left + at / end * width:.1f},{base - value / most * height:.1f}" for at, value in line)
        out.append(f'<line x1="{left}" y1="{base}" x2="{left + width}" y2="{base}" stroke="#888"/>')
        out.append(f'<line x1="{left}" y1="{base - height}" x2="{left}" y2="{base}" stroke="#888"/>')
        out.append(f'<polyline points="{points}" fill="none" stroke="#1660a8" stroke-width="1.5"/>')
        out.append(f'<text x="{left - 6}" y="{base - height + 10}" text-anchor="end">{most:.0f}</text>')
        out.append(f'<text x="{left - 6}" y="{base}" text-anchor="end">0</text>')
        out.append(f'<text x="{left + 6}" y="{base - height + 10}">{name.replace("_", " ")}</text>')
        out.append(f'<text x="{left + width}" y="{base + 14}" text-anchor="end">{end / 60:.0f} min</text>')
    with open(path, "w") as file:
        file.write("\n".join(out + ["</svg>", ""]))


def write_table(rows, path):
    names = ["seconds", *MARGINS, "operations"]
    with open(path, "w") as file:
        file.write("\t".join(names) + "\n")
        for row in rows:
            file.write("\t".join("" if row[name] is None else f"{row[name]:.0f}" for name in names) + "\n")


def sample(rows, started, pid, data, done, counted):
    rows.append({
        "seconds": time.time() - started,
        "memory_mib": rss_mib(pid),
        "keys": counted,
        "log_mib": bytes_of(f"{data}/**/log/*") / 2**20,
        "engine_mib": bytes_of(f"{data}/**/kv*/**") / 2**20,
        "operations": sum(count.value for count in done),
    })


def run(arguments, group, server, mount, data):
    started = time.time()
    until = started + arguments.minutes * 60
    done = [multiprocessing.Value("q", 0) for _ in KINDS]
    failed = multiprocessing.Value("i", 0)
    workers = [
        multiprocessing.Process(target=work, args=(kind, f"{mount}/{kind.__name__}", until, count, failed))
        for kind, count in zip(KINDS, done)
    ]
    for worker in workers:
        worker.start()
    rows, next_count = [], started + 30
    interval = max(1.0, min(10.0, arguments.minutes))
    while time.time() < until and server.poll() is None and not failed.value:
        counted = None
        if time.time() >= next_count:
            counted = keys(arguments.weft, server.pid, data, os.path.join(arguments.dir, "copy"))
            next_count = time.time() + arguments.minutes * 60 / 12
        sample(rows, started, server.pid, data, done, counted)
        if arguments.table:
            write_table(rows, arguments.table)
        time.sleep(interval)
    found = judge(rows) if rows else []
    if server.poll() is not None:
        found.append(f"the process ended with {server.returncode}; kills of the group: {group.kills()}")
        for worker in workers:
            worker.terminate()
    for worker in workers:
        worker.join()
    if failed.value:
        found.append("an operation failed")
    return rows, found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--weft", required=True)
    parser.add_argument("--dir", required=True)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--memory", type=int, default=512)
    parser.add_argument("--table")
    parser.add_argument("--plot")
    arguments = parser.parse_args()
    mount, data = os.path.join(arguments.dir, "mnt"), os.path.join(arguments.dir, "data")
    os.makedirs(mount, exist_ok=True)
    group = Group(f"weft-churn-{os.getpid()}", arguments.memory << 20)
    command = [arguments.weft, "up", "--foreground", "--fsname", FSNAME, "--data", data, "--osts", str(OSTS), mount]
    with open(os.path.join(arguments.dir, "log"), "w") as log:
        server = subprocess.Popen(command, preexec_fn=group.enter, stdout=log, stderr=log)
    while not os.path.ismount(mount):
        if server.poll() is not None:
            sys.exit(f"weft up ended with {server.returncode}: see {arguments.dir}/log")
        time.sleep(0.2)
    try:
        rows, found = run(arguments, group, server, mount, data)
    finally:
        if server.poll() is None:
            subprocess.run([arguments.weft, "down", mount], check=False, stdout=subprocess.DEVNULL)
            server.wait()
        group.remove()
    if arguments.plot and rows:
        last = rows[-1]
        plot(rows, arguments.plot, f"{last['operations']} operations in {last['seconds'] / 60:.0f} minutes, "
             f"memory group of {arguments.memory} MiB, {OSTS} OSTs")
    last = rows[-1] if rows else None
    print(f"at the end: {last}")
    for sentence in found:
        print(sentence)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
