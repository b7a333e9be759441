"""Files in which each stripe can be told from every other one: `stripes.py LFS make DIR`, `stripes.py LFS look DIR LIST`.

LIST has the names of the files that have lost what they had on OST 1: there a read says EIO, everywhere else it gives what was written.
"""

import errno
import os
import subprocess
import sys

STRIPE = 1 << 16
LOST_OST = 1
# Name, stripe count, first OST, stripes that are written.
FILES = [(f"{kind}{n}", count, first, length) for n in range(6) for kind, count, first, length in [
    ("wide", 4, -1, 9), ("two", 2, n % 4, 5), ("one", 1, n % 4, 3), ("short", 4, n % 4, 1)]]


def content(name, stripe):
    word = f"{name}:{stripe};".encode()
    return (word * (STRIPE // len(word) + 1))[:STRIPE]


def run(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def make(lfs, root):
    os.makedirs(root)
    for name, count, first, length in FILES:
        path = f"{root}/{name}"
        where = ["-i", str(first)] if first >= 0 else []
        run(lfs, "setstripe", "-c", str(count), "-S", "64K", *where, path)
        with open(path, "wb") as file:
            for stripe in range(length):
                file.write(content(name, stripe))
            os.fsync(file.fileno())


def osts_of(lfs, path):
    lines = run(lfs, "getstripe", path).splitlines()
    start = next(n for n, line in enumerate(lines) if "obdidx" in line)
    return [int(line.split()[0]) for line in lines[start + 1:] if line.strip()]


def look(lfs, root, lost):
    with open(lost) as file:
        lost = set(file.read().split())
    seen = 0
    for name, _, _, length in FILES:
        path = f"{root}/{name}"
        if not os.path.exists(path):
            continue
        osts = osts_of(lfs, path)
        assert os.stat(path).st_size == length * STRIPE, f"{name} has {os.stat(path).st_size} bytes"
        with open(path, "rb", buffering=0) as file:
            # The kernel reads ahead: what it has of other stripes is not to be asked for with those that are lost.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            for stripe in range(length):
                is_lost = name in lost and osts[stripe % len(osts)] == LOST_OST
                try:
                    found = os.pread(file.fileno(), STRIPE, stripe * STRIPE)
                    assert not is_lost, f"{name}: stripe {stripe} lay on the lost OST, and gives {found[:20]}"
                    assert found == content(name, stripe), f"{name}: stripe {stripe} gives {found[:20]}"
                except OSError as error:
                    assert is_lost and error.errno == errno.EIO, f"{name}: stripe {stripe}: {error}"
                seen += 1
    print(seen, "stripes")
    assert seen


if __name__ == "__main__":
    {"make": make, "look": look}[sys.argv[2]](sys.argv[1], *sys.argv[3:])
