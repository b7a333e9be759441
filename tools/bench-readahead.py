"""One cold read for tools/bench-readahead.sh: bench-readahead.py HOW FILE PROGRAM."""

import glob
import os
import sys
import time

RECORD = 47_008
MIB = 1 << 20


def processor_seconds(program):
    """The processor's time of all processes of the program so far."""
    ticks = 0
    for process in glob.glob("/proc/[0-9]*"):
        try:
            if os.path.realpath(f"{process}/exe") == program:
                with open(f"{process}/stat", encoding="ascii") as stat:
                    fields = stat.read().rsplit(")", 1)[1].split()
                ticks += int(fields[11]) + int(fields[12])
        except OSError:
            pass
    return ticks / os.sysconf("SC_CLK_TCK")


def read(path, flags, offsets, size):
    """Reads `size` bytes at each offset; how many there were."""
    file = os.open(path, flags)
    total = sum(len(os.pread(file, size, offset)) for offset in offsets)
    os.close(file)
    return total


def four(path, size):
    """Four processes, each every fourth record."""
    children = []
    for rank in range(4):
        child = os.fork()
        if child == 0:
            read(path, os.O_RDONLY, range(rank * RECORD, size, 4 * RECORD), RECORD)
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    return size


def main():
    how, path, program = sys.argv[1:]
    size = os.stat(path).st_size
    # A handle that writes reads past the page cache.
    ways = {
        "page1m": lambda: read(path, os.O_RDONLY, range(0, size, MIB), MIB),
        "page4": lambda: four(path, size),
        "pagestride": lambda: read(path, os.O_RDONLY, range(0, size, 16 * RECORD), RECORD),
        "past1m": lambda: read(path, os.O_RDWR, range(0, size, MIB), MIB),
        "past64k": lambda: read(path, os.O_RDWR, range(0, size, 65_536), 65_536),
        "paststride": lambda: read(path, os.O_RDWR, range(0, size, 16 * RECORD), RECORD),
    }
    before, begin = processor_seconds(program), time.monotonic()
    total = ways[how]()
    took, used = time.monotonic() - begin, processor_seconds(program) - before
    print(f"{how:10} {total / took / MIB:5.0f} MiB/s {used * 1000 / total * (1 << 30):5.0f} ms/GiB", end="")


main()
