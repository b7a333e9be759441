#!/usr/bin/env python3
"""Files that go to an archive and come back, through two mounts, while copytools are killed.

Usage: tests/hsm.py WEFT MOUNT_A MOUNT_B SOURCE KEY WORK [FILES [KILLS]]
"""

import atexit
import hashlib
import mmap
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

weft, a, b, source, key, work = sys.argv[1:7]
files = int(sys.argv[7]) if len(sys.argv) > 7 else 60
kills = int(sys.argv[8]) if len(sys.argv) > 8 else 3
rng = random.Random(7)
lfs = os.path.join(os.path.dirname(weft), "lfs")
archive = os.path.join(work, "archive")


def run(*words, status=0):
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == status, f"{words[:4]}: {done.returncode} {done.stdout} {done.stderr}"
    return done.stdout


def until(seconds, what, test):
    end = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.05)


class Copytool:
    def __init__(self, name, *words):
        self.log = open(os.path.join(work, f"{name}.log"), "a")
        self.process = subprocess.Popen(
            [weft, "copytool", "--hsm-root", archive, "--archive", "1", "--name", name, "--key", key, source, *words],
            stdout=self.log, stderr=self.log)
        # Whatever becomes of the test.
        atexit.register(self.kill)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self):
        self.process.terminate()
        assert self.process.wait(60) == 0, "a copytool ends by a signal"


def content(number):
    size = [0, 1, 3901, 70_000, 1 << 20, 5_000_001][number % 6]
    return random.Random(number).randbytes(size)


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def flags(path):
    return int(run(lfs, "hsm_state", path).split("(0x")[1][:8], 16)


def released(name, data):
    """A file whose data is in the archive alone."""
    path = f"{a}/{name}"
    with open(path, "wb") as file:
        file.write(data)
    run(lfs, "hsm_archive", path)
    until(60, f"{name} archived", lambda: flags(path) & 0xb == 0x9)
    run(lfs, "hsm_release", path)
    return path


def uses(top):
    """What programs do with files whose data is elsewhere; cases of Lustre's sanity-hsm."""
    data = random.Random(1).randbytes(300_000)
    # What is no data leaves the data where it is.
    path = released(f"{top}/attributes", data)
    os.chmod(path, 0o600)
    os.utime(path, ns=(10**18, 10**18 + 7))
    os.setxattr(path, "user.note", b"kept")
    os.rename(path, f"{path}.moved")
    os.link(f"{path}.moved", path)
    assert flags(path) == 0xd and os.getxattr(f"{b}/{top}/attributes", "user.note") == b"kept"
    with open(f"{b}/{top}/attributes", "rb") as file:
        assert file.read() == data
    assert os.stat(path).st_mtime_ns == 10**18 + 7 and flags(path) == 0x9
    # A handle and a mapping of before see the data afterwards.
    path = f"{a}/{top}/open"
    with open(path, "wb") as file:
        file.write(data)
    run(lfs, "hsm_archive", path)
    until(60, "archived", lambda: flags(path) & 0xb == 0x9)
    with open(f"{b}/{top}/open", "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert mapped[:5] == data[:5]
        run(lfs, "hsm_release", path)
        assert flags(path) == 0xd
        assert mapped[200_000:200_100] == data[200_000:200_100]
        assert file.read() == data
    # Programs, copies, holes.
    path = f"{a}/{top}/program"
    shutil.copy("/bin/true", path)
    run(lfs, "hsm_archive", path)
    until(60, "archived", lambda: flags(path) & 0xb == 0x9)
    run(lfs, "hsm_release", path)
    run(f"{b}/{top}/program")
    path = f"{a}/{top}/sparse"
    with open(path, "wb") as file:
        file.truncate(64 << 20)
        file.seek(40 << 20)
        file.write(data)
    run(lfs, "hsm_archive", path)
    until(60, "archived", lambda: flags(path) & 0xb == 0x9)
    blocks = os.stat(path).st_blocks
    run(lfs, "hsm_release", path)
    run("cp", path, f"{a}/{top}/copy")
    assert digest(f"{a}/{top}/copy") == digest(path)
    assert os.stat(path).st_blocks <= blocks + 8, "holes stay holes"
    # Changes.
    path = released(f"{top}/cut", data)
    os.truncate(f"{b}/{top}/cut", 1000)
    with open(path, "rb") as file:
        assert file.read() == data[:1000]
    assert flags(path) == 0xb
    path = released(f"{top}/emptied", data)
    with open(f"{b}/{top}/emptied", "wb") as file:
        file.write(b"new")
    with open(path, "rb") as file:
        assert file.read() == b"new"
    # Names that go, while somebody waits for the data, too.
    path = released(f"{top}/gone", data)
    os.unlink(f"{b}/{top}/gone")
    path = released(f"{top}/waited", data)
    with open(path, "rb") as file:
        os.unlink(f"{b}/{top}/waited")
        assert file.read() == data
    # Two readers, one restore.
    path = released(f"{top}/twice", data)
    with ThreadPoolExecutor(2) as both:
        got = list(both.map(digest, [path, f"{b}/{top}/twice"]))
    assert got == [hashlib.sha256(data).hexdigest()] * 2
    refused = subprocess.run([lfs, "migrate", "-c", "1", released(f"{top}/moved", data)], capture_output=True, text=True)
    assert refused.returncode == 1, refused


def policies(top):
    """Rules that archive and release."""
    rules = os.path.join(work, "hsm.toml")
    with open(rules, "w") as file:
        file.write("""[[rule]]
name = "kept"
files = "-name 'q*' -size +0"
action = "archive"

[[rule]]
name = "away"
files = "-name 'q*' -size +0"
action = "release"
""")
    paths = [f"{a}/{top}/q{n}" for n in range(5)]
    for path in paths:
        with open(path, "wb") as file:
            file.write(b"x" * 5000)
    run(weft, "policy", "run", rules, f"{a}/{top}")
    until(60, "archived", lambda: all(flags(path) & 0xb == 0x9 for path in paths))
    run(weft, "policy", "run", rules, f"{a}/{top}")
    assert sorted(run(lfs, "find", f"{a}/{top}", "-name", "q*", "--layout", "released").split()) == paths


def main():
    top = "hsm"
    os.mkdir(f"{a}/{top}")
    names = [f"{top}/f{n}" for n in range(files)]
    expected = {}
    for number, name in enumerate(names):
        with open(f"{a}/{name}", "wb") as file:
            file.write(content(number))
        expected[name] = hashlib.sha256(content(number)).hexdigest()
    one = f"{a}/{names[3]}"
    # Words and outputs.
    assert run(lfs, "hsm_state", one) == f"{one}: (0x00000000)\n"
    refused = subprocess.run([lfs, "hsm_release", one], capture_output=True, text=True)
    assert refused.returncode == 1 and "no archive has a copy" in refused.stderr, refused
    # An archive that is not mounted is an empty directory: nothing may be written there.
    os.mkdir(archive)
    refused = subprocess.run([weft, "copytool", "--hsm-root", archive, "--key", key, source], capture_output=True, text=True)
    assert refused.returncode == 1 and "there is no archive in it" in refused.stderr, refused
    tools = [Copytool("one", "--init")]
    until(30, "the archive is made", lambda: os.path.exists(f"{archive}/.weft-archive"))
    tools.append(Copytool("two"))
    run(lfs, "hsm_archive", one)
    until(60, "archived", lambda: flags(one) == 0x9)
    assert run(lfs, "hsm_state", one) == f"{one}: (0x00000009) exists archived, archive_id: 1\n"
    assert run(lfs, "hsm_action", one) == f"{one}: NOOP\n"
    before = os.stat(one)
    run(lfs, "hsm_release", one)
    after = os.stat(f"{b}/{names[3]}")
    assert (after.st_size, after.st_mtime_ns, after.st_blocks) == (before.st_size, before.st_mtime_ns, 1), after
    assert run(lfs, "hsm_state", one) == f"{one}: (0x0000000d) released exists archived, archive_id: 1\n"
    assert "raid0,released" in run(lfs, "getstripe", one)
    assert run(lfs, "find", f"{a}/{top}", "--layout", "released") == f"{one}\n"
    assert run(lfs, "getstripe", "-c", one).strip() == "1"
    assert digest(f"{b}/{names[3]}") == expected[names[3]]
    assert os.stat(one).st_mtime_ns == before.st_mtime_ns
    with open(f"{b}/{names[3]}", "r+b") as file:
        file.write(b"changed")
    assert flags(one) == 0xb, "whoever writes makes the copy an old one"
    refused = subprocess.run([lfs, "hsm_release", one], capture_output=True, text=True)
    assert refused.returncode == 1 and "opened for writing since" in refused.stderr, refused
    expected[names[3]] = digest(one)
    uses(top)
    policies(top)
    # All of them, with copytools that are killed.
    waiting = ThreadPoolExecutor(8)
    for round in range(2):
        for at in range(0, len(names), 20):
            run(lfs, "hsm_archive", "--archive", "1", *(f"{a}/{name}" for name in names[at:at + 20]))
        for kill in range(kills):
            time.sleep(rng.random() * 0.5)
            tools[kill % 2].kill()
            tools[kill % 2] = Copytool(["one", "two"][kill % 2])
        until(180, "all archived", lambda: all(flags(f"{a}/{name}") & 0xb == 0x9 for name in names))
        for name in names:
            run(lfs, "hsm_release", f"{[a, b][rng.random() < 0.5]}/{name}")
        assert all(flags(f"{a}/{name}") & 0x4 for name in names)
        reads = {name: waiting.submit(digest, f"{[a, b][rng.random() < 0.5]}/{name}") for name in names}
        for kill in range(kills):
            time.sleep(rng.random() * 0.5)
            tools[kill % 2].kill()
            tools[kill % 2] = Copytool(["one", "two"][kill % 2])
        for name, read in reads.items():
            assert read.result(180) == expected[name], f"{name} has other data"
        # Nobody has to read what is empty.
        left = run(lfs, "find", f"{a}/{top}", "--layout", "released", "-name", "f*").split()
        assert all(os.path.getsize(name) == 0 for name in left), left
        # Half of them changes, so that the next round has something to copy.
        for name in names[::2]:
            with open(f"{b}/{name}", "ab") as file:
                file.write(b"more")
            expected[name] = digest(f"{a}/{name}")
    # A damaged copy is not taken for the data.
    victim = f"{a}/{names[4]}"
    run(lfs, "hsm_archive", victim)
    until(60, "archived", lambda: flags(victim) == 0x9)
    run(lfs, "hsm_release", victim)
    fid = run(lfs, "path2fid", victim).strip().strip("[]")
    copies = [os.path.join(at, name) for at, _, found in os.walk(archive) for name in found
              if name.startswith(f"{fid}.") and not name.endswith(".json")]
    whole = max(copies, key=os.path.getmtime)
    with open(whole, "r+b") as file:
        file.seek(500_000)
        byte = file.read(1)
        file.seek(500_000)
        file.write(bytes([byte[0] ^ 1]))
    try:
        digest(victim)
        raise AssertionError("a damaged copy was restored")
    except OSError as error:
        assert error.errno == 5, error
    with open(whole, "r+b") as file:
        file.seek(500_000)
        file.write(byte)
    assert digest(victim) == expected[names[4]]
    # Whoever waits can be killed, and an action can be canceled.
    for tool in tools:
        tool.end()
    run(lfs, "hsm_archive", f"{a}/{names[0]}")
    assert run(lfs, "hsm_action", f"{a}/{names[0]}").endswith("ARCHIVE waiting\n")
    run(lfs, "hsm_cancel", f"{a}/{names[0]}")
    assert run(lfs, "hsm_action", f"{a}/{names[0]}").endswith("NOOP\n")
    run(lfs, "hsm_release", victim)
    reader = subprocess.Popen(["cat", victim], stdout=subprocess.DEVNULL)
    until(30, "a restore is asked for", lambda: "RESTORE" in run(lfs, "hsm_action", victim))
    reader.kill()
    reader.wait(30)
    last = Copytool("three")
    until(60, "restored", lambda: flags(victim) == 0x9)
    run(lfs, "hsm_remove", victim)
    until(60, "removed", lambda: flags(victim) == 0)
    assert digest(victim) == expected[names[4]]
    last.end()
    print(f"{files} files went and came back twice, {4 * kills} kills of copytools")


main()
