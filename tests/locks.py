"""flock(2) and fcntl(2) between mounts, against a local file system: `locks.py MOUNT1 MOUNT2 LOCAL [OPERATIONS [SEED]]`.

Every case runs on the local file system first, which says what has to come out, and then on the two mounts. At the end
four processes, two on each mount, do OPERATIONS random ones (10,000), each of them on both file systems.
"""

import ctypes
import errno
import json
import os
import random
import select
import signal
import struct
import sys
import time

F_GETLK, F_SETLK, F_SETLKW = 5, 6, 7
F_OFD_SETLK = 37
PR_SET_PDEATHSIG = 1
R, W, U = 0, 1, 2
LOCK_SH, LOCK_EX, LOCK_NB, LOCK_UN = 1, 2, 4, 8
FLOCK = struct.Struct("hhxxxxqqixxxx")
SYSCALLS_THAT_WAIT = {os.uname().machine == "x86_64" and "72" or "25", os.uname().machine == "x86_64" and "73" or "32"}
# What an answer may take before it counts as one that does not come.
PATIENCE = 60
# How long nothing has to come where nothing must come.
SILENCE = 0.03

libc = ctypes.CDLL(None, use_errno=True)


def said(result):
    return "ok" if result == 0 else errno.errorcode[ctypes.get_errno()]


# ---- a process that does as it is told -------------------------------------------------------------------------------


class Obedient:
    def __init__(self):
        self.fds = {}

    def open(self, name, path):
        self.fds[name] = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        return "ok"

    def dup(self, name, copy):
        self.fds[copy] = os.dup(self.fds[name])
        return "ok"

    def close(self, name):
        os.close(self.fds.pop(name))
        return "ok"

    def posix(self, name, command, kind, start, length):
        lock = ctypes.create_string_buffer(FLOCK.pack(kind, os.SEEK_SET, start, length, 0))
        result = said(libc.fcntl(self.fds[name], command, lock))
        if command == F_GETLK and result == "ok":
            kind, _, start, length, pid = FLOCK.unpack(lock.raw[: FLOCK.size])
            return [kind] if kind == U else [kind, start, length, pid]
        return result

    def flock(self, name, operation):
        return said(libc.flock(self.fds[name], operation))

    def child(self, *command):
        """Has a child do it, and end."""
        pid = os.fork()
        if pid == 0:
            result = getattr(self, command[0])(*command[1:])
            os._exit(0 if result == "ok" else getattr(errno, result))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return "ok" if code == 0 else errno.errorcode[code]

    def serve(self, commands, answers):
        signal.signal(signal.SIGUSR1, lambda *_: None)
        signal.signal(signal.SIGUSR2, lambda *_: None)
        signal.siginterrupt(signal.SIGUSR2, False)
        for line in commands:
            command = json.loads(line)
            answers.write(json.dumps(getattr(self, command[0])(*command[1:])) + "\n")
            answers.flush()


class Worker:
    """One such process, seen from outside."""

    def __init__(self, directory):
        self.directory = directory
        commands, self.commands = os.pipe()
        self.answers, answers = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            os.close(self.commands)
            os.close(self.answers)
            try:
                Obedient().serve(os.fdopen(commands), os.fdopen(answers, "w"))
            finally:
                os._exit(0)
        os.close(commands)
        os.close(answers)
        self.text = b""
        self.waiting = False

    def start(self, *command):
        assert not self.waiting, "it waits for something else"
        os.write(self.commands, json.dumps(command).encode() + b"\n")
        self.waiting = True

    def poll(self, seconds):
        """The answer, or None."""
        while b"\n" not in self.text:
            if not select.select([self.answers], [], [], seconds)[0]:
                return None
            piece = os.read(self.answers, 4096)
            assert piece, "the process is gone"
            self.text += piece
        line, self.text = self.text.split(b"\n", 1)
        self.waiting = False
        return json.loads(line)

    def call(self, *command):
        self.start(*command)
        answer = self.poll(PATIENCE)
        assert answer is not None, f"no answer to {command}"
        return answer

    def open(self, name, file):
        return self.call("open", name, os.path.join(self.directory, file))

    def sleeps_in_the_kernel(self):
        """On a local file system: it waits for a lock, and nobody has woken it."""
        with open(f"/proc/{self.pid}/stat") as file:
            if file.read().rsplit(")", 1)[1].split()[0] != "S":
                return False
        with open(f"/proc/{self.pid}/syscall") as file:
            return file.read().split()[0] in SYSCALLS_THAT_WAIT

    def signal(self, number):
        os.kill(self.pid, number)

    def kill(self):
        """It is dead, and its files are closed, when this returns."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = None

    def end(self):
        self.kill()
        os.close(self.commands)
        os.close(self.answers)


# ---- the same on both file systems -----------------------------------------------------------------------------------


class Side:
    """One of the two file systems, with processes: 0 and 1 on its first mount, 2 and 3 on its second."""

    def __init__(self, first, second, expected):
        self.directories = [first, first, second, second]
        self.expected = expected
        self.seen = []
        self.files = 0
        self.workers = []

    def note(self, what, outcome):
        """Something came out; on the mounts the same has to come out as before."""
        place = len(self.seen)
        self.seen.append((what, outcome))
        if self.expected is not None:
            assert self.expected[place] == (what, outcome), f"{what}: {outcome}, not {self.expected[place]}"
        return outcome

    def file(self):
        """A new file, and a new set of processes that have it open as "f"."""
        self.files += 1
        name = f"locks-{os.getpid()}-{self.files}"
        if not self.workers:
            self.workers = [Worker(directory) for directory in self.directories]
        for worker in self.workers:
            worker.open("f", name)
        return name

    def over(self):
        for worker in self.workers:
            worker.end()
        self.workers = []

    def shut(self):
        for worker in self.workers:
            worker.call("close", "f")

    def do(self, who, *command):
        return self.note((who,) + command, self.workers[who].call(*command))

    def wait(self, who, *command):
        """A command that may wait: says whether it does."""
        self.workers[who].start(*command)
        return self.outcome((who,) + command, who)

    def outcome(self, what, who):
        """What became of it: its result, or that it waits."""
        worker = self.workers[who]
        if self.expected is not None:
            waits = self.expected[len(self.seen)][1] == "waits"
            answer = worker.poll(SILENCE if waits else PATIENCE)
        else:
            answer = settled(worker)
        return self.note(what, "waits" if answer is None else answer)

    def set(self, who, kind, start, length):
        return self.do(who, "posix", "f", F_SETLK, kind, start, length)

    def set_wait(self, who, kind, start, length):
        return self.wait(who, "posix", "f", F_SETLKW, kind, start, length)

    def probe(self, who=3, bytes=24):
        """The kind of lock on each byte, as a process without locks sees it."""
        worker = self.workers[who]
        kinds = [worker.call("posix", "f", F_GETLK, W, byte, 1)[0] for byte in range(bytes)]
        return self.note("locks", kinds)


def settled(worker):
    """The answer, or None when it is asleep in the call; on a local file system it waits for good then."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        answer = worker.poll(0.0005)
        if answer is not None:
            return answer
        if worker.sleeps_in_the_kernel():
            return worker.poll(0)
    raise AssertionError("neither an answer nor asleep")


HELD = (8, 8)
RELATIONS = [(8, 8), (10, 4), (4, 16), (4, 8), (12, 8), (4, 4), (16, 4), (0, 4), (20, 4), (8, 4), (12, 4), (6, 0)]


def pairs_of_ranges(side):
    """Read, write and unlock of ranges that overlap, touch or do neither; by the same process, another one, and one on
    the other mount."""
    for who in (0, 1, 2):
        for first in (R, W):
            for second in (R, W, U):
                for start, length in RELATIONS:
                    side.file()
                    side.set(0, first, *HELD)
                    side.set(who, second, start, length)
                    side.probe()
                    found = side.workers[3].call("posix", "f", F_GETLK, R, 0, 0)
                    # Of the locks of several processes the local kernel tells the one of who came first.
                    side.note("a writer", found[:3] if who == 0 else found[0])
                    if len(found) == 4:
                        holders = [side.workers[0].pid, side.workers[who].pid]
                        side.note("its process", found[3] in holders)
                    side.shut()


def pairs_of_flocks(side):
    """Shared, exclusive and none: through one descriptor, a copy of it, another one, a child, other processes."""
    for first in (LOCK_SH, LOCK_EX):
        for second in (LOCK_SH, LOCK_EX, LOCK_UN):
            for how in ("same", "copy", "again", "child", 1, 2):
                name = side.file()
                worker = side.workers[0]
                worker.call("dup", "f", "copy")
                worker.open("again", name)
                side.do(0, "flock", "f", first | LOCK_NB)
                if how == "child":
                    side.do(0, "child", "flock", "f", second | LOCK_NB)
                elif isinstance(how, int):
                    side.do(how, "flock", "f", second | LOCK_NB)
                else:
                    side.do(0, "flock", "f" if how == "same" else how, second | LOCK_NB)
                for other in (1, 2, 3):
                    side.do(other, "flock", "f", LOCK_SH | LOCK_NB)
                    side.do(other, "flock", "f", LOCK_EX | LOCK_NB)
                # fcntl locks do not see any of that.
                side.set(3, W, 0, 0)
                worker.call("close", "copy")
                worker.call("close", "again")
                side.shut()


def waits_are_over(side):
    """An unlock, a change to read, a close and a death let the next ones in, at once."""
    for waiter in (1, 2):
        for kind in (R, W):
            side.file()
            side.set(0, W, 0, 10)
            side.set_wait(waiter, kind, 5, 10)
            side.set(0, U, 0, 5)
            side.outcome("still waits", waiter)
            begun = time.monotonic()
            side.set(0, U, 5, 5)
            side.outcome("let in", waiter)
            took(begun)
            side.probe()
            side.shut()
        # A downgrade lets readers in, and those of its range only.
        side.file()
        side.set(0, W, 0, 100)
        side.set_wait(waiter, R, 10, 10)
        side.set_wait(3, R, 60, 10)
        begun = time.monotonic()
        side.set(0, R, 0, 50)
        side.outcome("let in", waiter)
        took(begun)
        side.outcome("waits for the other part", 3)
        side.set(0, R, 0, 100)
        side.outcome("let in", 3)
        side.shut()
        # A flock that is changed lets others in while it waits.
        side.file()
        side.do(0, "flock", "f", LOCK_EX)
        side.wait(waiter, "flock", "f", LOCK_SH)
        side.do(0, "flock", "f", LOCK_SH)
        side.outcome("let in", waiter)
        side.wait(0, "flock", "f", LOCK_EX)
        side.do(3, "flock", "f", LOCK_SH | LOCK_NB)
        side.do(waiter, "flock", "f", LOCK_UN)
        side.outcome("still waits", 0)
        side.do(3, "flock", "f", LOCK_UN)
        side.outcome("let in", 0)
        side.shut()
        # The holder closes the file, and then dies.
        name = side.file()
        side.set(0, W, 0, 0)
        side.set_wait(waiter, W, 3, 1)
        side.workers[0].open("again", name)
        side.workers[0].call("close", "again")
        side.outcome("let in", waiter)
        side.set_wait(0, W, 0, 0)
        side.do(3, "flock", "f", LOCK_EX)
        side.workers[waiter].kill()
        side.outcome("let in", 0)
        side.over()


def took(begun):
    slowest[0] = max(slowest[0], time.monotonic() - begun)


slowest = [0.0]


def circles(side):
    """Two and three processes that would wait for each other."""
    for others in ((0, 1), (0, 2), (0, 1, 2)):
        side.file()
        for number, who in enumerate(others):
            side.set(who, W, number * 10, 10)
        for number, who in enumerate(others[:-1]):
            side.set_wait(who, R, number * 10 + 10, 1)
        side.set_wait(others[-1], W, 0, 1)
        for number, who in reversed(list(enumerate(others))):
            side.set(who, U, number * 10, 10)
            if number:
                side.outcome("let in", others[number - 1])
        side.shut()
    # Two readers that both want to write.
    side.file()
    side.set(0, R, 0, 1)
    side.set(2, R, 0, 1)
    side.set_wait(0, W, 0, 1)
    side.set_wait(2, W, 0, 1)
    side.set(2, U, 0, 1)
    side.outcome("let in", 0)
    side.shut()


def signals(side):
    """A signal ends a wait, leaves nothing, and with SA_RESTART does not show."""
    for waiter in (1, 2):
        for command in (["posix", "f", F_SETLKW, W, 0, 10], ["flock", "f", LOCK_EX]):
            side.file()
            take = (lambda kind: side.set(0, kind, 0, 10)) if command[0] == "posix" else (
                lambda kind: side.do(0, "flock", "f", {W: LOCK_EX, U: LOCK_UN}[kind]))
            take(W)
            side.wait(waiter, *command)
            side.workers[waiter].signal(signal.SIGUSR1)
            side.outcome("interrupted", waiter)
            side.wait(waiter, *command)
            side.workers[waiter].signal(signal.SIGUSR2)
            side.outcome("waits on", waiter)
            side.workers[waiter].signal(signal.SIGUSR1)
            side.outcome("interrupted", waiter)
            take(U)
            side.probe()
            side.set(3, W, 0, 0)
            side.do(3, "flock", "f", LOCK_EX | LOCK_NB)
            side.set(3, U, 0, 0)
            side.do(3, "flock", "f", LOCK_UN)
            # Who is killed while it waits leaves nothing either.
            take(W)
            side.wait(waiter, *command)
            side.over()
            side.file()
            side.set(3, W, 0, 0)
            side.do(3, "flock", "f", LOCK_EX | LOCK_NB)
            # An interrupted change leaves what was there.
            side.over()
            side.file()
            side.set(0, R, 0, 10)
            side.set(waiter, R, 5, 10)
            side.set_wait(waiter, W, 0, 20)
            side.workers[waiter].signal(signal.SIGUSR1)
            side.outcome("interrupted", waiter)
            side.probe()
            side.shut()


def closes(side):
    """fcntl locks go with any close by their process, flocks and those of open files with the last one of theirs."""
    name = side.file()
    worker = side.workers[0]
    worker.open("again", name)
    worker.call("dup", "f", "copy")
    side.set(0, W, 0, 4)
    side.set(1, W, 4, 4)
    side.set(2, W, 8, 4)
    side.do(0, "child", "close", "f")
    side.probe()
    side.do(0, "child", "posix", "f", F_SETLK, W, 0, 1)
    side.do(0, "child", "posix", "f", F_SETLK, W, 12, 1)
    side.probe()
    side.do(0, "close", "again")
    side.probe()
    side.set(0, W, 0, 4)
    side.do(0, "close", "copy")
    side.probe()
    side.do(2, "close", "f")
    side.probe()
    side.workers[2].open("f", name)
    side.shut()
    name = side.file()
    worker.call("dup", "f", "copy")
    side.do(0, "flock", "f", LOCK_EX)
    side.do(0, "close", "copy")
    side.do(1, "flock", "f", LOCK_SH | LOCK_NB)
    side.do(2, "flock", "f", LOCK_SH | LOCK_NB)
    side.do(0, "child", "close", "f")
    side.do(2, "flock", "f", LOCK_SH | LOCK_NB)
    side.do(0, "posix", "f", F_OFD_SETLK, W, 0, 8)
    side.set(0, W, 8, 8)
    side.set(0, W, 0, 1)
    side.set(2, W, 7, 1)
    worker.open("again", name)
    side.do(0, "close", "again")
    side.probe()
    side.do(0, "close", "f")
    # The last close of a file reaches the server a moment after the call returned.
    for who, command in ((1, ["flock", "f", LOCK_EX]), (2, ["posix", "f", F_SETLKW, W, 0, 8])):
        side.workers[who].start(*command)
        assert side.workers[who].poll(PATIENCE) == "ok"
    side.probe()
    side.over()


def same_host(side):
    """Who locks a file right after its holder on the same mount has closed it, or ended, gets it."""
    name = side.file()
    for _ in range(200):
        side.workers[0].open("again", name)
        side.do(0, "flock", "again", LOCK_EX | LOCK_NB)
        side.workers[0].call("close", "again")
        side.do(1, "flock", "f", LOCK_EX | LOCK_NB)
        side.workers[1].call("flock", "f", LOCK_UN)
    side.over()


def other_host(side):
    """Who locks a file right after its holder on the other mount has closed it, or ended, gets it: of flock and of fcntl for
    open files, readers and writers."""
    name = side.file()
    asks = [["flock", LOCK_EX | LOCK_NB], ["flock", LOCK_SH | LOCK_NB]]
    asks += [["posix", F_OFD_SETLK, W, 0, 8], ["posix", F_OFD_SETLK, R, 0, 8]]
    for turn in range(400):
        holder, asker = (0, 2) if turn % 2 == 0 else (2, 0)
        first, *held = asks[0 if turn % 4 < 2 else 2]
        second, *asked = asks[turn // 4 % 2 + (0 if turn % 4 < 2 else 2)]
        side.workers[holder].open("again", name)
        side.do(holder, first, "again", *held)
        side.workers[holder].call("close", "again")
        side.workers[asker].open("asks", name)
        side.do(asker, second, "asks", *asked)
        unlock = ["flock", "asks", LOCK_UN] if second == "flock" else ["posix", "asks", F_OFD_SETLK, U, 0, 8]
        side.workers[asker].call(*unlock)
        side.workers[asker].call("close", "asks")
    side.over()


CASES = [pairs_of_ranges, pairs_of_flocks, waits_are_over, circles, signals, closes, same_host, other_host]


# ---- random operations -----------------------------------------------------------------------------------------------

BYTES = 48


class Random:
    """The same operations by two sets of four processes; what comes out on the mounts has to be what came out on the
    local file system. At most one of four waits, so that it is never open who comes first."""

    def __init__(self, local, mounts, draw):
        self.draw = draw
        self.names = [f"random-{os.getpid()}-{number}" for number in range(2)]
        self.local = [Worker(local) for _ in range(4)]
        self.weft = [Worker(directory) for directory in (mounts[0], mounts[0], mounts[1], mounts[1])]
        for worker in self.local + self.weft:
            for number, name in enumerate(self.names):
                worker.open(f"f{number}", name)
        self.waiter = None
        self.counts = {}

    def both(self, who, command):
        """Says what came out locally; on the mounts it is the same."""
        self.local[who].start(*command)
        self.weft[who].start(*command)
        local = settled(self.local[who])
        self.count("waits" if local is None else local)
        if local is not None:
            weft = self.weft[who].poll(PATIENCE)
            assert weft == local, f"{who} {command}: {weft}, not {local}"
        return local

    def count(self, what):
        what = what if isinstance(what, str) else "told"
        self.counts[what] = self.counts.get(what, 0) + 1

    def see_waiter(self):
        """Whoever waits was let in on both, or on neither."""
        if self.waiter is None:
            return
        local = settled(self.local[self.waiter])
        if local is not None:
            weft = self.weft[self.waiter].poll(PATIENCE)
            assert weft == local, f"who waited was told {weft}, not {local}"
            self.waiter = None
            return
        weft = self.weft[self.waiter].poll(0)
        assert weft is None, f"who has to wait was told {weft}"

    def let_arrive(self, who, file):
        """The request that waits reaches the server before anything else does: one more that goes the same way is behind
        it."""
        answer = settled(self.weft[who]) or self.weft[who].poll(0.01)
        assert answer is None, f"who has to wait was told {answer}"
        self.weft[who ^ 1].call("posix", file, F_GETLK, R, 0, 1)

    def interrupt(self, who, circle=False):
        """A signal ends a wait on both; on the mounts one that closes a circle ends by itself."""
        told = []
        for worker in (self.local[who], self.weft[who]):
            # A signal before the call would be none to the call.
            answer = worker.poll(PATIENCE) if circle and told else settled(worker)
            if answer is None:
                worker.signal(signal.SIGUSR1)
                answer = worker.poll(PATIENCE)
            told.append(answer)
        expected = "EDEADLOCK" if circle else "EINTR"
        assert told == ["EINTR", expected], f"a signal to {who}: {told}, not EINTR and {expected}"

    def closes_circle(self, who, command):
        """Whether the one that waits would wait for `who`, and `who` for it. The local kernel follows one of the locks in
        the way of a process, the MDT all of them."""
        circle = self.is_in_the_way(self.waiter, command) and self.is_in_the_way(who, self.wanted)
        if circle:
            self.count("circle seen on the mounts only")
        return circle

    def is_in_the_way(self, holder, command):
        if command[0] != "posix":
            return False
        _, file, _, kind, start, length = command
        last = start + length - 1 if length else 1 << 62
        return any(
            lock.who == holder and lock.start <= last and lock.last >= start and W in (lock.kind, kind)
            for lock in self.locks(int(file[1:]))
        )

    def step(self):
        draw = self.draw
        who = draw.choice([who for who in range(4) if who != self.waiter])
        number = draw.randrange(2)
        file = f"f{number}"
        start = draw.randrange(BYTES)
        length = draw.randrange(0, BYTES - start + 1)
        kind = draw.choice((R, W))
        choice = draw.randrange(100)
        if choice < 30:
            self.both(who, ["posix", file, F_SETLK, kind, start, length])
        elif choice < 50:
            self.both(who, ["posix", file, F_SETLK, U, start, length])
        elif choice < 60:
            self.both(who, ["flock", file, draw.choice((LOCK_SH, LOCK_EX, LOCK_UN)) | LOCK_NB])
        elif choice < 80:
            command = ["posix", file, F_SETLKW, kind, start, length]
            if draw.randrange(5) == 0:
                command = ["flock", file, draw.choice((LOCK_SH, LOCK_EX))]
            if self.both(who, command) is None:
                if self.waiter is not None:
                    self.interrupt(who, self.closes_circle(who, command))
                else:
                    self.waiter, self.wanted = who, command
                    self.let_arrive(who, file)
        elif choice < 83 and self.waiter is not None:
            self.see_waiter()
            if self.waiter is not None:
                self.interrupt(self.waiter)
                self.waiter = None
        elif choice < 86:
            self.weft[who].open("again", self.names[number])
            self.local[who].open("again", self.names[number])
            self.both(who, ["close", "again"])
        else:
            self.test(who, file, number, kind, start, length)
        self.see_waiter()

    def test(self, who, file, number, kind, start, length):
        """F_GETLK: what is told is the lock that begins first, of those that the local kernel has."""
        told = self.weft[who].call("posix", file, F_GETLK, kind, start, length)
        self.count("tested")
        last = start + length - 1 if length else 1 << 62
        blocking = sorted(
            [lock.start, lock.kind, lock.last, lock.who]
            for lock in self.locks(number)
            if lock.who != who and lock.start <= last and lock.last >= start and W in (lock.kind, kind)
        )
        if not blocking:
            assert told == [U], f"{told} is in the way, says the mount"
            return
        pids = [worker.pid for worker in self.weft]
        found = [told[1], told[0], told[1] + told[2] - 1 if told[2] else 1 << 62, pids.index(told[3])]
        assert found in blocking and found[0] == blocking[0][0], f"{found} is in the way, not {blocking}"

    def locks(self, number):
        inode = os.stat(os.path.join(self.local[0].directory, self.names[number])).st_ino
        pids = [worker.pid for worker in self.local]
        with open("/proc/locks") as file:
            for line in file:
                fields = line.split()
                if fields[1] != "POSIX" or int(fields[5].split(":")[2]) != inode or int(fields[4]) not in pids:
                    continue
                yield Found(fields, pids)

    def run(self, operations):
        for step in range(operations):
            try:
                self.step()
            except AssertionError as error:
                raise AssertionError(f"step {step}: {error}") from None
        for worker in self.local + self.weft:
            worker.end()


class Found:
    def __init__(self, fields, pids):
        self.kind = R if fields[3] == "READ" else W
        self.who = pids.index(int(fields[4]))
        self.start = int(fields[6])
        self.last = 1 << 62 if fields[7] == "EOF" else int(fields[7])


def main():
    first, second, local = sys.argv[1:4]
    operations = int(sys.argv[4]) if len(sys.argv) > 4 else 10_000
    seed = int(sys.argv[5]) if len(sys.argv) > 5 else random.randrange(1 << 32)
    for case in CASES:
        begun = time.monotonic()
        oracle = Side(local, local, None)
        case(oracle)
        oracle.over()
        slowest[0] = 0.0
        mounts = Side(first, second, oracle.seen)
        case(mounts)
        mounts.over()
        assert len(mounts.seen) == len(oracle.seen)
        slow = f", slowest wake-up {slowest[0] * 1000:.1f} ms" if slowest[0] else ""
        print(f"{case.__name__}: {len(oracle.seen)} outcomes as on the local file system{slow}, {time.monotonic() - begun:.1f} s")
        assert slowest[0] < 5, "a wake-up took long"
    begun = time.monotonic()
    print(f"random operations, seed {seed}", flush=True)
    drawn = Random(local, (first, second), random.Random(seed))
    drawn.run(operations)
    print(f"{operations} operations as on the local file system, {time.monotonic() - begun:.1f} s: {drawn.counts}")


main()
