#!/usr/bin/env python3
"""`weft du` says what du(1) and a walk with lstat say: of links, holes, other owners, and a file that is being written.

Usage: tests/du.py WEFT MOUNT OTHER; as root; MOUNT and OTHER are two mounts of a file system. DU_FILES: how many files. Makes a directory, and
removes it.
"""

import json
import os
import random
import shutil
import stat
import subprocess
import sys
import time

WEFT, MOUNT, OTHER = sys.argv[1:4]
FILES = int(os.environ.get("DU_FILES", "500"))
ROOT = os.path.join(MOUNT, "du-dir")
USER = 12345
rng = random.Random(3)


def run(*words, status=0, **more):
    done = subprocess.run(words, capture_output=True, text=True, timeout=3600, **more)
    if done.returncode != status:
        sys.exit(f"{words}: status {done.returncode}, not {status}: {done.stdout[-2000:]} {done.stderr[-2000:]}")
    return done


def expect(what, found, wanted):
    if found != wanted:
        sys.exit(f"{what}: {found!r}, not {wanted!r}")


def weft_du(*words, **more):
    return json.loads(run(WEFT, "du", "--json", *words, **more).stdout)


def walk(top, of=lambda status: 0):
    """Sums by `of`, by lstat; and the sizes of directories, which old versions of du add."""
    sums, seen, sizes = {}, set(), 0
    names = [top] + [os.path.join(at, name) for at, dirs, files in os.walk(top) for name in dirs + files]
    for name in names:
        status = os.lstat(name)
        is_dir = stat.S_ISDIR(status.st_mode)
        if not is_dir and status.st_ino in seen:
            continue
        seen.add(status.st_ino)
        one = sums.setdefault(of(status), {"bytes": 0, "disk_bytes": 0, "files": 0, "directories": 0})
        one["directories" if is_dir else "files"] += 1
        one["disk_bytes"] += status.st_blocks * 512
        if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
            one["bytes"] += status.st_size
        sizes += status.st_size if is_dir else 0
    return sums, sizes


def du(*words):
    return int(run("du", "-s", "-B1", *words).stdout.split()[0])


def make():
    os.mkdir(ROOT)
    dirs = [ROOT]
    for n in range(FILES):
        if n % 20 == 0:
            dirs.append(os.path.join(rng.choice(dirs), f"d{n}"))
            os.mkdir(dirs[-1])
        name = os.path.join(rng.choice(dirs), f"f{n}")
        with open(name, "wb") as file:
            file.write(bytes(rng.choice((0, 1, 5000, 100_000))))
            if n % 50 == 7:
                file.truncate(10 << 20)
        if n % 3 == 0:
            os.chown(name, USER, USER)
        if n % 10 == 1:
            os.link(name, os.path.join(rng.choice(dirs), f"l{n}"))
        if n % 30 == 2:
            os.symlink("somewhere", name + "s")
    os.mkfifo(f"{ROOT}/fifo")


def agree():
    found = weft_du(ROOT)
    sums, sizes = walk(ROOT)
    expect("a walk", {key: found[key] for key in sums[0]}, sums[0])
    expect("du", found["disk_bytes"], du(ROOT))
    apparent = du("--apparent-size", ROOT)
    # Since coreutils 9.2 directories have no apparent size.
    expect("du --apparent-size", found["bytes"] in (apparent, apparent - sizes), True)
    found = weft_du("--by", "user", ROOT)
    sums, _ = walk(ROOT, lambda status: status.st_uid)
    expect("by user", {one["id"]: {key: one[key] for key in sums[0]} for one in found["each"]}, sums)
    expect("names", [one["name"] for one in found["each"]], ["root", None])


def main():
    make()
    run(WEFT, "sync", MOUNT)
    agree()
    # Somebody writes; the MDT does not know how much.
    file = os.open(f"{OTHER}/du-dir/written", os.O_CREAT | os.O_WRONLY)
    os.write(file, bytes(300_000))
    os.fsync(file)
    agree()
    os.close(file)
    run(WEFT, "sync", OTHER)
    agree()
    os.mkdir(f"{ROOT}/hidden", 0o700)
    done = subprocess.run([WEFT, "du", ROOT, "/tmp"], capture_output=True, text=True, user=USER, group=USER, extra_groups=[])
    expect("complaints", (done.returncode, sorted(done.stderr.splitlines())), (1, sorted([
        "weft du: /tmp: not in a weft file system", f"weft du: {ROOT}/hidden: Permission denied"])))
    print(done.stdout)
    start = time.time()
    run(WEFT, "du", ROOT)
    middle = time.time()
    run("du", "-s", ROOT)
    print(f"weft du {middle - start:.2f} s, du {time.time() - middle:.2f} s", flush=True)
    shutil.rmtree(ROOT)


main()
