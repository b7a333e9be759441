#!/usr/bin/env python3
"""Files that are open for reading outlive their last names and a restart of the MDS.

Usage: heldopen.py DIR_A DIR_B COUNT STEP. The directories are one, seen through two mounts. COUNT files are made on B and opened on A, and
every second one is removed on B. Then the file STEP is made; whoever called restarts the MDS and removes it. After that each handle has to
read what B wrote, and what was removed has to go with the last close.
"""

import os
import sys
import time

a, b, count, step = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
PATIENCE = 60
# Inodes that nobody has open go with the last close; how soon is judged where time is virtual (weft-server, restate_opens).
GONE_WITHIN = 60


def wait_until(what, patience, condition):
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"not within {patience} s: {what}")
        time.sleep(0.01)


def content(number):
    return b"%08d" % number


def inodes():
    space = os.statvfs(b)
    return space.f_files - space.f_ffree


before = inodes()
for number in range(count):
    with open(f"{b}/{number}", "wb") as file:
        file.write(content(number))
os.sync()
handles = [os.open(f"{a}/{number}", os.O_RDONLY) for number in range(count)]
for number in range(0, count, 2):
    os.unlink(f"{b}/{number}")
os.mkdir(f"{b}/dir")
directory = os.open(f"{a}/dir", os.O_RDONLY)
os.rmdir(f"{b}/dir")
held = inodes()
if held != before + count + 1:
    sys.exit(f"{held - before} inodes, not {count + 1}: what is open has to stay")

open(step, "w").close()
wait_until("the MDS is restarted", PATIENCE, lambda: not os.path.exists(step))

links = [os.fstat(handle).st_nlink for handle in handles]
wrong = [number for number in range(count) if links[number] != number % 2]
if wrong or os.fstat(directory).st_nlink != 0:
    sys.exit(f"after the restart the links of {len(wrong)} files are wrong, {wrong[:3]} among them")
for number, handle in enumerate(handles):
    if os.pread(handle, 100, 0) != content(number):
        sys.exit(f"after the restart file {number} has not what was written")
if inodes() != held:
    sys.exit(f"{inodes()} inodes after the restart, {held} before")
for handle in [*handles, directory]:
    os.close(handle)
expected = before + count // 2
wait_until(f"{expected} inodes are left", GONE_WITHIN, lambda: inodes() == expected)
for number in range(1, count, 2):
    with open(f"{a}/{number}", "rb") as file:
        if file.read() != content(number):
            sys.exit(f"file {number} has not what was written")
