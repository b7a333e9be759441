"""The load of faults.py: on each mount one process writes and reads blocks, and one extracts, compares and removes trees.

Every byte of a block says who wrote it, where, and the how-manieth version of the block it is. Begun, completed and
fsynced versions are in memory that all processes share, so a reader knows which versions it may see of a block that
the other mount writes at that moment: never one older than what was completed when the read began. An older one is
counted as stale; if it is still there when everybody has stopped and all is read again, it is lost.
"""

import errno
import hashlib
import multiprocessing
import os
import random
import struct
import threading
import time

fork = multiprocessing.get_context("fork")

SECTOR = 4096
BLOCK_SECTORS = 24
BLOCK = SECTOR * BLOCK_SECTORS
BLOCKS = 24
HEAD = struct.Struct("<QQQQ")
# A whole round of verification of what little data there is; longer means that somebody hangs.
BARRIER_SECONDS = 150
WORKERS_PER_MOUNT = 2
SAMPLES = 40


def sector(owner, offset, version, seed):
    """What a sector of that version holds: its head, and a digest of it again and again. Version 0 is a hole."""
    if version == 0:
        return bytes(SECTOR)
    head = HEAD.pack(owner + 1, offset, version, seed)
    return head + hashlib.blake2b(head, digest_size=32).digest() * ((SECTOR - HEAD.size) // 32)


def block(owner, number, version, seed):
    """All sectors of a block."""
    start = number * BLOCK
    return b"".join(sector(owner, start + n * SECTOR, version, seed) for n in range(BLOCK_SECTORS))


class Shared:
    """What workers and the one who makes the faults know of each other."""

    def __init__(self, mounts, seed):
        count = mounts * WORKERS_PER_MOUNT
        cells = mounts * BLOCKS
        self.mounts, self.seed, self.count = mounts, seed, count
        self.begun = fork.RawArray("Q", cells)
        self.completed = fork.RawArray("Q", cells)
        self.synced = fork.RawArray("Q", cells)
        self.lock = fork.Lock()
        # Per worker: operations so far, start of the one under way (0: none), the longest since the last reset, the
        # longest that ended after `back`, counted from `back`.
        self.done = fork.RawArray("Q", count)
        self.since = fork.RawArray("d", count)
        self.longest = fork.RawArray("d", count)
        self.after = fork.RawArray("d", count)
        self.back = fork.RawValue("d", 0.0)
        self.errors = fork.RawValue("Q", 0)
        self.full = fork.RawValue("Q", 0)
        self.lost = fork.RawValue("Q", 0)
        self.stale = fork.RawValue("Q", 0)
        self.may_be_full = fork.RawValue("b", 0)
        self.round = fork.RawValue("Q", 0)
        self.end = fork.RawValue("b", 0)
        self.barrier = fork.Barrier(count + 1)
        self.said = fork.SimpleQueue()

    def reset(self):
        """A new row begins."""
        with self.lock:
            self.back.value = 0.0
            self.errors.value = self.full.value = self.lost.value = self.stale.value = 0
            for worker in range(self.count):
                self.longest[worker] = self.after[worker] = 0.0

    def say(self, text):
        """Something for the report."""
        self.said.put(f"{time.strftime('%H:%M:%S', time.gmtime())} {text}")


class Worker:
    """One process of the load; subclasses say what it does in one turn."""

    def __init__(self, shared, number, mount, top):
        self.shared, self.number, self.mount, self.top = shared, number, mount, top
        self.rng = random.Random(shared.seed * 100 + number)
        self.name = f"{type(self).__name__.lower()} on {os.path.basename(top)}"
        self.round = 0
        self.stopped = False

    def timed(self, function, *args):
        """Does one operation. A failure is counted, and raised for the turn to end."""
        shared, me = self.shared, self.number
        start = time.monotonic()
        shared.since[me] = start
        try:
            return function(*args)
        except OSError as failed:
            if failed.errno == errno.ENOSPC and shared.may_be_full.value:
                with shared.lock:
                    shared.full.value += 1
            else:
                with shared.lock:
                    shared.errors.value += 1
                what = [arg if not isinstance(arg, bytes) else f"{len(arg)} bytes" for arg in args]
                shared.say(f"{self.name}: {function.__name__}{tuple(what)}: {failed}")
            raise
        finally:
            end = time.monotonic()
            with shared.lock:
                shared.since[me] = 0.0
                shared.done[me] += 1
                shared.longest[me] = max(shared.longest[me], end - start)
                if shared.back.value and end > shared.back.value:
                    shared.after[me] = max(shared.after[me], end - max(start, shared.back.value))

    def wrong(self, bytes_wrong, text):
        """Bytes that are not what they have to be."""
        with self.shared.lock:
            self.shared.lost.value += bytes_wrong
        self.shared.say(f"{self.name}: {text}")

    def run(self):
        """Turns until the end, with a stop at each round of verification."""
        shared = self.shared
        self.open()
        while not shared.end.value:
            if shared.round.value > self.round:
                self.round = shared.round.value
                shared.barrier.wait(BARRIER_SECONDS)
                self.settle()
                shared.barrier.wait(BARRIER_SECONDS)
                self.stopped = True
                try:
                    self.verify()
                except OSError:
                    pass
                self.stopped = False
                shared.barrier.wait(BARRIER_SECONDS)
                continue
            try:
                self.turn()
            except OSError:
                self.recover()

    def open(self):
        """Before the first turn."""

    def settle(self):
        """When everybody has stopped."""

    def verify(self):
        """When everybody has settled."""

    def recover(self):
        """After a turn that failed."""


class Blocks(Worker):
    """Writes its own file in blocks, fsyncs now and then, reads what it and the others have written."""

    def path(self, owner):
        """The file of a mount."""
        return os.path.join(self.top, f"blocks.{owner}")

    def open(self):
        self.own = os.open(self.path(self.mount), os.O_RDWR | os.O_CREAT, 0o644)
        self.others = {}

    def other(self, owner):
        """The file of another mount, kept open."""
        if owner not in self.others:
            self.others[owner] = self.timed(os.open, self.path(owner), os.O_RDONLY)
        return self.others[owner]

    def turn(self):
        number, dice = self.rng.randrange(BLOCKS), self.rng.random()
        if dice < 0.5:
            self.write(number)
            if self.rng.random() < 0.15:
                self.fsync()
        elif dice < 0.7:
            self.check(self.own, self.mount, number)
        elif dice < 0.98:
            owner = self.rng.randrange(self.shared.mounts)
            if owner != self.mount:
                self.check(self.other(owner), owner, number)
        else:
            old, self.own = self.own, -1
            try:
                self.timed(os.close, old)
            finally:
                self.own = self.timed(os.open, self.path(self.mount), os.O_RDWR)

    def recover(self):
        if self.own < 0:
            self.own = os.open(self.path(self.mount), os.O_RDWR)
        if self.shared.may_be_full.value:
            self.unsure()

    def unsure(self):
        """A full disk was reported: what was not fsynced before is there or not, as on a local file system."""
        for cell in range(self.mount * BLOCKS, (self.mount + 1) * BLOCKS):
            self.shared.completed[cell] = self.shared.synced[cell]

    def settle(self):
        # What a full disk refuses is told here at the latest.
        while self.shared.may_be_full.value:
            try:
                return self.fsync()
            except OSError:
                self.unsure()

    def write(self, number):
        """The next version of a block."""
        shared, cell = self.shared, self.mount * BLOCKS + number
        version = shared.begun[cell] + 1
        shared.begun[cell] = version
        data, at = block(self.mount, number, version, shared.seed), number * BLOCK
        while data:
            wrote = self.timed(os.pwrite, self.own, data, at)
            data, at = data[wrote:], at + wrote
        shared.completed[cell] = version

    def fsync(self):
        """What was completed before it is promised after it."""
        mine = range(self.mount * BLOCKS, (self.mount + 1) * BLOCKS)
        completed = [self.shared.completed[cell] for cell in mine]
        self.timed(os.fsync, self.own)
        for cell, version in zip(mine, completed):
            self.shared.synced[cell] = version

    def check(self, fd, owner, number):
        """Reads a block; each sector is of a version that it may be of."""
        shared, cell = self.shared, owner * BLOCKS + number
        synced = shared.synced[cell]
        oldest = synced if shared.may_be_full.value else shared.completed[cell]
        data, at = b"", number * BLOCK
        while len(data) < BLOCK:
            more = self.timed(os.pread, fd, BLOCK - len(data), at + len(data))
            if not more:
                break
            data += more
        newest = shared.begun[cell]
        # What lies behind the end reads as a hole, whose version is 0.
        data = data.ljust(BLOCK, b"\0")
        bad, old = [], []
        for n in range(BLOCK_SECTORS):
            got = data[n * SECTOR:(n + 1) * SECTOR]
            version = HEAD.unpack_from(got)[2]
            if version > newest or got != sector(owner, at + n * SECTOR, version, shared.seed):
                bad.append((n, version))
            elif version < oldest:
                old.append((n, version))
        place = f"blocks.{owner} block {number}"
        allowed = f"allowed {oldest}..={newest}, {synced} was fsynced"
        if bad or old and self.stopped:
            both = sorted(bad + old)
            self.wrong(len(both) * SECTOR, f"{place}: {len(both)} sectors are lost or changed: {both[:4]} (sector, "
                       f"version), {allowed}")
        elif old:
            with shared.lock:
                shared.stale.value += 1
            shared.say(f"{self.name}: {place}: {len(old)} sectors are stale: {old[:4]} (sector, version), {allowed}")

    def verify(self):
        """Every block of every file."""
        for owner in range(self.shared.mounts):
            for number in range(BLOCKS):
                self.check(self.own if owner == self.mount else self.other(owner), owner, number)


class Tree(Worker):
    """Extracts a tree of small files as tar does it, compares it, and removes it."""

    def open(self):
        rng = random.Random(7)
        self.members = [(f"d{n % 4}/f{n}", rng.randbytes(rng.choice((10, 900, 4096, 20_000, 70_000)))) for n in range(24)]
        self.home = os.path.join(self.top, f"tree.{self.mount}")
        self.turns = 0
        os.makedirs(self.home, exist_ok=True)

    def turn(self):
        self.turns += 1
        tree = os.path.join(self.home, f"t{self.turns}")
        self.extract(tree)
        self.compare(tree)
        self.remove(tree)

    def extract(self, tree):
        """mkdir, create, write, fchmod, utime, close, symlink, rename."""
        self.timed(os.mkdir, tree)
        for n in range(4):
            self.timed(os.mkdir, f"{tree}/d{n}")
        for path, data in self.members:
            fd = self.timed(os.open, f"{tree}/{path}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                wrote = self.timed(os.write, fd, data)
                if wrote != len(data):
                    self.timed(os.write, fd, data[wrote:])
                self.timed(os.fchmod, fd, 0o644)
                self.timed(os.utime, fd, (1_700_000_000, 1_700_000_000))
                if self.shared.may_be_full.value:
                    # What a full disk refuses after write has taken it is told by fsync.
                    self.timed(os.fsync, fd)
            finally:
                self.timed(os.close, fd)
        for n in range(4):
            self.timed(os.symlink, f"f{n}", f"{tree}/d{n}/link")
            self.timed(os.rename, f"{tree}/d{n}/f{n}", f"{tree}/d{n}/moved")

    def compare(self, tree):
        """Names, contents, modes and times are those of the archive."""
        for n in range(4):
            want = sorted(["link", "moved"] + [os.path.basename(p) for p, _ in self.members[4:] if p.startswith(f"d{n}/")])
            got = sorted(self.timed(os.listdir, f"{tree}/d{n}"))
            if got != want:
                self.wrong(1, f"{tree}/d{n} holds {got}, not {want}")
            if self.timed(os.readlink, f"{tree}/d{n}/link") != f"f{n}":
                self.wrong(1, f"{tree}/d{n}/link leads elsewhere")
        for n, (path, data) in enumerate(self.members):
            path = f"{tree}/d{n}/moved" if n < 4 else f"{tree}/{path}"
            fd = self.timed(os.open, path, os.O_RDONLY)
            try:
                got = b""
                while more := self.timed(os.read, fd, 1 << 17):
                    got += more
                info = self.timed(os.fstat, fd)
            finally:
                self.timed(os.close, fd)
            if got != data:
                self.wrong(abs(len(data) - len(got)) + sum(a != b for a, b in zip(got, data)),
                           f"{path}: {len(got)} bytes, {len(data)} were written, and they differ")
            if info.st_mode & 0o7777 != 0o644 or info.st_mtime != 1_700_000_000:
                self.wrong(1, f"{path}: mode {info.st_mode:o}, mtime {info.st_mtime}")

    def remove(self, tree):
        """Each name, then each directory."""
        for n, (path, _) in enumerate(self.members):
            self.timed(os.unlink, f"{tree}/d{n}/moved" if n < 4 else f"{tree}/{path}")
        for n in range(4):
            self.timed(os.unlink, f"{tree}/d{n}/link")
            self.timed(os.rmdir, f"{tree}/d{n}")
        self.timed(os.rmdir, tree)

    def recover(self):
        """What a failed turn left is removed, without counting what fails in that."""
        tree = os.path.join(self.home, f"t{self.turns}")
        for top, directories, files in os.walk(tree, topdown=False):
            for name in files + directories:
                path = os.path.join(top, name)
                try:
                    (os.unlink if os.path.islink(path) or not os.path.isdir(path) else os.rmdir)(path)
                except OSError:
                    pass
        try:
            os.rmdir(tree)
        except OSError:
            pass


class Load:
    """All workers."""

    def __init__(self, tops, seed):
        self.shared = Shared(len(tops), seed)
        self.workers, self.processes, self.mount_of = [], [], []
        for mount, top in enumerate(tops):
            for kind in (Blocks, Tree):
                self.workers.append(kind(self.shared, len(self.workers), mount, top))
                self.mount_of.append(mount)

    def start(self):
        """Starts the processes."""
        for owner in range(self.shared.mounts):
            os.close(os.open(self.workers[0].path(owner), os.O_RDWR | os.O_CREAT, 0o644))
        for worker in self.workers:
            self.processes.append(fork.Process(target=worker.run, daemon=True))
            self.processes[-1].start()

    def stuck(self, before):
        """Workers that are in an operation which began before that time, and how long it has taken."""
        now = time.monotonic()
        return [(worker.name, now - since) for worker, since in zip(self.workers, self.shared.since) if 0 < since < before]

    def longest(self, mount):
        """The longest operation on a mount since the last reset, those under way included, in seconds."""
        now, values = time.monotonic(), [0.0]
        for number, of in enumerate(self.mount_of):
            if of == mount:
                values.append(self.shared.longest[number])
                if self.shared.since[number]:
                    values.append(now - self.shared.since[number])
        return max(values)

    def pause(self):
        """The longest that anybody waited after `back`, in seconds."""
        back, now = self.shared.back.value, time.monotonic()
        waiting = [now - max(since, back) for since in self.shared.since if since]
        return max([0.0, *self.shared.after, *waiting])

    def verify(self):
        """Everybody stops, everything is read, everybody goes on."""
        self.shared.round.value += 1
        try:
            for _ in ("stopped", "settled", "verified"):
                self.shared.barrier.wait(BARRIER_SECONDS)
            return True
        except threading.BrokenBarrierError:
            return False

    def said(self):
        """What was said since the last time."""
        lines = []
        while not self.shared.said.empty():
            lines.append(self.shared.said.get())
        return lines

    def stop(self):
        """Ends the processes; one that hangs is killed with its mount."""
        self.shared.end.value = 1
        for process in self.processes:
            process.join(20)
            if process.is_alive():
                process.kill()
