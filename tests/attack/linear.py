#!/usr/bin/env python3
"""Two mounts and a linearizability check of registers, appends, exclusive creates, renames, links and directories.

Four processes, two on each mount, with or without a server that is killed in between. Each operation is written down with the
moments at which it was called and at which it came back.

Registers are of five kinds: 8 bytes in a file, a modification time, an extended attribute, a symbolic link that is replaced by
rename, a size. Each value is written once; then a history of a register can be put into one order if and only if no two
values had to be the newest at the same time (the zones of Gibbons and Korach). Locks are of four kinds: a file made with
O_EXCL, a directory, a hard link, a name that is moved away; nobody else may have one between its getting and its giving back.
Each appended record has to be there once and whole, and in an order that agrees with the moments.
"""

import multiprocessing
import os
import stat
import struct

import box as b
from cluster import MDS, OSS1, OSS2, Servers

RECORD = struct.Struct("<QQ31x")
KINDS = ("data", "mtime", "xattr", "link", "size")
REGISTERS = 2
now = b.time.monotonic_ns


class Register:
    """One register in the directory of a mount."""

    def __init__(self, kind, directory, number):
        self.kind, self.path, self.beside = kind, f"{directory}/{kind}{number}", f"{directory}/{kind}{number}.new"

    def make(self):
        """Its value is 0 at first."""
        if self.kind == "link":
            os.symlink("0", self.path)
            return
        with open(self.path, "wb") as file:
            file.write(bytes(8) if self.kind == "data" else b"")
        self.write(0, 0)

    def write(self, value, who):
        """Sets it."""
        if self.kind == "data":
            file = os.open(self.path, os.O_WRONLY)
            os.pwrite(file, struct.pack("<Q", value), 0)
            os.close(file)
        elif self.kind == "mtime":
            os.utime(self.path, ns=(10 ** 18, 10 ** 18 + value))
        elif self.kind == "xattr":
            os.setxattr(self.path, "user.register", str(value).encode())
        elif self.kind == "size":
            os.truncate(self.path, value)
        else:
            os.symlink(str(value), f"{self.beside}{who}")
            os.rename(f"{self.beside}{who}", self.path)

    def read(self):
        """What it is."""
        if self.kind == "data":
            file = os.open(self.path, os.O_RDONLY)
            try:
                return struct.unpack("<Q", os.pread(file, 8, 0))[0]
            finally:
                os.close(file)
        if self.kind == "mtime":
            return os.stat(self.path).st_mtime_ns - 10 ** 18
        if self.kind == "xattr":
            return int(os.getxattr(self.path, "user.register"))
        if self.kind == "size":
            return os.stat(self.path).st_size
        return int(os.readlink(self.path))


def lock_ways(directory, who):
    """Ways to get and give back a lock, of which only one may have each: name -> (get, give back)."""
    def exclusive():
        os.close(os.open(f"{directory}/excl", os.O_CREAT | os.O_EXCL | os.O_WRONLY))

    def linked():
        os.link(f"{directory}/mine{who}", f"{directory}/linked")
    return {
        "O_EXCL": (exclusive, lambda: os.unlink(f"{directory}/excl")),
        "mkdir": (lambda: os.mkdir(f"{directory}/dir"), lambda: os.rmdir(f"{directory}/dir")),
        "link": (linked, lambda: os.unlink(f"{directory}/linked")),
        "rename": (lambda: os.rename(f"{directory}/free", f"{directory}/taken{who}"),
                   lambda: os.rename(f"{directory}/taken{who}", f"{directory}/free")),
    }


def player(directory, who, seed, until, results):
    """One process: operations on registers, appends and locks, with their moments."""
    random = b.random.Random(seed)
    registers = {(kind, n): Register(kind, directory, n) for kind in KINDS for n in range(REGISTERS)}
    serial = 0
    history, errors = [], []
    while b.time.monotonic() < until:
        serial += 1
        try:
            draw = random.random()
            if draw < 0.6:
                key = random.choice(list(registers))
                write = random.random() < 0.35
                value = serial * 8 + who
                began = now()
                if write:
                    registers[key].write(value, who)
                else:
                    value = registers[key].read()
                history.append((key, "write" if write else "read", value, began, now()))
            elif draw < 0.7:
                data = RECORD.pack(who, serial) + b"\n"
                began = now()
                file = os.open(f"{directory}/appended", os.O_WRONLY | os.O_APPEND)
                written = os.write(file, data)
                os.close(file)
                history.append(("append", written, (who, serial), began, now()))
            else:
                way, (get, give) = random.choice(list(lock_ways(directory, who).items()))
                try:
                    get()
                except (FileExistsError, FileNotFoundError):
                    continue
                got = now()
                if random.random() < 0.5:
                    b.time.sleep(random.random() * 0.002)
                giving = now()
                give()
                history.append(("lock", way, who, got, giving))
        except (OSError, ValueError, struct.error) as error:
            errors.append(f"{type(error).__name__}: {error}")
    results.put((who, history, errors))


def check_register(operations):
    """None if a history of one register fits into one order; else why not."""
    writes = {0: (0, 0)}
    for what, value, began, ended in operations:
        if what == "write":
            writes[value] = (began, ended)
    # For each value: the first moment at which somebody was done with it, the last at which somebody began.
    first, last = {}, {}
    for value, (began, ended) in writes.items():
        first[value], last[value] = ended, began
    for what, value, began, ended in operations:
        if what != "read":
            continue
        if value not in writes:
            return f"a value was read that nobody wrote: {value}"
        if ended < writes[value][0]:
            return f"{value} was read before it was written"
        first[value], last[value] = min(first[value], ended), max(last[value], began)
    forward = sorted((first[v], last[v], v) for v in writes if first[v] < last[v])
    for (_, end, value), (start, _, other) in zip(forward, forward[1:]):
        if start < end:
            return f"{value} was seen again {(end - start) / 1e6:.3f} ms after {other} was the newest"
    backward = sorted((last[v], first[v], v) for v in writes if first[v] >= last[v])
    at = 0
    for start, end, value in forward:
        while at < len(backward) and backward[at][0] <= start:
            at += 1
        probe = at
        while probe < len(backward) and backward[probe][0] < end:
            if backward[probe][1] < end:
                return f"{backward[probe][2]} was written whole while {value} was read before and after"
            probe += 1
    return None


def check_appends(path, history):
    """Each record once, whole, in an order that agrees with the moments."""
    with open(path, "rb") as file:
        data = file.read()
    size = RECORD.size + 1
    if len(data) % size:
        return [f"the file of records has {len(data)} bytes, no multiple of {size}"]
    order = [RECORD.unpack(data[at:at + size - 1]) for at in range(0, len(data), size)]
    places = {record: n for n, record in enumerate(order)}
    problems = []
    if len(places) != len(order):
        problems.append(f"{len(order) - len(places)} records are there twice")
    wanted = {record: (began, ended) for record, began, ended in history}
    problems += [f"the record {record} was acknowledged and is not there" for record in wanted if record not in places]
    problems += [f"the record {record} is there and nobody wrote it" for record in places if record not in wanted]
    # Whoever ended before another one began stands before it.
    latest = 0
    for record in order:
        if record in wanted:
            began, ended = wanted[record]
            if ended < latest:
                problems.append(f"the record {record} stands behind one that began after its end")
            latest = max(latest, began)
    return problems


def check_locks(history):
    """Nobody has a lock that somebody else has."""
    problems = []
    for way in {way for way, _, _, _ in history}:
        held = sorted((got, giving, who) for w, who, got, giving in history if w == way)
        for (_, giving, who), (got, _, other) in zip(held, held[1:]):
            if got < giving:
                problems.append(f"the lock by {way} was with {who} and {other} at once for {(giving - got) / 1e6:.3f} ms")
    return problems


def a_round(box, servers, number, seconds, victim):
    """One round of all."""
    name = f"round{number}"
    root = f"{servers.mounts['a']}/{name}"
    os.mkdir(root)
    for kind in KINDS:
        for n in range(REGISTERS):
            Register(kind, root, n).make()
    for who in range(4):
        open(f"{root}/mine{who}", "x", encoding="utf-8").close()
    for file in ("appended", "free"):
        open(f"{root}/{file}", "x", encoding="utf-8").close()
    results = multiprocessing.SimpleQueue()
    until = b.time.monotonic() + seconds
    players = [multiprocessing.Process(target=player, daemon=True, args=(
        f"{servers.mounts['ab'[who % 2]]}/{name}", who, box.random.random(), until, results)) for who in range(4)]
    for process in players:
        process.start()
    if victim:
        b.time.sleep(seconds * 0.4)
        servers.kill(victim)
        servers.serve(victim)
    answers = []
    try:
        take = b.Bounded(results.get, seconds + 120, "a process of the round")
        answers = [take() for _ in players]
    except TimeoutError as error:
        box.fail(f"{name}: {error}")
        return
    history = [entry for _, entries, _ in answers for entry in entries]
    what = f"{name} ({victim or 'nobody'} killed)"
    for _, _, errors in answers:
        for error in errors:
            box.fail(f"{what}: {error}")
    judge(box, what, history, f"{servers.mounts['b']}/{name}/appended")


def judge(box, what, history, appended):
    """Compares the histories of one round with what one order allows."""
    for key in sorted({entry[0] for entry in history if isinstance(entry[0], tuple)}):
        operations = [entry[1:] for entry in history if entry[0] == key]
        problem = check_register(operations)
        box.tried(len(operations))
        if problem:
            box.fail(f"{what}: register {key}, {len(operations)} operations: {problem}")
    records = [(entry[2], entry[3], entry[4]) for entry in history if entry[0] == "append"]
    locks = [entry[1:] for entry in history if entry[0] == "lock"]
    box.tried(len(records) + len(locks))
    for problem in check_appends(appended, records) + check_locks(locks):
        box.fail(f"{what}: {problem}")


def check_the_checker():
    """A checker that finds nothing has to be able to find something."""
    right = [("write", 8, 10, 20), ("read", 0, 11, 12), ("read", 8, 13, 14), ("read", 8, 30, 31)]
    assert check_register(right) is None
    assert "seen again" in check_register([*right, ("write", 16, 32, 33), ("read", 16, 34, 35), ("read", 8, 36, 37)])
    assert "nobody wrote" in check_register([*right, ("read", 9, 40, 41)])
    assert "before it was written" in check_register([("write", 8, 10, 20), ("read", 8, 1, 2)])
    # Written, and then the initial value is read.
    assert check_register([("write", 8, 10, 20), ("read", 0, 21, 22)])
    assert check_locks([("mkdir", 0, 1, 5), ("mkdir", 1, 4, 6)]) and not check_locks([("mkdir", 0, 1, 5), ("mkdir", 1, 5, 6)])


def body(box):
    """The attack."""
    check_the_checker()
    servers = Servers(box, "linear")
    servers.start()
    rounds = 0
    while rounds < box.options.trials and not box.time_is_up():
        a_round(box, servers, rounds, min(10, max(4, box.options.seconds / 10)), [None, MDS, OSS1, None, OSS2][rounds % 5])
        rounds += 1
    box.note(f"operations of four processes on two mounts in {rounds} rounds, in three of five of them a server is killed")
    servers.stop()


if __name__ == "__main__":
    b.attack("linear", body, trials=20, seconds=80)
