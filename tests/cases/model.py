"""Random operations on two mounts against a model: one file, and a small tree of names."""

import errno
import os
import random
import shutil
import stat
import tempfile

from .support import (FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, Open, Peer, at_once, case, differs, fallocate, get, path, put,
                      renameat2, result, same, same_bytes, RENAME_EXCHANGE, RENAME_NOREPLACE)

# Sizes of requests and of the file: no multiples of anything, several stripes, several chunks.
LENGTHS = (1, 13, 100, 4096, 5000, 47008, 70_000, 300_000)
FILE_BYTES_MAX = 5 << 20
# Writes that are remembered, to tell where wrong bytes come from.
WRITES_KEPT = 1000


class OneFile:
    """What a process does with the file, on its mount."""

    def __init__(self, name):
        self.name = name
        self.fd = os.open(name, os.O_RDWR)

    def __call__(self, request):
        kind, *args = request
        return getattr(self, kind)(*args)

    def write(self, at, data):
        return os.pwrite(self.fd, data, at)

    def read(self, at, length):
        return os.pread(self.fd, length, at)

    def append(self, data):
        fd = os.open(self.name, os.O_WRONLY | os.O_APPEND)
        try:
            return os.write(fd, data)
        finally:
            os.close(fd)

    def truncate(self, size):
        return os.ftruncate(self.fd, size)

    def truncate_by_name(self, size):
        return os.truncate(self.name, size)

    def punch(self, at, length):
        return fallocate(self.fd, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, at, length)

    def size(self):
        return os.fstat(self.fd).st_size, os.stat(self.name).st_size

    def sync(self):
        return os.fsync(self.fd)

    def reopen(self):
        os.close(self.fd)
        self.fd = os.open(self.name, os.O_RDWR)

    def whole(self):
        return get(self.name)


class Model:
    """The bytes that the file has to have."""

    def __init__(self):
        self.data = bytearray()
        # Newest last: where, and what.
        self.writes = []

    def write(self, at, data):
        self.writes.append((at, data))
        del self.writes[:-WRITES_KEPT]
        self.data.extend(bytes(max(0, at - len(self.data))))
        self.data[at:at + len(data)] = data

    def truncate(self, size):
        self.data = self.data[:size] + bytes(max(0, size - len(self.data)))

    def punch(self, at, length):
        end = min(at + length, len(self.data))
        if at < end:
            self.data[at:end] = bytes(end - at)

    def origin(self, at, got):
        """Which write wrong bytes at a place come from."""
        probe = bytes(got[:16])
        if not any(probe):
            return "zeros"
        for back, (start, data) in enumerate(reversed(self.writes)):
            if start <= at and data[at - start:at - start + len(probe)] == probe:
                return f"write {back + 1} before, {start}+{len(data)}"
        return "unknown"


def explain(model, peers, at, length, why):
    """Adds to `why` where wrong bytes come from, and what each mount reads now."""
    want = bytes(model.data[at:at + length])
    for which, peer in enumerate(peers):
        got = peer.ask(("read", at, length))
        wrong = next((n for n in range(min(len(got), len(want))) if got[n] != want[n]), None)
        told = "right" if wrong is None else f"{differs(got, want)}, from {model.origin(at + wrong, got[wrong:])}"
        why += f"; again on {'ab'[which]}: {told}"
    return why


def shared_step(rng, model, peers, which, step):
    """One operation of one of the mounts, checked; says what it was."""
    peer = peers[which]
    at, length = rng.randrange(FILE_BYTES_MAX), rng.choice(LENGTHS)
    if rng.random() < 0.5:
        # Half of them near the end of the file or near what was touched before: conflicts are what is wanted.
        at = max(0, min(len(model.data), FILE_BYTES_MAX) - rng.randrange(1, 100_000))
    kind = rng.choices(("write", "read", "append", "truncate", "truncate_by_name", "punch", "size", "sync", "reopen"),
                       (30, 35, 6, 4, 2, 4, 12, 3, 4))[0]
    data = rng.randbytes(length)
    if kind == "write":
        same(peer.ask(("write", at, data)), length, f"step {step}: bytes written")
        model.write(at, data)
    elif kind == "append" and len(model.data) + length <= FILE_BYTES_MAX:
        same(peer.ask(("append", data)), length, f"step {step}: bytes appended")
        model.write(len(model.data), data)
    elif kind == "read":
        got = peer.ask(("read", at, length))
        why = differs(got, bytes(model.data[at:at + length]))
        assert not why, explain(model, peers, at, length, f"step {step}: read {at}+{length}: {why}")
    elif kind in ("truncate", "truncate_by_name"):
        same(peer.ask((kind, at)), None, f"step {step}: {kind}")
        model.truncate(at)
    elif kind == "punch":
        same(peer.ask((kind, at, length)), None, f"step {step}: {kind}")
        model.punch(at, length)
    elif kind in ("sync", "reopen"):
        same(peer.ask((kind,)), None, f"step {step}: {kind}")
    else:
        same(peer.ask(("size",)), (len(model.data),) * 2, f"step {step}: sizes by handle and by name")
    return f"{kind} {at}+{length}"


@case
def model_shared_regions(a, b, run):
    """Random reads, writes, appends, truncates and holes on one file, by two processes on two mounts that take turns
    at random (the token goes through a pipe): each reads what the model says."""
    for seed in range(run.seed, run.seed + run.rounds(2, 20)):
        rng = random.Random(seed)
        put(path(a, "f"))
        model = Model()
        peers = [Peer(OneFile(path(top, "f"))) for top in (a, b)]
        last = []
        try:
            for step in range(run.rounds(600, 5000)):
                which = rng.randrange(2)
                last.append(f"{'ab'[which]}: {shared_step(rng, model, peers, which, step)}")
        except AssertionError as failed:
            raise AssertionError(f"seed {seed}, mount {'ab'[which]}: {failed}\nbefore: " + "; ".join(last[-12:])) \
                from failed
        for which, peer in enumerate(peers):
            same_bytes(peer.ask(("whole",)), bytes(model.data), f"seed {seed}: in the end on {'ab'[which]}")
            peer.close()


def strips(who, count, width):
    """The places of one of two writers: every second strip of the file."""
    return [(n * width, width) for n in range(who, count, 2)]


@case
def model_disjoint_regions(a, b, run):
    """Random reads and writes on one file by two processes on two mounts at the same time, each in strips of its own
    that share pages and stripes with the other's."""
    for seed in range(run.seed, run.seed + run.rounds(2, 20)):
        width = (47008, 1000, 4096 * 3 + 1, 300_001)[seed % 4]
        count = 40
        put(path(a, "f"), bytes(width * count))
        steps = run.rounds(500, 5000)

        def worker(top, who):
            def work():
                rng = random.Random(seed * 2 + who)
                mine = strips(who, count, width)
                models = {at: bytearray(length) for at, length in mine}
                with Open() as files:
                    fd = files.fd(path(top, "f"))
                    for step in range(steps):
                        at, length = rng.choice(mine)
                        start = rng.randrange(length)
                        part = rng.randrange(1, length - start + 1)
                        kind = rng.random()
                        if kind < 0.5:
                            data = rng.randbytes(part)
                            same(os.pwrite(fd, data, at + start), part, f"step {step}: bytes written")
                            models[at][start:start + part] = data
                        elif kind < 0.95:
                            same_bytes(os.pread(fd, part, at + start), bytes(models[at][start:start + part]),
                                       f"seed {seed}, writer {who}, step {step}: read {at + start}+{part}")
                        elif kind < 0.98:
                            fallocate(fd, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, at + start, part)
                            models[at][start:start + part] = bytes(part)
                        else:
                            os.fsync(fd)
                return {at: bytes(data) for at, data in models.items()}
            return work
        one, two = at_once(worker(a, 0), worker(b, 1))
        want = b"".join((one | two)[n * width] for n in range(count))
        for top, which in ((a, "first"), (b, "second")):
            got = get(path(top, "f"))
            why = differs(got, want)
            assert not why, f"seed {seed}, width {width}, read on the {which} mount: {why}"


# Names.

NAMES = [f"{directory}{name}" for directory in ("", "d/", "e/", "d/s/") for name in ("x", "y", "z")] + ["d", "e", "d/s"]


RENAMES = {"rename": 0, "exchange": RENAME_EXCHANGE, "noreplace": RENAME_NOREPLACE}


def rename(old, new, flags):
    """Renames. A rename between directories that finds a directory under a name where this mount has not seen it yet
    is told ESTALE by the kernel itself, which cannot move its entry while it holds the rename lock."""
    try:
        renameat2(old, new, flags)
    except OSError as failed:
        if failed.errno != errno.ESTALE:
            raise
        for name in (old, new):
            result(os.lstat, name)
        renameat2(old, new, flags)


def tree_step(request, top):
    """One operation on the tree below `top`."""
    kind, one, two, number = request
    first, second = path(top, one), path(top, two)
    if kind == "create":
        put(first, b"x" * number, os.O_CREAT | os.O_EXCL)
    elif kind == "write":
        put(first, b"%d" % number, os.O_CREAT)
    elif kind == "cut":
        os.truncate(first, number)
    elif kind == "read":
        return get(first)
    elif kind == "mkdir":
        os.mkdir(first)
    elif kind == "unlink":
        os.unlink(first)
    elif kind == "rmdir":
        os.rmdir(first)
    elif kind in RENAMES:
        rename(first, second, RENAMES[kind])
    elif kind == "link":
        os.link(first, second, follow_symlinks=False)
    elif kind == "symlink":
        os.symlink(os.path.basename(one), second)
    elif kind == "readlink":
        return os.readlink(first)
    elif kind == "chmod":
        os.chmod(first, 0o600 | number & 0o177)
    elif kind == "times":
        os.utime(first, ns=(number, number * 1000), follow_symlinks=False)
    elif kind == "setxattr":
        os.setxattr(first, "user.x", b"%d" % number)
    elif kind == "getxattr":
        return os.getxattr(first, "user.x")
    elif kind == "list":
        return sorted(os.listdir(first))
    else:
        return described(first)
    return None


def described(name):
    """What stat says, but for what no two file systems have in common."""
    info = os.lstat(name)
    if stat.S_ISDIR(info.st_mode):
        return stat.filemode(info.st_mode)
    return stat.filemode(info.st_mode), info.st_size, info.st_nlink


KINDS = {"create": 10, "write": 8, "cut": 3, "read": 6, "mkdir": 8, "unlink": 8, "rmdir": 5, "rename": 12, "exchange": 2,
         "noreplace": 2, "link": 5, "symlink": 3, "readlink": 3, "chmod": 4, "times": 2, "setxattr": 3, "getxattr": 4,
         "list": 5, "stat": 14}


class Trees:
    """The handler of a process: the tree on its mount."""

    def __init__(self, top):
        self.top = top

    def __call__(self, request):
        return tree_step(request, self.top)


def equal_errors(got, want):
    """Whether two results are the same. Where two rules forbid one operation, file systems differ in which they
    name."""
    if got == want:
        return True
    both = {got, want} if isinstance(got, str) and isinstance(want, str) else set()
    return both in ({"ENOTEMPTY", "EEXIST"},)


@case
def model_names(a, b, run):
    """Random operations on a small tree, each on one of two mounts at random, beside the same on a local directory:
    the same results and errors at every step."""
    for seed in range(run.seed, run.seed + run.rounds(4, 40)):
        rng = random.Random(seed)
        local = tempfile.mkdtemp(prefix="coherence.", dir=local_directory())
        tops = [path(top, str(seed)) for top in (a, b)]
        os.mkdir(tops[0])
        peers = [Peer(Trees(top)) for top in tops]
        last = []
        try:
            for step in range(run.rounds(500, 5000)):
                kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
                request = (kind, rng.choice(NAMES), rng.choice(NAMES), rng.randrange(1, 3000))
                which = rng.randrange(2)
                got, want = peers[which].ask(request), result(tree_step, request, local)
                last.append(f"{'ab'[which]}: {kind} {request[1]} {request[2]} = {want}")
                if not equal_errors(got, want):
                    raise AssertionError(f"seed {seed}, step {step}: {got} on a mount, {want} locally; before: "
                                         + "; ".join(last[-15:]))
        finally:
            for peer in peers:
                peer.close()
            shutil.rmtree(local)


def local_directory():
    """Where a local file system with extended attributes of users is."""
    for directory in ("/var/tmp", "/tmp"):
        with tempfile.NamedTemporaryFile(dir=directory) as file:
            try:
                os.setxattr(file.name, "user.x", b"")
                return directory
            except OSError as failed:
                if failed.errno != errno.EOPNOTSUPP:
                    raise
    return None
