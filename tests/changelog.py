#!/usr/bin/env python3
"""Random changes from several processes on two mounts; what `lfs changelog` tells of them, replayed into SQLite, equals a walk through the tree.

Usage: tests/changelog.py LFS MDT READER DIRECTORY SAME-DIRECTORY-ON-ANOTHER-MOUNT [--seed N] [--seconds N]; as root.
The directory is empty and was made after what the reader (cl1) has cleared. The MDT's server may be killed meanwhile.
"""

import argparse
import multiprocessing
import os
import random
import re
import sqlite3
import subprocess
import sys
import time

PROCESSES = 4
NAMES = 8
LINE = re.compile(
    r"(\d+) (\d\d)([A-Z]{5}) \d\d:\d\d:\d\d\.\d{9} \d{4}\.\d\d\.\d\d 0x([0-9a-f]+) t=(\[\S+\])"
    r"(?: j=\S+)? ef=0x[0-9a-f]+ u=\d+:\d+(?: nid=\S+)?(?: x=\S+)?(?: p=(\[\S+\]) (.*?))?(?: s=(\[\S+\]) sp=(\[\S+\]) (.*))?$"
)


def fid(path):
    return os.getxattr(path, "weft.fid", follow_symlinks=False).decode()


def change(chance, top, places):
    """One change, which may be refused."""
    place, other = (os.path.join(top, chance.choice(places)) for _ in range(2))
    name, second = (os.path.join(where, f"n{chance.randrange(NAMES)}") for where in (place, other))
    kind = chance.randrange(9)
    try:
        if kind <= 1:
            file = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            if kind:
                os.write(file, b"x" * chance.randrange(5000))
            os.close(file)
        elif kind == 2:
            os.mkdir(name)
        elif kind == 3:
            os.unlink(name)
        elif kind == 4:
            os.rmdir(name)
        elif kind == 5:
            os.rename(name, second)
        elif kind == 6:
            os.link(name, second, follow_symlinks=False)
        elif kind == 7:
            os.symlink("somewhere", name)
        else:
            os.chmod(name, 0o600 + chance.randrange(64))
    except OSError as error:
        # What is in the way, or not there: others change the same names.
        if error.errno not in (1, 2, 16, 17, 18, 20, 21, 22, 31, 39, 40, 116):
            raise


def work(number, seed, top, until, failed):
    chance = random.Random(f"{seed}.{number}")
    places = [".", "a", "b", "a/c", "n0", "n1", "a/n2"]
    try:
        while time.monotonic() < until:
            change(chance, top, places)
    except OSError as error:
        print(f"process {number}: {error}", file=sys.stderr)
        failed.value = 1


def replay(lines, database):
    """The changes of one page of records, as a consumer keeps them. Gives the last number."""
    last = 0
    for line in lines:
        found = LINE.fullmatch(line)
        assert found, f"no record: {line}"
        index, _, kind, _, target, parent, name, source, source_parent, source_name = found.groups()
        last = int(index)
        if kind in ("CREAT", "MKDIR", "SLINK", "MKNOD", "HLINK"):
            database.execute("INSERT INTO entries VALUES (?, ?, ?)", (parent, name, target))
        elif kind in ("UNLNK", "RMDIR"):
            gone = database.execute("DELETE FROM entries WHERE parent = ? AND name = ? AND fid = ?", (parent, name, target))
            assert gone.rowcount == 1, f"it was not there: {line}"
        elif kind == "RENME":
            database.execute(
                "DELETE FROM entries WHERE parent = ? AND name = ? AND fid = ?", (source_parent, source_name, source)
            )
            database.execute("REPLACE INTO entries VALUES (?, ?, ?)", (parent, name, source))
    return last


def ask(*command):
    """What a command prints. While the MDT's server is away, it is asked again."""
    until = time.monotonic() + 60
    while True:
        done = subprocess.run(command, capture_output=True, text=True)
        if not done.returncode:
            return done.stdout
        if "does not answer" not in done.stderr or time.monotonic() > until:
            sys.exit(f"{' '.join(command)}: {done.stderr}")
        time.sleep(0.2)


def walk(top):
    """Every entry below `top`: directory, name, file."""
    entries = set()
    for place, directories, files in os.walk(top):
        above = fid(place)
        entries.update((above, name, fid(os.path.join(place, name))) for name in directories + files)
    return entries


def below(database, top):
    """The entries of the database below a file."""
    rows = database.execute(
        "WITH RECURSIVE tree(fid) AS (SELECT ? UNION SELECT entries.fid FROM entries JOIN tree ON entries.parent = tree.fid) "
        "SELECT parent, name, entries.fid FROM entries JOIN tree ON entries.parent = tree.fid",
        (top,),
    )
    return set(rows)


def main():
    parser = argparse.ArgumentParser()
    for name in ("lfs", "mdt", "reader", "directory", "other"):
        parser.add_argument(name)
    parser.add_argument("--seed", default=str(random.randrange(1 << 30)))
    parser.add_argument("--seconds", type=float, default=6)
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    for name in ("a", "b", "a/c"):
        os.mkdir(os.path.join(arguments.directory, name))
    failed = multiprocessing.Value("i", 0)
    until = time.monotonic() + arguments.seconds
    jobs = [
        multiprocessing.Process(
            target=work,
            args=(number, arguments.seed, (arguments.directory, arguments.other)[number % 2], until, failed),
        )
        for number in range(PROCESSES)
    ]
    for job in jobs:
        job.start()
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE entries (parent TEXT, name TEXT, fid TEXT, PRIMARY KEY (parent, name))")
    last = count = 0
    # It is read and cleared while changes go on, and once more at the end.
    while True:
        running = any(job.is_alive() for job in jobs)
        if not running:
            # What was changed last is durable then.
            for mount in (arguments.directory, arguments.other):
                os.setxattr(mount, "weft.sync", b"")
        lines = ask(arguments.lfs, "changelog", "--user", arguments.reader, arguments.mdt).splitlines()
        if lines:
            first = int(lines[0].split(" ")[0])
            assert not last or first == last + 1, f"after {last} comes {first}"
            last = replay(lines, database)
            count += len(lines)
            ask(arguments.lfs, "changelog_clear", arguments.mdt, arguments.reader, str(last))
        if not running and not lines:
            break
    for job in jobs:
        job.join()
    told, found = below(database, fid(arguments.directory)), walk(arguments.directory)
    print(f"{count} records, {len(found)} entries")
    for what, entries in (("only in the changelog", told - found), ("only in the tree", found - told)):
        for entry in sorted(entries)[:5]:
            print(f"{what}: {entry}")
    assert count > 100, "hardly anything was recorded"
    sys.exit(failed.value or int(told != found))


main()
