#!/usr/bin/env python3
"""Pools of OSTs as Lustre has them: words, output and refusals of `lctl` and `lfs`, where files lie, what is inherited, and members that change
while files are made.

Usage: tests/pools.py LFS LCTL FSNAME MOUNT OTHER; as root, where the MGS is reached; the file system has the OSTs 0 to 3, and MOUNT and OTHER are
two mounts of it. Makes a directory and two pools, and leaves the pool `kept` with the OSTs 1 and 3.
"""

import os
import re
import subprocess
import sys
import threading
import time

LFS, LCTL, FS, MOUNT, OTHER = sys.argv[1:6]
ROOT = os.path.join(MOUNT, "pools-dir")
failed = []


def run(*words):
    words = [LCTL if words[0] == "lctl" else LFS, *words[1:]]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def expect(line, status=0, said=None, complaint=None):
    """Runs a line; `said` is all of its output, `complaint` a part of what it complains of."""
    line = line.replace("FS", FS).replace("ROOT", ROOT).replace("MOUNT", MOUNT)
    code, out, err = run(*line.split(" "))
    wrong = code != status or said is not None and out != said.replace("FS", FS)
    if wrong or complaint is not None and complaint.replace("FS", FS) not in err:
        failed.append(line)
        print(f"{line}: status {code}, not {status}; it says {out!r} {err!r}")
    return out


def layout(path):
    """The OSTs of a file, sorted, and its pool."""
    _, out, err = run("lfs", "getstripe", path)
    rows = [line.split() for line in out.splitlines() if line.startswith("\t ")]
    pool = [line.split()[1] for line in out.splitlines() if line.startswith("lmm_pool:")]
    return sorted(int(row[0]) for row in rows), pool[0] if pool else ""


def lies(path, osts, pool):
    found = layout(path)
    if found != (osts, pool):
        failed.append(path)
        print(f"{path} lies on {found}, not on {osts} of {pool!r}")


def touched(name):
    path = os.path.join(ROOT, name)
    with open(path, "w") as file:
        file.write(name)
    return path


def words():
    expect("lctl pool_list FS", said="Pools from FS:\n")
    expect("lctl pool_new FS.flash", said="Pool FS.flash created\n")
    expect("lctl pool_new FS.flash", 17, complaint="Pool FS.flash already exists")
    for bad in ("none", "inherit", "ignore", "a.b", "sixteen-bytes-12", "a/b", "ö"):
        expect(f"lctl pool_new FS.{bad}", 22, complaint="is no name of a pool")
    expect("lctl pool_new flash", 2, complaint="as in w.flash")
    expect("lctl pool_new nobody.flash", 1, complaint="no MGS of a file system 'nobody' is reached")
    expect("lctl pool_list FS.flash", said="Pool: FS.flash\n")
    expect("lctl pool_add FS.flash FS-OST0000 OST0002_UUID", said="OST FS-OST0000_UUID added to pool FS.flash\nOST FS-OST0002_UUID added to pool FS.flash\n")
    expect("lctl pool_add FS.flash OST0002", 17, complaint="OST FS-OST0002_UUID is already in pool FS.flash")
    expect("lctl pool_add FS.flash 0-1,9", 2, said="OST FS-OST0001_UUID added to pool FS.flash\n", complaint="OST FS-OST0009_UUID is not part of the 'FS' fs.")
    expect("lctl pool_add FS.flash elephant", 2, complaint="'elephant' names no OSTs")
    expect("lctl pool_add FS.nosuch OST0000", 2, complaint="Pool FS.nosuch does not exist")
    expect("lctl pool_remove FS.flash OST0003", 2, complaint="OST FS-OST0003_UUID not found in pool FS.flash")
    expect("lctl pool_remove FS.flash FS-OST[1-2]_UUID", said="OST FS-OST0001_UUID removed from pool FS.flash\nOST FS-OST0002_UUID removed from pool FS.flash\n")
    expect("lctl pool_add FS.flash OST0002-OST0002")
    expect("lctl pool_destroy FS.flash", 39, complaint="Pool FS.flash not empty, please remove all members")
    members = "Pool: FS.flash\nFS-OST0000_UUID\nFS-OST0002_UUID\n"
    for line in ("lctl pool_list FS.flash", "lfs pool_list FS.flash", "lfs pool_list MOUNT/flash"):
        expect(line, said=members)
    expect("lctl pool_new --nowait FS.disk")
    expect("lctl pool_add -n FS.disk OST0001-FS-OST0003_UUID")
    for line in ("lctl pool_list FS", "lfs pool_list FS", "lfs pool_list MOUNT", "lfs pool_list ROOT"):
        expect(line, said="Pools from FS:\nFS.disk\nFS.flash\n")
    expect("lfs pool_list FS.nosuch", 2, complaint="there is no pool 'nosuch'")
    summary = expect("lfs df -p flash MOUNT")
    osts = [line.split()[0] for line in summary.splitlines() if "-OST" in line]
    if osts != [f"{FS}-OST0000_UUID", f"{FS}-OST0002_UUID"]:
        failed.append("df")
        print(summary)
    expect("lfs df --pool FS.nosuch MOUNT", 1, complaint="there is no pool 'nosuch'")


def layouts():
    expect("lfs setstripe -p flash -c -1 ROOT/all")
    lies(f"{ROOT}/all", [0, 2], "flash")
    lies(os.path.join(OTHER, "pools-dir", "all"), [0, 2], "flash")
    expect("lfs getstripe -p ROOT/all", said="flash\n")
    expect("lfs setstripe --pool FS.flash -i 2 -c 1 ROOT/first")
    lies(f"{ROOT}/first", [2], "flash")
    expect("lfs setstripe -p disk -o 3,1 ROOT/listed")
    lies(f"{ROOT}/listed", [1, 3], "disk")
    expect("lfs setstripe -p nosuch ROOT/none", 1, complaint=f"there is no pool 'nosuch'; 'lfs pool_list {FS}'")
    expect("lfs setstripe -p flash -i 1 ROOT/none", 1, complaint="OST 1 is not in the pool 'flash'")
    expect("lfs setstripe -p flash -o 0,3 ROOT/none", 1, complaint="OST 3 is not in the pool 'flash'")
    if os.path.exists(f"{ROOT}/none"):
        failed.append("a refused file is there")
    # A directory's default is inherited by new directories, and by what says nothing of a pool.
    os.mkdir(f"{ROOT}/d")
    expect("lfs setstripe -p nosuch ROOT/d", 1, complaint="there is no pool 'nosuch'")
    expect("lfs setstripe -p flash -c 2 ROOT/d")
    expect("lfs getstripe -d ROOT/d", said="stripe_count:  2 stripe_size:   1048576 pattern:       raid0 stripe_offset: -1 pool:          flash\n\n")
    os.mkdir(f"{ROOT}/d/sub")
    lies(touched("d/sub/f"), [0, 2], "flash")
    expect("lfs setstripe -c 1 -S 64K ROOT/d/narrow")
    expect("lfs getstripe -p ROOT/d/narrow", said="flash\n")
    expect("lfs setstripe -p ignore -c -1 ROOT/d/ignored")
    lies(f"{ROOT}/d/ignored", [0, 1, 2, 3], "")
    for reset in ("none", "inherit"):
        expect("lfs setstripe -p disk ROOT/d/sub")
        expect(f"lfs setstripe -p {reset} ROOT/d/sub")
        if "pool:" in expect("lfs getstripe -d ROOT/d/sub"):
            failed.append(reset)
    # Components.
    expect("lfs setstripe -E 64K -p flash -E 1M -c -1 -E -1 -p disk -c -1 ROOT/parts")
    with open(f"{ROOT}/parts", "wb") as file:
        file.write(b"x" * (2 << 20))
    out = expect("lfs getstripe -y ROOT/parts")
    pools = [line.split()[1] for line in out.splitlines() if "lmm_pool:" in line]
    osts = [int(index) for index in re.findall(r"l_ost_idx: *(\d+)", out)]
    if pools != ["flash", "flash", "disk"] or not set(osts[:3]) <= {0, 2} or sorted(osts[3:]) != [1, 2, 3]:
        failed.append("components")
        print(pools, osts, out)
    # Find.
    found = expect("lfs find ROOT --pool disk").splitlines()
    if sorted(found) != [f"{ROOT}/listed", f"{ROOT}/parts"]:
        failed.append("find --pool")
        print(found)
    found = expect("lfs find ROOT -type f ! --pool flash").splitlines()
    if f"{ROOT}/listed" not in found or f"{ROOT}/all" in found:
        failed.append("find ! --pool")
        print(found)


def moves():
    """A file moves from one pool to the other while it is open."""
    path = f"{ROOT}/moved"
    expect("lfs setstripe -p flash -c -1 -S 64K ROOT/moved")
    data = os.urandom(3 << 20)
    with open(path, "wb") as file:
        file.write(data)
    before = os.stat(path).st_ino
    with open(path, "rb") as file:
        first = file.read(1 << 20)
        expect("lfs migrate -p nosuch ROOT/moved", 1, complaint="there is no pool 'nosuch'")
        expect("lfs migrate -p disk -c -1 ROOT/moved")
        lies(path, [1, 2, 3], "disk")
        if first + file.read() != data or os.stat(path).st_ino != before:
            failed.append("moved")
    with open(os.path.join(OTHER, "pools-dir", "moved"), "rb") as file:
        if file.read() != data:
            failed.append("moved, seen by another mount")


def changes():
    """Members change under load, and new creates follow."""
    made, stop, errors = [], threading.Event(), []

    def make(worker):
        number = 0
        while not stop.is_set():
            path = f"{ROOT}/load/{worker}-{number}"
            number += 1
            try:
                began = time.monotonic()
                with open(path, "w") as file:
                    file.write(path)
                made.append((began, path))
            except OSError as error:
                errors.append(f"{path}: {error}")

    os.mkdir(f"{ROOT}/load")
    expect("lctl pool_add FS.disk OST0000")
    expect("lctl pool_remove FS.disk OST[0-3]")
    expect("lctl pool_add FS.disk OST0000")
    expect("lfs setstripe -p disk -c 1 ROOT/load")
    workers = [threading.Thread(target=make, args=(worker,)) for worker in range(3)]
    for worker in workers:
        worker.start()
    members, changed, changing = [{0}], [time.monotonic()], [0]
    for ost in (1, 2, 3, 0):
        time.sleep(2.5)
        changing.append(time.monotonic())
        expect(f"lctl pool_add FS.disk {ost}")
        expect(f"lctl pool_remove FS.disk {[0, 1, 2, 3][ost - 1]}")
        members.append({ost})
        changed.append(time.monotonic())
    time.sleep(2.5)
    stop.set()
    for worker in workers:
        worker.join()
    if errors:
        failed.append("creates under load")
        print(len(errors), errors[:3])
    # The MDT knows of a change when the command ends.
    late = counted = 0
    for began, path in made[:: max(1, len(made) // 400)]:
        step = max(step for step, when in enumerate(changed) if when <= began or step == 0)
        # What was begun before the next change may be made behind it.
        if step + 1 < len(changed) and began > changing[step + 1] - 0.5:
            continue
        counted += 1
        late += not set(layout(path)[0]) <= members[step]
    print(f"{len(made)} files made while members changed; {counted} looked at, {late} on OSTs of before")
    if late or counted < 10:
        failed.append("creates follow")


def endings():
    """What becomes of files and defaults when a pool ends."""
    expect("lctl pool_remove FS.flash OST0000 OST0002")
    expect("lfs setstripe -p flash ROOT/empty", 1, complaint="the pool 'flash' has no OST")
    try:
        touched("d/empty")
        failed.append("a file of an empty pool")
    except OSError as error:
        if error.errno != 28:
            failed.append(f"a file of an empty pool: {error}")
    lies(f"{ROOT}/all", [0, 2], "flash")
    expect("lctl pool_destroy FS.flash", said="Pool FS.flash destroyed\n")
    expect("lctl pool_destroy FS.flash", 2, complaint="Pool FS.flash does not exist")
    lies(f"{ROOT}/all", [0, 2], "flash")
    expect("lfs getstripe -d ROOT/d", said="stripe_count:  2 stripe_size:   1048576 pattern:       raid0 stripe_offset: -1 pool:          flash\n\n")
    deadline = time.monotonic() + 5
    path = None
    while path is None and time.monotonic() < deadline:
        try:
            path = touched("d/after")
        except OSError:
            time.sleep(0.1)
    osts, pool = layout(path or ROOT)
    if len(osts) != 2 or pool:
        failed.append("a default of a pool that is no more")
        print(osts, pool)
    expect("lctl pool_remove FS.disk OST0000")
    expect("lctl pool_destroy FS.disk")
    expect("lctl pool_new FS.kept")
    expect("lctl pool_add FS.kept 1 3")


def main():
    os.mkdir(ROOT)
    for part in (words, layouts, moves, changes, endings):
        before = len(failed)
        part()
        print(f"{part.__name__}: {'fine' if len(failed) == before else failed[before:]}", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
