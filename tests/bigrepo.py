"""Writes a git repository of many files and commits for `git fast-import`: bigrepo.py FILES COMMITS."""

import random
import sys

rng = random.Random(1)
out = sys.stdout.buffer
files, commits = int(sys.argv[1]), int(sys.argv[2])


def data(text):
    out.write(b"data %d\n%b\n" % (len(text), text))


def blob(number, version):
    """A text that differs from its last version in one line."""
    lines = [b"line %d of file %d" % (n, number) for n in range(5 + number % 60)]
    lines[version % len(lines)] = b"version %d %d" % (version, rng.randrange(1 << 60))
    return b"\n".join(lines) + b"\n"


def name(number):
    return b"d%d/s%d/f%d.c" % (number % 17, number // 17 % 23, number)


for commit in range(commits):
    out.write(b"commit refs/heads/main\ncommitter Nobody <nobody@example.org> %d +0000\n" % (1_700_000_000 + commit))
    data(b"change %d" % commit)
    changed = range(files) if commit == 0 else sorted(rng.sample(range(files), max(1, files // 20)))
    for number in changed:
        out.write(b"M 100644 inline %b\n" % name(number))
        data(blob(number, commit))
out.write(b"done\n")
