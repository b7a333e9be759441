#!/usr/bin/env python3
"""Rates of the working directory, for tools/bench-rankfs.sh.

Usage: tests/rankfs_rates.py names COUNT [BYTES] | sizes DIRECTORY...

`names` makes, looks at and removes COUNT files of BYTES in one directory, and prints one line of rates. `sizes` writes and reads files of
4 KiB to 512 MiB in each directory in turns, through the caches, as iozone does, and prints MiB/s by size.
"""

import os
import statistics
import sys
import time

ROUNDS = 3
SIZES = [*(1 << n for n in range(12, 30, 2)), 1 << 29]
RECORD = 1 << 20


def rate(count, work):
    begin = time.perf_counter()
    for n in range(count):
        work(n)
    return count / (time.perf_counter() - begin)


def names(count, size):
    data = b"x" * size

    def make(n):
        file = os.open(f"f{n}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        if data:
            os.write(file, data)
        os.close(file)

    made = rate(count, make)
    looked = rate(count, lambda n: os.stat(f"f{n}"))
    removed = rate(count, lambda n: os.unlink(f"f{n}"))
    print(f"{made:.0f} {looked:.0f} {removed:.0f}")


def written(path, size):
    """MiB/s of a write and of a read of a file of this size, open and close included; small files are many."""
    count = max(1, min(256, (8 << 20) // size))
    block = os.urandom(min(size, RECORD))
    begin = time.perf_counter()
    for n in range(count):
        with open(f"{path}.{n}", "wb", buffering=0) as file:
            for _ in range(size // len(block)):
                file.write(block)
    middle = time.perf_counter()
    for n in range(count):
        with open(f"{path}.{n}", "rb", buffering=0) as file:
            while file.read(len(block)):
                pass
    end = time.perf_counter()
    for n in range(count):
        os.unlink(f"{path}.{n}")
    mib = count * size / (1 << 20)
    return mib / (middle - begin), mib / (end - middle)


def sizes(directories):
    for size in SIZES:
        rates = {directory: ([], []) for directory in directories}
        for _ in range(ROUNDS):
            for directory in directories:
                for kept, value in zip(rates[directory], written(os.path.join(directory, "s"), size)):
                    kept.append(value)
        told = " ".join(f"{statistics.median(kept):9.0f}" for pair in rates.values() for kept in pair)
        print(f"{size >> 10:>8} KiB {told}", flush=True)


if sys.argv[1] == "names":
    names(int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)
else:
    sizes(sys.argv[2:])
