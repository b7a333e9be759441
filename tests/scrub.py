#!/usr/bin/env python3
"""Bits that are flipped in the data files of OSTs that run, and what a check of the file system says of them.

scrub.py make LFS DIR MIB MADE       fills DIR with files whose blocks say which they are; MADE says what is there
scrub.py flip MADE STATE N DATA...   flips a bit in N blocks of the data files below each DATA
scrub.py judge STATE FOUND           compares the findings with what was flipped; STATE is what flip wrote
scrub.py back STATE                  flips them back
scrub.py unreadable MADE FOUND       compares the findings with what cannot be read
"""
import errno
import json
import os
import random
import re
import struct
import subprocess
import sys

BLOCK = 4096
MARK = 0x7765667473637275


def block(file, number, generation):
    return struct.pack("<QIIQ", MARK, file, number, generation) + bytes((file + number + n) % 251 for n in range(8)) * 509


def make(lfs, directory, mib, made):
    random.seed(1)
    written, file, state = 0, 0, {}
    while written < mib << 20:
        path = f"{directory}/d{file % 7}/f{file}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        stripes = random.choice(["1", "1", "2", "4"])
        subprocess.run([lfs, "setstripe", "-c", stripes, "-S", "64K", path], check=True)
        blocks = random.randrange(16, 1024)
        generations = [1] * blocks
        with open(path, "r+b", buffering=0) as opened:
            opened.write(b"".join(block(file, n, 1) for n in range(blocks)))
            os.fsync(opened.fileno())
            if file % 3 == 0:
                # A part of it is written again: its blocks lie elsewhere.
                first = random.randrange(blocks - 15)
                opened.seek(first * BLOCK)
                last = min(blocks, first + random.randrange(16, 200))
                opened.write(b"".join(block(file, n, 2) for n in range(first, last)))
                generations[first:last] = [2] * (last - first)
                os.fsync(opened.fileno())
        if file % 5 == 0:
            subprocess.run([lfs, "migrate", "-c", "2", "-S", "128K", path], check=True)
        state[file] = {"path": path, "generations": generations}
        written += blocks * BLOCK
        file += 1
    with open(made, "w") as out:
        json.dump({"directory": directory, "files": state}, out)
    print(f"{file} files, {written >> 20} MiB")


def flip(made, state, count, datas):
    with open(made) as opened:
        made = json.load(opened)
    files = made["files"]
    places = {}
    everything = []
    for data in datas:
        for name in sorted(os.listdir(data)):
            path = f"{data}/{name}"
            with open(path, "rb") as opened:
                at = 0
                while chunk := opened.read(BLOCK * 256):
                    for n in range(0, len(chunk), BLOCK):
                        head = chunk[n:n + 24]
                        if len(head) < 24 or not any(head):
                            continue
                        mark, file, number, generation = struct.unpack("<QIIQ", head)
                        everything.append((path, at + n))
                        if mark == MARK:
                            places.setdefault((file, number, generation), []).append((path, at + n))
                    at += len(chunk)
    random.seed(2)
    chosen = random.sample(everything, min(count, len(everything)))
    is_chosen = set(chosen)
    must, may = [], []
    for (file, number, generation), copies in places.items():
        of = files[str(file)]
        if of["generations"][number] != generation or not is_chosen.intersection(copies):
            continue
        # What was moved lies there twice, and one of the two is free space.
        (must if is_chosen.issuperset(copies) else may).append([of["path"], number])
    flips = []
    for path, at in chosen:
        bit = random.randrange(BLOCK * 8)
        turn(path, at + bit // 8, 1 << bit % 8)
        flips.append([path, at + bit // 8, 1 << bit % 8])
    with open(state, "w") as out:
        json.dump({"must": must, "may": may, "flips": flips, "directory": made["directory"]}, out)
    print(f"{len(chosen)} blocks of {len(everything)}: {len(must)} of files, {len(may)} of files or free, the rest free")


def turn(path, at, bit):
    with open(path, "r+b", buffering=0) as opened:
        byte = os.pread(opened.fileno(), 1, at)
        os.pwrite(opened.fileno(), bytes([byte[0] ^ bit]), at)
        os.fsync(opened.fileno())


def back(state):
    with open(state) as opened:
        flips = json.load(opened)["flips"]
    for path, at, bit in flips:
        turn(path, at, bit)


def judge(state, found):
    with open(state) as opened:
        known = json.load(opened)
    named = set()
    line = re.compile(r"damaged: (/.*) bytes (\d+) to (\d+) \(object \[[0-9a-fx:]+\]:\d+ on (?:OST|MDT)[0-9a-f]{4}, bytes \d+ to \d+\)")
    mount = os.path.dirname(known["directory"])
    with open(found) as opened:
        for text in opened:
            if text.startswith(("namespace_mdts", "layout_mdts")):
                continue
            match = line.fullmatch(text.rstrip("\n"))
            assert match, text
            path, first, last = match[1], int(match[2]), int(match[3])
            named.update((mount + path, n) for n in range(first // BLOCK, last // BLOCK + 1))
    must, may = ({tuple(one) for one in known[kind]} for kind in ("must", "may"))
    missing, wrong = must - named, named - must - may
    print(f"{len(must)} damaged blocks of files, {len(named)} named, {len(missing)} not named, {len(wrong)} named wrongly")
    assert must and not missing and not wrong, (sorted(missing)[:5], sorted(wrong)[:5])


def unreadable(made, found):
    with open(made) as opened:
        made = json.load(opened)
    fail = set()
    for of in made["files"].values():
        try:
            with open(of["path"], "rb", buffering=0) as opened:
                while opened.read(1 << 20):
                    pass
        except OSError as error:
            assert error.errno == errno.EIO, error
            fail.add(of["path"])
    mount = os.path.dirname(made["directory"])
    with open(found) as opened:
        named = {mount + line.split(" bytes ")[0][len("damaged: "):] for line in opened if line.startswith("damaged: /")}
    print(f"{len(fail)} files of {len(made['files'])} cannot be read, {len(named)} are named")
    assert fail and fail == named, (sorted(fail - named)[:5], sorted(named - fail)[:5])


if __name__ == "__main__":
    command, words = sys.argv[1], sys.argv[2:]
    if command == "make":
        make(words[0], words[1], int(words[2]), words[3])
    elif command == "flip":
        flip(words[0], words[1], int(words[2]), words[3:])
    elif command == "unreadable":
        unreadable(*words)
    elif command == "judge":
        judge(*words)
    else:
        back(*words)
