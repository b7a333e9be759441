#!/usr/bin/env python3
"""Kills a stager at random points, then lets it end: every file is there once, as it is in the source, and no temporary name is left.

Usage: tests/staging.py WEFT SOURCE TARGET KILLS [FILES]; makes the tree SOURCE, and stages it out to TARGET.
While the stager works nothing partial may be seen under a final name: each file that is there is compared after each kill.
"""

import hashlib
import json
import os
import random
import subprocess
import sys
import time

STATE = ".weft-stage"


def make(top, files, chance):
    """Small files, some of a few MiB, holes, links, names that are no text."""
    for number in range(files):
        directory = os.path.join(top, f"d{number % 7}", "e e") if number % 3 else top
        os.makedirs(directory, exist_ok=True)
        name = os.path.join(directory, f"f {number}%").encode() + (b"\xff\n" if number % 11 == 0 else b"")
        with open(name, "wb") as file:
            if number % 13 == 0:
                file.seek(3 << 20)
            file.write(chance.randbytes(chance.choice((0, 1, 4096, 70_000, 2_000_000 if number % 20 == 0 else 5_000))))
        os.chmod(name, 0o604 if number % 2 else 0o640)
        os.utime(name, ns=(10**18 + number, 10**18 + 7 * number))
    os.symlink("nowhere", os.path.join(top, "link"))


def seen(top):
    """By name: what it is, mode, size, time, and checksum."""
    found = {}
    for directory, names, files in os.walk(os.fsencode(top)):
        if os.path.relpath(directory, os.fsencode(top)) == b".":
            names[:] = [name for name in names if name != STATE.encode()]
        for name in names + files:
            path = os.path.join(directory, name)
            status = os.lstat(path)
            if os.path.islink(path):
                what = ("link", os.readlink(path))
            elif os.path.isdir(path):
                what = ("directory", status.st_mode)
            else:
                with open(path, "rb") as file:
                    what = ("file", status.st_mode, status.st_size, status.st_mtime_ns, hashlib.sha256(file.read()).digest())
            found[os.path.relpath(path, os.fsencode(top))] = what
    return found


def main():
    weft, source, target, kills = sys.argv[1:4] + [int(sys.argv[4])]
    files = int(sys.argv[5]) if len(sys.argv) > 5 else 400
    seed = int(os.environ.get("SEED", time.time_ns() % 1_000_000))
    print("seed", seed)
    chance = random.Random(seed)
    os.mkdir(source)
    make(source, files, chance)
    expected = seen(source)
    command = [weft, "stage", "out", source, target, "--streams", "3", "--json"]
    ended = 0
    for kill in range(kills):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            # The moment is drawn; it waits for nothing.
            status = process.wait(timeout=chance.uniform(0, 0.25) + 0.02 * kill)
            assert status == 0, f"the stager ended with {status}"
            ended += 1
            # It was faster than the kill: there has to be something to do again.
            victim = chance.choice([name for name, what in expected.items() if what[0] == "file"])
            os.unlink(os.path.join(os.fsencode(target), victim))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            # What comes to the source between a kill and the next run is copied, too.
            late = os.path.join(source, f"late {kill}", "d")
            os.makedirs(late)
            with open(os.path.join(late, "file"), "w") as file:
                file.write("late")
            expected = seen(source)
        if os.path.isdir(target):
            for name, what in seen(target).items():
                if os.path.basename(name).startswith(b".weft-stage-"):
                    continue
                assert name in expected, f"{name} is there, and was never to be"
                assert what[0] == "directory" or what == expected[name], f"{name} is partial after kill {kill}"
    print(f"{kills - ended} of {kills} were killed before their end")
    assert kills < 5 or ended < kills, "no stager was killed before its end"
    answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(answer)
    assert answer["failed"] == 0
    there = seen(target)
    assert there == expected, sorted(name for name in there.keys() | expected.keys() if there.get(name) != expected.get(name))
    again = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    things = sum(what[0] != "directory" for what in expected.values())
    assert (again["copied"], again["up_to_date"], again["bytes"]) == (0, things, 0), again
    # A copy whose time says that it is the same, and whose content is another one, was changed by somebody else; what has
    # another size is copied again.
    victim = next(name for name, what in expected.items() if what[0] == "file" and what[2])
    with open(os.path.join(os.fsencode(target), victim), "ab") as file:
        file.write(b"x")
    third = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert third["copied"] == 1 and seen(target) == expected, third


main()
