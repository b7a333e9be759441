#!/usr/bin/env python3
"""One flipped bit in one file of a stopped target, for every kind of file; nothing may be silent.

Of a file system that was killed (so that its logs have records) or stopped in order a copy is made; in each trial one bit of
one file is turned around. Then `weft check --data` reads all targets, `weft up` starts them, and everything that was fsynced is
read. Right: all of it reads back right. Right, too: the check, the start or a read says that something is wrong. A failure:
wrong bytes or a missing file without a word, a start or a read that does not come back, or a panic.
"""

import collections
import hashlib
import os
import re

import box as b
from cluster import Up, copy_sparse, target_directories
from promises import pattern, sync_directory, write_all

FILES = 20
PANIC = re.compile(r"panicked at|assertion .* failed")
# A file is flipped where it has something, but for one time in ten.
ANYWHERE = 0.1


def contents(number):
    """What a file has to contain."""
    return pattern(f"flip {number}", [100, 5000, 70_000, 0, 1_200_000][number % 5])


def fill(mount):
    """Files, names, attributes; all of them fsynced."""
    os.mkdir(f"{mount}/dir")
    for number in range(FILES):
        path = f"{mount}/dir/f{number}"
        with open(path, "xb", buffering=0) as file:
            write_all(file.fileno(), contents(number))
            os.setxattr(path, "user.number", str(number).encode())
            os.fchmod(file.fileno(), 0o600 + number % 8)
            os.fsync(file.fileno())
    os.symlink("dir/f0", f"{mount}/link")
    os.link(f"{mount}/dir/f1", f"{mount}/hard")
    for number in range(FILES, FILES + 5):
        with open(f"{mount}/dir/gone{number}", "wb") as file:
            file.write(b"gone")
        os.unlink(f"{mount}/dir/gone{number}")
    sync_directory(f"{mount}/dir")
    sync_directory(mount)


def read_back(mount):
    """(what is silently wrong, what says so)."""
    silent, told = [], []

    def look(what, wanted, function):
        try:
            found = function()
        except FileNotFoundError:
            silent.append(f"{what} is missing")
        except OSError as error:
            told.append(f"{what}: {error.strerror}")
        else:
            if found != wanted:
                silent.append(f"{what}: {found if len(str(found)) < 60 else 'other bytes'}, not as it was")
    look("the listing", [f"f{n}" for n in range(FILES)], lambda: sorted(os.listdir(f"{mount}/dir"), key=lambda name: int(name[1:] or 0)
                                                                      if name[1:].isdigit() else 10 ** 9))
    for number in range(FILES):
        path = f"{mount}/dir/f{number}"
        digest = hashlib.sha256(contents(number)).hexdigest()

        def read(path=path):
            with open(path, "rb") as file:
                return hashlib.sha256(file.read()).hexdigest()
        look(f"f{number}", digest, read)
        look(f"the xattr of f{number}", str(number).encode(), lambda path=path: os.getxattr(path, "user.number"))
        look(f"the mode of f{number}", 0o600 + number % 8, lambda path=path: os.stat(path).st_mode & 0o777)
    look("the link", "dir/f0", lambda: os.readlink(f"{mount}/link"))
    look("the hard link", os.stat(f"{mount}/dir/f1").st_ino if not silent and not told else None,
         lambda: os.stat(f"{mount}/hard").st_ino if not silent and not told else None)
    return silent, told


def kind_of(path):
    """The kind of a target's file (docs/disk.md), without its numbers and its target's index."""
    return re.sub(r"\d+", "N", re.sub(r"[0-9a-f]{8,16}", "N", path))


def choose_bit(box, path):
    """(offset, bit) in a file."""
    size = os.path.getsize(path)
    if box.random.random() < ANYWHERE:
        return box.random.randrange(size), box.random.randrange(8)
    used = []
    with open(path, "rb") as file:
        at = 0
        while True:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:
                break
            os.lseek(file.fileno(), at, os.SEEK_SET)
            block = file.read(4096)
            file.seek(0)
            if any(block):
                used.append((at, block))
            at += 4096
    if not used:
        return box.random.randrange(size), box.random.randrange(8)
    # Half of them in the first blocks, where there are headers.
    at, block = box.random.choice(used if box.random.random() < 0.5 else used[:8])
    return at + box.random.choice([n for n, byte in enumerate(block) if byte]), box.random.randrange(8)


def flip(path, offset, bit):
    """Turns one bit around."""
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1 << bit]))


def trial(box, number, master, said):
    """One bit. Counts into `said` how it came out."""
    work = box.path("trial")
    copy_sparse(master, work)
    kinds = collections.defaultdict(list)
    for directory, _, files in os.walk(work):
        for name in files:
            path = os.path.join(directory, name)
            # What is for people only, and the tools' own.
            if os.path.getsize(path) and "/evictions/" not in path:
                kinds[kind_of(os.path.relpath(path, work))].append(path)
    kind = sorted(kinds)[number % len(kinds)]
    path = box.random.choice(sorted(kinds[kind]))
    offset, bit = choose_bit(box, path)
    flip(path, offset, bit)
    what = f"{os.path.relpath(path, work)} bit {bit} of byte {offset} (state {os.path.basename(master)})"
    told = check(box, work, what)
    outcome = start_and_read(box, work, what, told)
    said[outcome] += 1
    said[f"kind {kind}"] += 1
    box.tried()


def check(box, work, what):
    """Whether `weft check` says something; on a copy, because it may tidy."""
    copy = box.path("checked")
    copy_sparse(work, copy)
    told = False
    for target in target_directories(copy) or [copy]:
        done = b.attempt(box.weft, "check", "--data", target)
        if PANIC.search(done.stdout + done.stderr):
            box.fail(f"{what}: weft check panics: {PANIC.search(done.stdout + done.stderr).group()}")
        if done.returncode == 124:
            box.fail(f"{what}: weft check does not end")
        told = told or done.returncode not in (0, 124)
    # A target whose label is not found as one is no target any more.
    return told or len(target_directories(copy)) != len(target_directories(work))


def start_and_read(box, work, what, told):
    """How it came out, in words."""
    up = Up(box, "flipped", data=work)
    log = box.path("flipped.log")
    with open(log, "wb"):
        pass
    before = {name: os.path.getsize(f"/var/log/weft/{name}") for name in os.listdir("/var/log/weft")}
    try:
        if not up.try_start(seconds=60):
            if "status 124" in up.said:
                box.fail(f"{what}: weft up does not come back")
                return "hangs"
            if PANIC.search(up.said):
                box.fail(f"{what}: weft up panics: {up.said[-300:]}")
            if not re.search(r"[a-z]{3,} [a-z]{2,}", up.said.split(":", 1)[1]):
                box.fail(f"{what}: weft up does not start and says nothing: {up.said!r}")
            return "refused at the start"
        # Files on an OST that is not served wait for it.
        if "is not served: " in b.attempt(box.weft, "status", up.mount).stdout:
            return "an OST refused, the others served"
        silent, said = b.Bounded(read_back, 60, "reading all back")(up.mount)
    except TimeoutError as error:
        box.fail(f"{what}: {error}")
        return "hangs"
    except RuntimeError as error:
        said, silent = [str(error)], []
    finally:
        stop_whatever(up)
    logs = new_lines(before)
    if PANIC.search(logs):
        box.fail(f"{what}: a panic: {PANIC.search(logs).group()}")
    if silent and not (told or said):
        box.fail(f"{what}: SILENT: {silent[0]} ({len(silent)} things)")
        return "silent"
    if silent:
        return "wrong, and told by " + ("the check only" if told and not said else "a read")
    return "told by a read" if said else "told by the check, all read back" if told else "harmless"


def new_lines(before):
    """What mounts have logged since."""
    text = ""
    for name in os.listdir("/var/log/weft"):
        with open(f"/var/log/weft/{name}", "rb") as file:
            file.seek(before.get(name, 0))
            text += file.read().decode(errors="replace")
    return text


def stop_whatever(up):
    """Ends it, however far it got: also one that was not mounted."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/cmdline", "rb") as line:
                    if up.data.encode() in line.read().split(b"\0"):
                        b.kill(int(entry))
            except OSError:
                pass
    if up.pid:
        b.kill(up.pid)
        up.pid = None
    from cluster import drop_mount
    drop_mount(up.mount)


def body(box):
    """The attack."""
    masters = []
    for name in ("killed", "stopped"):
        up = Up(box, "flipped", data=box.path("made"))
        up.start()
        fill(up.mount)
        if name == "killed":
            up.kill()
        else:
            up.stop()
            up.start()
            up.stop()
        os.rename(box.path("made"), box.path(name))
        masters.append(box.path(name))
    said = collections.Counter()
    number = 0
    while number < box.options.trials and not box.time_is_up():
        trial(box, number // 2, masters[number % 2], said)
        number += 1
    kinds = [key for key in said if key.startswith("kind ")]
    box.note(f"bits in {len(kinds)} kinds of files: " + ", ".join(
        f"{count} {outcome}" for outcome, count in sorted(said.items()) if not outcome.startswith("kind ")))


if __name__ == "__main__":
    b.attack("flips", body, trials=200, seconds=240)
