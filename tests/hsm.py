#!/usr/bin/env python3
"""Files that go to an archive and come back, through two mounts, while copytools are killed.

The archive is a directory, or with S3_SERVER, a program (tools/install-s3.sh), a bucket of that server, which is stopped and killed, too.

Usage: tests/hsm.py WEFT MOUNT_A MOUNT_B SOURCE KEY WORK [FILES [KILLS [S3_SERVER]]]
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

import s3

weft, a, b, source, key, work = sys.argv[1:7]
files = int(sys.argv[7]) if len(sys.argv) > 7 else 60
kills = int(sys.argv[8]) if len(sys.argv) > 8 else 3
rng = random.Random(7)
lfs = os.path.join(os.path.dirname(weft), "lfs")


def run(*words, status=0):
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == status, f"{words[:4]}: {done.returncode} {done.stdout} {done.stderr}"
    return done.stdout


def until(seconds, what, test):
    end = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.05)


class Directory:
    """An archive in a directory."""

    def __init__(self):
        self.root = os.path.join(work, "archive")

    def prepare(self):
        # An archive that is not mounted is an empty directory: nothing may be written there.
        os.mkdir(self.root)
        self.refuses("there is no archive in it")

    def options(self, name):
        return ["--hsm-root", self.root], {}

    def refuses(self, why, words=None, env=None):
        """A copytool does not begin, and says why."""
        usual, usual_env = self.options("refused")
        env = {**os.environ, **(usual_env if env is None else env)}
        refused = subprocess.run([weft, "copytool", *(words or usual), "--key", key, source], capture_output=True, text=True, env=env,
                                 timeout=120)
        assert refused.returncode == 1 and why in refused.stderr and refused.stderr.count("\n") == 1, refused

    def is_made(self):
        return os.path.exists(f"{self.root}/.weft-archive")

    def copies(self, fid):
        return [os.path.join(at, name) for at, _, found in os.walk(self.root) for name in found
                if name.startswith(f"{fid}.") and not name.endswith(".json")]

    def get(self, copy):
        with open(copy, "rb") as file:
            return file.read()

    def put(self, copy, data):
        with open(copy, "wb") as file:
            file.write(data)

    def delete(self, copy):
        os.unlink(copy)

    def has_no_secrets(self):
        pass


class Bucket(Directory):
    """An archive in a bucket."""

    def __init__(self, program):
        self.server = s3.Server(program, work)
        atexit.register(self.server.kill)
        self.root = f"s3://{self.server.bucket}/some/where"
        self.credentials = os.path.join(work, "credentials")
        self.environment = {"AWS_ACCESS_KEY_ID": s3.ID, "AWS_SECRET_ACCESS_KEY": s3.SECRET}

    def prepare(self):
        self.server.start()
        self.refuses("there is no such bucket")
        self.server.ask("PUT")
        self.refuses("there is no archive below the prefix")
        with open(self.credentials, "w") as file:
            file.write(f"[default]\naws_access_key_id = {s3.ID}\naws_secret_access_key = {s3.SECRET}\n")
        os.chmod(self.credentials, 0o640)
        words = ["--hsm-root", self.root, "--s3-endpoint", self.server.endpoint]
        self.refuses("others can read the credentials", [*words, "--s3-credentials", self.credentials])
        os.chmod(self.credentials, 0o600)
        self.refuses("there are no credentials", words, {})
        if self.server.checks:
            self.refuses("access is denied", words, {**self.environment, "AWS_SECRET_ACCESS_KEY": "wrong"})
            # Which versitygw takes for something that is not there.
            self.refuses("No user exists", words, {**self.environment, "AWS_ACCESS_KEY_ID": "wrong"})
        self.refuses("it cannot be asked", ["--hsm-root", self.root, "--s3-endpoint", "http://127.0.0.1:1"])
        # What is somebody else's is no archive.
        self.server.put("some/other", b"")
        self.server.put("some/where/other", b"")
        usual, _ = self.options("refused")
        self.refuses("--init needs an empty one", [*usual, "--init"])
        self.server.delete("some/where/other")

    def options(self, name):
        words = ["--hsm-root", self.root, "--s3-endpoint", self.server.endpoint]
        # Either way.
        if name == "two":
            return [*words, "--s3-credentials", self.credentials], {}
        return words, self.environment

    def is_made(self):
        return any(key.endswith("/.weft-archive") for key in self.server.keys())

    def copies(self, fid):
        return [key for key in self.server.keys() if f"/{fid}." in key and not key.endswith(".json")]

    def get(self, copy):
        return self.server.get(copy)

    def put(self, copy, data):
        self.server.put(copy, data)

    def delete(self, copy):
        self.server.delete(copy)

    def has_no_secrets(self):
        for name in os.listdir(work):
            if name.endswith(".log"):
                with open(os.path.join(work, name), "rb") as file:
                    text = file.read()
                assert s3.SECRET.encode() not in text and b"Signature" not in text, name


archive = Bucket(sys.argv[9]) if len(sys.argv) > 9 else Directory()


class Copytool:
    def __init__(self, name, *words):
        self.log = open(os.path.join(work, f"{name}.log"), "a")
        options, env = archive.options(name)
        # Another root replaces the usual one.
        if "--hsm-root" in words:
            options = []
        self.process = subprocess.Popen(
            [weft, "copytool", *options, "--archive", "1", "--name", name, "--key", key, source, *words],
            stdout=self.log, stderr=self.log, env={**os.environ, **env})
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


def refuses_to_read(path):
    try:
        digest(path)
    except OSError as error:
        assert error.errno == 5, error
        return
    raise AssertionError("a damaged copy was restored")


def damages(top):
    """A damaged copy is not taken for the data."""
    data = random.Random(5).randbytes(1 << 20)
    path = released(f"{top}/victim", data)
    fid = run(lfs, "path2fid", path).strip().strip("[]")
    [copy] = archive.copies(fid)
    for name, damaged in [
        (copy, data[:500_000] + bytes([data[500_000] ^ 1]) + data[500_001:]),
        (copy, data[:-1]),
        (copy, data + b"\0"),
        (f"{copy}.json", b"{}"),
        (f"{copy}.json", None),
    ]:
        whole = archive.get(name)
        if damaged is None:
            archive.delete(name)
        else:
            archive.put(name, damaged)
        refuses_to_read(path)
        assert flags(path) == 0xd
        archive.put(name, whole)
    # Nor is a whole copy of another file.
    path_of_other = released(f"{top}/other-victim", data[::-1])
    fid = run(lfs, "path2fid", path_of_other).strip().strip("[]")
    [other] = archive.copies(fid)

    def swap():
        for end in ["", ".json"]:
            one, two = archive.get(f"{copy}{end}"), archive.get(f"{other}{end}")
            archive.put(f"{copy}{end}", two)
            archive.put(f"{other}{end}", one)

    swap()
    refuses_to_read(path)
    refuses_to_read(path_of_other)
    swap()
    assert digest(path_of_other) == hashlib.sha256(data[::-1]).hexdigest()
    with open(path, "rb") as file:
        assert file.read() == data


def outages(top):
    """What a bucket has that a directory has not: parts, and a server that stops and ends in the middle."""
    server = archive.server
    data = random.Random(6).randbytes(30 << 20)
    path = f"{a}/{top}/parts"
    with open(path, "wb") as file:
        file.write(data)

    def interrupted(pause, asked, seconds, over):
        end = ThreadPoolExecutor(1).submit(asked)
        time.sleep(pause)
        server.signal(signal.SIGSTOP)
        time.sleep(1)
        server.signal(signal.SIGCONT)
        if server.checks:
            server.kill()
            time.sleep(2)
            server.start()
        until(seconds, "over", over)
        return end.result(seconds)

    for pause in [0.0, 0.3, 0.6]:
        with open(path, "ab") as file:
            file.write(b"more")
        data += b"more"
        interrupted(pause, lambda: run(lfs, "hsm_archive", path), 120, lambda: flags(path) & 0xb == 0x9)
        run(lfs, "hsm_release", path)
        got = interrupted(pause, lambda: digest(f"{b}/{top}/parts"), 120, lambda: True)
        assert got == hashlib.sha256(data).hexdigest()
    # Holes are not sent, and come back as holes.
    path = f"{a}/{top}/huge"
    with open(path, "wb") as file:
        file.truncate(1 << 40)
        file.seek(700 << 30)
        file.write(data[:1 << 20])
    begin = time.monotonic()
    run(lfs, "hsm_archive", path)
    until(60, "archived", lambda: flags(path) & 0xb == 0x9)
    fid = run(lfs, "path2fid", path).strip().strip("[]")
    [copy] = archive.copies(fid)
    assert len(archive.get(copy)) < 2 << 20, "holes are sent"
    run(lfs, "hsm_release", path)
    with open(f"{b}/{top}/huge", "rb") as file:
        file.seek(700 << 30)
        assert file.read(1 << 20) == data[:1 << 20]
        assert os.lseek(file.fileno(), 0, os.SEEK_DATA) >= 699 << 30
    print(f"1 TiB with 1 MiB of data went and came back in {time.monotonic() - begin:.1f} s")
    os.unlink(path)
    run(lfs, "hsm_remove", f"{a}/{top}/parts")
    fid = run(lfs, "path2fid", f"{a}/{top}/parts").strip().strip("[]")
    until(60, "removed", lambda: not any(fid in key for key in server.keys() if key.endswith(".json")))


def over_tls(path, expected):
    """The server is asked by https, and has to be whom it says it is."""
    server = archive.server
    run(lfs, "hsm_release", path)
    server.kill()
    authority = server.secure()
    server.start()
    words = ["--hsm-root", archive.root, "--s3-endpoint", server.endpoint.replace("http:", "https:")]
    archive.refuses("invalid peer certificate", words)
    tool = Copytool("secure", *words, "--s3-ca", authority)
    assert digest(path) == expected
    tool.end()
    server.kill()
    server.certificate = []
    server.start()


def main():
    top = "hsm-s3" if isinstance(archive, Bucket) else "hsm"
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
    archive.prepare()
    tools = [Copytool("one", "--init")]
    until(30, "the archive is made", archive.is_made)
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
    damages(top)
    if isinstance(archive, Bucket):
        outages(top)
    victim = f"{a}/{names[4]}"
    run(lfs, "hsm_archive", victim)
    until(60, "archived", lambda: flags(victim) == 0x9)
    # Whoever waits can be killed, and an action can be canceled.
    for tool in tools:
        tool.end()
    if isinstance(archive, Bucket) and archive.server.checks:
        over_tls(victim, expected[names[4]])
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
    archive.has_no_secrets()
    print(f"{files} files went and came back twice, {4 * kills} kills of copytools")


main()
