#!/usr/bin/env python3
"""`lfs find` beside find(1): a tree with every kind of file, random names and attributes, and a list of expressions.

Usage: tests/find.py LFS DIRECTORY [--seed N] [--files N]; as root, DIRECTORY is empty and in a mount. Ends with 1 and says which expressions
differ. The order in which files are told may differ.
"""

import argparse
import os
import random
import socket
import stat
import subprocess
import sys
import time

# What both programs have to find alike. FILE stands for a file whose times lie in the middle.
EXPRESSIONS = """
-type f
-type d,l
-name f*1*
-iname F*1?
-name [[:digit:]]*
-name *.[!ab]
-name *\\\\*
-path */d1/*
-ipath */D1/*
-size 3901c
-size +2k
-size -3k
-size 1
-size 0
-size +0
-size -1M
-empty
-type d -empty
! -type d ! -empty
-links 2
-links +1
-perm 640
-perm -g+r
-perm /o=rwx
-perm -4000
-uid 1000
-uid +1000
-gid -5
-user daemon
-group 7
-newer FILE
! -newer FILE
-anewer FILE
-cnewer FILE
-mtime -1
-mtime +1
-mtime 3
-mmin +100
-amin -1
-cmin -60
-maxdepth 1
-mindepth 2 -maxdepth 3 -type f
-maxdepth 0
-newer FILE -size 3901c -name *01*
( -name *1* -o -size +2k ) -type f
-name *1* -o -size +2k -perm -u+w
! ( -type f -a ! -name *2* )
-not -name *1* -type f
-true
-false
-name *1* -false -o -type l
""".strip().splitlines()
FORMAT = r"%p|%P|%f|%h|%H|%d|%s|%m|%M|%u|%g|%U|%G|%i|%n|%y|%l|%T@|%C@\n"


def build(root, files, rng):
    """Makes the tree; gives the file whose times lie in the middle."""
    now = time.time()
    dirs = [root]
    for n in range(files):
        if rng.random() < 0.08:
            path = os.path.join(rng.choice(dirs), f"d{n % 9}")
            if not os.path.exists(path):
                os.mkdir(path)
                dirs.append(path)
        path = os.path.join(rng.choice(dirs), rng.choice(["f", "F", "9", "ü", "a b.", "x.", "b\\s"]) + f"{n:03}")
        kind = rng.random()
        if kind < 0.80:
            with open(path, "wb") as file:
                file.write(b"x" * rng.choice([0, 0, 1, 512, 513, 2048, 3901, 3901, 70000]))
            if rng.random() < 0.1:
                os.link(path, path + "-link")
        elif kind < 0.88:
            os.symlink(rng.choice(["nowhere", root, "../x"]), path)
        elif kind < 0.92:
            os.mkfifo(path)
        elif kind < 0.95:
            server = socket.socket(socket.AF_UNIX)
            here = os.open(os.path.dirname(path), os.O_DIRECTORY)
            os.fchdir(here)
            server.bind(os.path.basename(path))
            os.close(here)
            server.close()
        else:
            os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
        os.chown(path, rng.choice([0, 1, 1000, 1001]), rng.choice([0, 1, 7, 1000]), follow_symlinks=False)
        if not os.path.islink(path):
            os.chmod(path, rng.choice([0o644, 0o640, 0o600, 0o755, 0o4755, 0o1777]))
            age = rng.choice([0, 30, 3600, 7200, 90000, 3 * 86400 + 100, 10 * 86400])
            os.utime(path, (now - age / 2, now - age))
    os.chdir("/")
    middle = os.path.join(root, "middle")
    open(middle, "w").close()
    os.utime(middle, (now - 5000, now - 5000))
    return middle


def lines(command, user=None):
    done = subprocess.run(command, capture_output=True, check=False, user=user, group=user, extra_groups=[] if user else None)
    return sorted(done.stdout.split(b"\0" if b"\0" in done.stdout else b"\n")), done.stderr.decode(errors="replace")


def differences(found, expected):
    return sorted(set(found) - set(expected))[:3], sorted(set(expected) - set(found))[:3]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lfs")
    parser.add_argument("directory")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--files", type=int, default=600)
    arguments = parser.parse_args()
    root = arguments.directory
    middle = build(root, arguments.files, random.Random(arguments.seed))
    failed = 0

    def compare(what, words, user=None):
        nonlocal failed
        expected, complaint = lines(["find", root, *words], user)
        found, said = lines([arguments.lfs, "find", root, *words], user)
        if found != expected or bool(complaint) != bool(said):
            failed += 1
            print(f"{what}: {len(found)} found, {len(expected)} expected; more and missing {differences(found, expected)}; {said!r}")

    for expression in EXPRESSIONS:
        compare(expression, [middle if word == "FILE" else word for word in expression.split()])
    compare("-print0", ["-type", "f", "-print0"])
    compare("-printf", ["-printf", FORMAT])
    # The place of the search, as it may be written.
    for place in (root + "/", middle):
        for words in (["-name", "*"], ["-path", "*mid*"], []):
            expected, _ = lines(["find", place, *words])
            found, said = lines([arguments.lfs, "find", place, *words])
            if found != expected:
                failed += 1
                print(f"{place} {words}: {differences(found, expected)} {said!r}")
    # Somebody writes: the MDT does not know the size.
    with open(os.path.join(root, "open"), "wb") as file:
        file.write(b"y" * 4567)
        file.flush()
        compare("a file that is written", ["-size", "4567c"])
        compare("a file that is written", ["-name", "open", "-printf", "%s %p\n"])
    # What is closed to a user.
    closed = os.path.join(root, "closed")
    os.makedirs(os.path.join(closed, "inner"))
    os.chmod(closed, 0o700)
    compare("a closed directory", [], user=1000)
    compare("a closed directory", ["-type", "f", "-size", "+1"], user=1000)
    matched, _ = lines([arguments.lfs, "find", root, "-type", "f", "--matched"])
    all_of, _ = lines(["find", root])
    files, _ = lines(["find", root, "-type", "f"])
    if matched[-1:] != [f"MATCHED {len(files) - 1}/{len(all_of) - 1}".encode()]:
        failed += 1
        print(f"--matched: {matched[-1:]}, and {len(files) - 1} of {len(all_of) - 1}")
    print(f"{len(EXPRESSIONS) + 13} comparisons, {failed} differ")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
