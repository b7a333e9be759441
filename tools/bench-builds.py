#!/usr/bin/env python3
"""The measuring part of bench-builds.sh.

Usage: bench-builds.py BUILD FORM PROGRAM MOUNT OTHER   measures; prints a line for each phase
       bench-builds.py --report FILE                    medians, their ratio and the spread, of such lines
"""
import glob
import multiprocessing
import os
import statistics
import sys
import time

TICK = os.sysconf("SC_CLK_TCK")
CREATE_SECONDS = 4
PROCESSES = 2
MIB = 1 << 20
FILE_MIB = 256


def processor_seconds(program):
    """User and system time of all processes of `program`."""
    ticks = 0
    for process in glob.glob("/proc/[0-9]*"):
        try:
            if os.readlink(f"{process}/exe") != program:
                continue
            with open(f"{process}/stat", encoding="ascii", errors="replace") as stat:
                fields = stat.read().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        except OSError:
            continue
    return ticks / TICK


def create(directory, until, count):
    """Makes empty files, 1,000 in a directory."""
    made = 0
    while time.monotonic() < until:
        where = os.path.join(directory, str(made // 1000))
        if made % 1000 == 0:
            os.mkdir(where)
        os.close(os.open(os.path.join(where, str(made)), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        made += 1
    count.value = made


def creates(top):
    """Two processes make files for a while; gives how many."""
    until, counts, jobs = time.monotonic() + CREATE_SECONDS, [], []
    for number in range(PROCESSES):
        directory = os.path.join(top, f"p{number}")
        os.mkdir(directory)
        counts.append(multiprocessing.Value("q", 0))
        jobs.append(multiprocessing.Process(target=create, args=(directory, until, counts[-1])))
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    return sum(count.value for count in counts)


def stats(top):
    """Looks at up to 8,000 files that another mount has made, one after the other; gives how many."""
    seen = 0
    for where, _, names in os.walk(os.path.join(top, "p0")):
        for name in names:
            os.stat(os.path.join(where, name))
            seen += 1
            if seen == 8000:
                return seen
    return seen


def write(top):
    """Writes a file and syncs it."""
    piece = os.urandom(MIB)
    file = os.open(os.path.join(top, "large"), os.O_CREAT | os.O_WRONLY)
    for _ in range(FILE_MIB):
        os.write(file, piece)
    os.fsync(file)
    os.close(file)
    return FILE_MIB


def read(top):
    """Reads it, on another mount."""
    file, count = os.open(os.path.join(top, "large"), os.O_RDONLY), 0
    while os.read(file, MIB):
        count += 1
    os.close(file)
    return count


def measure(build, form, program, mount, other):
    """One line for each phase: what, how many a second, and microseconds of the processor for each."""
    # Data first: how much the engine still has to write away depends on how many files were made.
    for what, phase, top in (("write MiB", write, mount), ("read MiB", read, other), ("create", creates, mount), ("stat", stats, other)):
        used, start = processor_seconds(program), time.monotonic()
        count = phase(top)
        took = time.monotonic() - start
        used = processor_seconds(program) - used
        print(build, form, what.replace(" ", "_"), count / took, used / count * 1e6, sep="\t")
        time.sleep(0.5)


def report(path):
    """Medians of each phase, old beside new."""
    lines = {}
    with open(path, encoding="ascii") as file:
        for line in file:
            build, form, what, rate, used = line.split("\t")
            lines.setdefault((form, what), {}).setdefault(build, []).append((float(rate), float(used)))
    print(f"{'':14}{'a second: old':>15}{'new':>9}{'ratio':>7}  spread old, new    {'us of processor: old':>20}{'new':>8}{'ratio':>7}")
    for (form, what), builds in lines.items():
        old, new = ([[one[n] for one in builds[name]] for n in (0, 1)] for name in ("old", "new"))
        rates, used = ([statistics.median(build[n]) for build in (old, new)] for n in (0, 1))
        spread = ", ".join(f"{min(build[0]) / rate:.2f}-{max(build[0]) / rate:.2f}" for build, rate in zip((old, new), rates))
        print(
            f"{form + ' ' + what:14}{rates[0]:15.0f}{rates[1]:9.0f}{rates[1] / rates[0]:7.2f}  {spread:18}"
            f"{used[0]:18.1f}{used[1]:8.1f}{used[1] / max(used[0], 0.001):7.2f}"
        )


if sys.argv[1] == "--report":
    report(sys.argv[2])
else:
    measure(*sys.argv[1:])
