"""Changes of two mounts in one directory that wait for each other: crossing.py A B ROUNDS

In each round both mounts know all names of a new directory, so that each has to call the other one's names back, and then both
replace, move, remove and link files there at the same time. The kernel has locked the directory on both sides meanwhile
(docs/locks.md#kernel-names). No call may take longer than LATE, and none may fail that would not fail on a local disk.
Prints how many there were, and how long the slowest took.
"""

import errno
import multiprocessing
import os
import sys
import time

NAMES = 8
# Names that nobody gives back are used for 10 s.
LATE = 2.0
# What another process may have done meanwhile.
EXPECTED = {errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY}


def replace(at, who, n):
    os.rename(f"{at}/{who}{n}", f"{at}/f{n}")


def move(at, who, n):
    os.rename(f"{at}/f{n}", f"{at}/f{(n + 1) % NAMES}")


def remove(at, who, n):
    os.unlink(f"{at}/f{n}")


def link(at, who, n):
    os.link(f"{at}/{who}{n}", f"{at}/l{n}")


def subdir(at, who, n):
    os.rename(f"{at}/d{n}", f"{at}/d{(n + 1) % NAMES}")


KINDS = [replace, move, remove, link, subdir]


def work(top, who, rounds, meet, told):
    slowest, done, wrong = 0.0, 0, []
    for round in range(rounds):
        at, kind = f"{top}/r{round}", KINDS[round % len(KINDS)]
        meet.wait()
        if who == "a":
            os.mkdir(at)
            for n in range(NAMES):
                os.mkdir(f"{at}/d{n}")
                for name in ("f", "a", "b"):
                    os.mknod(f"{at}/{name}{n}")
        meet.wait()
        for _ in range(2):
            for n in range(NAMES):
                for name in ("f", "a", "b", "d"):
                    os.stat(f"{at}/{name}{n}")
            meet.wait()
        for n in range(NAMES):
            begun = time.monotonic()
            try:
                kind(at, who, n if who == "a" else NAMES - 1 - n)
            except OSError as error:
                if error.errno not in EXPECTED:
                    wrong.append(f"round {round}, {kind.__name__} {n} of {who}: {error}")
            slowest = max(slowest, time.monotonic() - begun)
            done += 1
    told.put((slowest, done, wrong))


def main(tops, rounds):
    meet, told = multiprocessing.Barrier(2), multiprocessing.Queue()
    start = [multiprocessing.Process(target=work, args=(f"{top}/crossing", who, rounds, meet, told)) for top, who in tops]
    os.makedirs(f"{tops[0][0]}/crossing")
    for process in start:
        process.start()
    said = [told.get() for _ in start]
    for process in start:
        process.join()
    slowest = max(one[0] for one in said)
    print(f"{sum(one[1] for one in said)} changes, the slowest took {slowest:.3f} s")
    wrong = sum((one[2] for one in said), [])
    for line in wrong[:10]:
        print(line)
    return int(bool(wrong) or slowest > LATE)


if __name__ == "__main__":
    sys.exit(main([(sys.argv[1], "a"), (sys.argv[2], "b")], int(sys.argv[3])))
