"""The ledger: what was acknowledged and synced on a mount, written down outside of it, and compared after a crash.

Each `Writer` works in a directory of its own. It notes an operation before it begins (then either state may be found after a
crash) and again when the sync behind it has returned (then only the new one may). What docs/posix.md promises is the rule:
fsync returns when the data, the name and the attributes are durable; fsync of a directory when every change of names is.
Files that are never synced may be missing or short after a crash, but show no bytes of others.
"""

import ctypes
import errno
import hashlib
import mmap
import os
import stat

from box import libc

ABSENT = None
AT_FDCWD = -100
AT_SYMLINK_FOLLOW = 0x400
RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
XATTR = "user.ledger"
# Names of a writer that are kept at most: older ones make room, so that every kind meets every other.
NAMES_MAX = 60
SIZE_MAX = 200_000
BLOCK = 4096


def pattern(tag, length):
    """Bytes that nobody else writes: each 32 of them say whose they are."""
    piece = hashlib.sha256(tag.encode()).digest()
    return (piece * (length // len(piece) + 1))[:length]


class Inode:
    """What a file or directory has to be."""

    def __init__(self, kind, mode, data=b"", target=""):
        self.kind, self.mode, self.data, self.target = kind, mode, bytes(data), target
        self.uid = self.gid = 0
        self.mtime = None
        self.xattr = None

    def copy(self):
        """The state of now."""
        other = Inode(self.kind, self.mode, self.data, self.target)
        other.uid, other.gid, other.mtime, other.xattr = self.uid, self.gid, self.mtime, self.xattr
        return other


class Writer:
    """Operations with their syncs in one directory, and what has to be there."""

    def __init__(self, root, number, random, ledger=None):
        self.root = os.path.join(root, f"w{number}")
        self.number, self.random = number, random
        self.names = {}      # path below root -> Inode; the durable state
        self.gone = {}       # path -> kind of operation that took it away
        self.doubt = None    # operation under way: (kind, [(path, before, after)])
        self.loose = {}      # never synced: path -> tag
        self.serial = 0
        self.done = {}       # kind -> how often acknowledged
        self.last = {}       # path -> kind of the last operation
        self.ledger = ledger

    # ---- the operations

    def begin(self):
        """Makes the writer's directory, durably."""
        os.mkdir(self.root)
        sync_directory(os.path.dirname(self.root))
        for name in ("d0", "d1"):
            os.mkdir(os.path.join(self.root, name))
            self.names[name] = Inode("dir", 0o755)
        sync_directory(self.root)

    def resume(self):
        """After a crash what was in doubt is what was found, and all names are made anew by others."""
        self.doubt = None

    def at(self, path):
        """The whole path."""
        return os.path.join(self.root, path)

    def fresh(self):
        """A name that was never used."""
        self.serial += 1
        directory = self.random.choice(["", "d0/", "d1/"])
        return f"{directory}n{self.serial}"

    def files(self, kind="file"):
        """Names of one kind."""
        return [path for path, inode in self.names.items() if inode.kind == kind and path not in ("d0", "d1")]

    def step(self):
        """One operation and its sync. OSError if the mount has gone."""
        files = self.files()
        if len(self.names) > NAMES_MAX:
            kind = "unlink"
        elif len(files) < 4:
            kind = "create"
        else:
            kind = self.random.choice(KINDS)
        self.do(kind)

    def do(self, kind):
        """One operation of a kind."""
        plan = getattr(self, "do_" + kind)
        generator = plan()
        changes = next(generator, None)
        if changes is None:
            return
        self.doubt = (kind, changes)
        self.note("begin", kind, changes)
        try:
            next(generator)
        except StopIteration:
            pass
        for path, _, after in changes:
            if after is ABSENT:
                self.names.pop(path, None)
                self.gone[path] = kind
            else:
                self.names[path] = after
                self.gone.pop(path, None)
            self.last[path] = kind
        self.doubt = None
        self.done[kind] = self.done.get(kind, 0) + 1
        self.note("synced", kind, changes)

    def note(self, phase, kind, changes):
        """A line for people, in a file that no crash of the file system reaches."""
        if self.ledger:
            self.ledger.write(f"{phase} w{self.number} {kind} {' '.join(path for path, _, _ in changes)}\n")

    # Each first says what it changes (path, before, after), then does it and syncs.

    def new_data(self, path):
        """Data for a file, and its tag."""
        return pattern(f"{self.number}/{path}/{self.serial}/{self.random.random()}", self.random.choice(
            [0, 1, 100, 4096, 5000, 70_000, self.random.randrange(SIZE_MAX)]))

    def do_create(self):
        path = self.fresh()
        inode = Inode("file", 0o644, self.new_data(path))
        yield [(path, ABSENT, inode)]
        with open(self.at(path), "xb", buffering=0) as file:
            write_all(file.fileno(), inode.data)
            os.fsync(file.fileno())

    def do_create_osync(self):
        path = self.fresh()
        inode = Inode("file", 0o644, self.new_data(path)[:8192])
        yield [(path, ABSENT, inode)]
        file = os.open(self.at(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_SYNC, 0o644)
        try:
            write_all(file, inode.data)
            # The name is durable with the sync of a descriptor (O_SYNC promises the data).
            os.fsync(file)
        finally:
            os.close(file)

    def changed(self, path):
        """(inode before, inode after to be changed, all names of it)."""
        before = self.names[path]
        after = before.copy()
        names = [name for name, inode in self.names.items() if inode is before]
        return before, after, [(name, before, after) for name in names]

    def pick(self, kind="file"):
        """A name that there is; None if there is none."""
        paths = self.files(kind)
        return self.random.choice(paths) if paths else None

    def do_overwrite(self):
        path = self.pick()
        _, after, changes = self.changed(path)
        offset = self.random.randrange(len(after.data) + 1)
        data = pattern(f"{self.number}/{path}/over/{self.random.random()}", self.random.choice([1, 13, 4096, 20_000]))
        after.data = after.data[:offset] + data + after.data[offset + len(data):]
        after.mtime = None
        yield changes
        file = os.open(self.at(path), os.O_RDWR)
        try:
            os.lseek(file, offset, os.SEEK_SET)
            write_all(file, data)
            os.fsync(file)
        finally:
            os.close(file)

    def do_append(self):
        path = self.pick()
        _, after, changes = self.changed(path)
        data = pattern(f"{self.number}/{path}/append/{self.random.random()}", self.random.choice([1, 47, 4096, 9000]))
        after.data += data
        after.mtime = None
        yield changes
        file = os.open(self.at(path), os.O_WRONLY | os.O_APPEND)
        try:
            write_all(file, data)
            os.fdatasync(file)
        finally:
            os.close(file)

    def do_truncate(self):
        path = self.pick()
        _, after, changes = self.changed(path)
        size = self.random.choice([0, self.random.randrange(len(after.data) + 1), len(after.data) + 5000])
        after.data = after.data[:size] + bytes(max(0, size - len(after.data)))
        after.mtime = None
        yield changes
        os.truncate(self.at(path), size)
        sync_file(self.at(path))

    def do_fallocate(self):
        path = self.pick()
        _, after, changes = self.changed(path)
        size = len(after.data) + self.random.choice([1, 4096, 100_000])
        after.data += bytes(size - len(after.data))
        after.mtime = None
        yield changes
        file = os.open(self.at(path), os.O_RDWR)
        try:
            os.posix_fallocate(file, 0, size)
            os.fsync(file)
        finally:
            os.close(file)

    def do_mapped(self):
        path = self.pick()
        if not self.names[path].data:
            return
        _, after, changes = self.changed(path)
        offset = self.random.randrange(len(after.data))
        data = pattern(f"{self.number}/{path}/map/{self.random.random()}", min(3000, len(after.data) - offset))
        after.data = after.data[:offset] + data + after.data[offset + len(data):]
        after.mtime = None
        yield changes
        in_a_child(change_mapped, self.at(path), len(after.data), offset, data)

    def do_copy(self):
        path, target = self.pick(), self.fresh()
        inode = Inode("file", 0o644, self.names[path].data)
        yield [(target, ABSENT, inode)]
        source = os.open(self.at(path), os.O_RDONLY)
        file = os.open(self.at(target), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            left = len(inode.data)
            while left:
                left -= os.copy_file_range(source, file, left)
            os.fsync(file)
        finally:
            os.close(file)
            os.close(source)

    # Attributes, each synced through a descriptor that was opened only to read.

    def attribute(self, change):
        """A change of attributes of a file, or now and then a directory."""
        path = self.pick() if self.random.random() < 0.8 else (self.pick("dir") or self.pick())
        _, after, changes = self.changed(path)
        return path, after, changes, change

    def do_chmod(self):
        path, after, changes, _ = self.attribute("mode")
        after.mode = self.random.choice([0o600, 0o640, 0o755, 0o4755, 0o1644]) if after.kind == "file" else 0o700
        yield changes
        os.chmod(self.at(path), after.mode)
        sync_file(self.at(path))

    def do_chown(self):
        path, after, changes, _ = self.attribute("owner")
        after.uid, after.gid = self.random.randrange(1, 5000), self.random.randrange(1, 5000)
        after.mode &= 0o1777
        yield changes
        os.chown(self.at(path), after.uid, after.gid)
        sync_file(self.at(path))

    def do_utimens(self):
        path, after, changes, _ = self.attribute("times")
        if after.kind == "dir":
            return
        after.mtime = self.random.randrange(10 ** 18, 2 * 10 ** 18)
        yield changes
        os.utime(self.at(path), ns=(after.mtime, after.mtime))
        sync_file(self.at(path))

    def do_setxattr(self):
        path, after, changes, _ = self.attribute("xattr")
        after.xattr = pattern(f"{self.random.random()}", self.random.choice([1, 100, 3000]))
        yield changes
        os.setxattr(self.at(path), XATTR, after.xattr)
        sync_file(self.at(path))

    def do_removexattr(self):
        paths = [path for path in self.files() if self.names[path].xattr is not None]
        if not paths:
            return
        path = self.random.choice(paths)
        _, after, changes = self.changed(path)
        after.xattr = None
        yield changes
        os.removexattr(self.at(path), XATTR)
        sync_file(self.at(path))

    # Names.

    def do_rename_sync_directory(self):
        path, target = self.pick(), self.fresh()
        inode = self.names[path]
        yield [(path, inode, ABSENT), (target, ABSENT, inode)]
        os.rename(self.at(path), self.at(target))
        sync_directory(os.path.dirname(self.at(target)))
        sync_directory(os.path.dirname(self.at(path)))

    def do_rename_sync_file(self):
        path, target = self.pick(), self.fresh()
        inode = self.names[path]
        yield [(path, inode, ABSENT), (target, ABSENT, inode)]
        os.rename(self.at(path), self.at(target))
        sync_file(self.at(target))

    def do_rename_over(self):
        path, target = self.pick(), self.pick()
        if self.names[path] is self.names[target]:
            return
        yield [(path, self.names[path], ABSENT), (target, self.names[target], self.names[path])]
        os.rename(self.at(path), self.at(target))
        sync_file(self.at(target))

    def do_replace(self):
        """What editors do: write beside, fsync, rename over, fsync of the same descriptor."""
        target = self.pick()
        inode = Inode("file", 0o644, self.new_data(target))
        temporary = self.fresh()
        yield [(target, self.names[target], inode)]
        self.loose[temporary] = None
        with open(self.at(temporary), "xb", buffering=0) as file:
            write_all(file.fileno(), inode.data)
            os.fsync(file.fileno())
            os.rename(self.at(temporary), self.at(target))
            os.fsync(file.fileno())
        self.loose.pop(temporary)

    def do_exchange(self):
        path, target = self.pick(), self.pick()
        if self.names[path] is self.names[target]:
            return
        yield [(path, self.names[path], self.names[target]), (target, self.names[target], self.names[path])]
        renameat2(self.at(path), self.at(target), RENAME_EXCHANGE)
        sync_file(self.at(target))

    def do_link_sync_file(self):
        path, target = self.pick(), self.fresh()
        yield [(target, ABSENT, self.names[path])]
        os.link(self.at(path), self.at(target))
        sync_file(self.at(path))

    def do_link_sync_directory(self):
        path, target = self.pick(), self.fresh()
        yield [(target, ABSENT, self.names[path])]
        os.link(self.at(path), self.at(target))
        sync_directory(os.path.dirname(self.at(target)))

    def do_symlink(self):
        target = self.fresh()
        yield [(target, ABSENT, Inode("link", 0o777, target=f"to/{self.random.random()}"))]
        os.symlink(self.doubt[1][0][2].target, self.at(target))
        sync_directory(os.path.dirname(self.at(target)))

    def do_mknod(self):
        path = self.fresh()
        yield [(path, ABSENT, Inode("file", 0o644))]
        os.mknod(self.at(path), stat.S_IFREG | 0o644)
        sync_file(self.at(path))

    def do_fifo(self):
        path = self.fresh()
        yield [(path, ABSENT, Inode("fifo", 0o600))]
        os.mkfifo(self.at(path), 0o600)
        sync_directory(os.path.dirname(self.at(path)))

    def do_mkdir(self):
        path = self.fresh()
        yield [(path, ABSENT, Inode("dir", 0o755))]
        os.mkdir(self.at(path))
        sync_directory(os.path.dirname(self.at(path)))

    def do_mkdir_sync_self(self):
        path = self.fresh()
        yield [(path, ABSENT, Inode("dir", 0o755))]
        os.mkdir(self.at(path))
        sync_directory(self.at(path))

    def do_rmdir(self):
        path = self.pick("dir")
        if path is None:
            return
        yield [(path, self.names[path], ABSENT)]
        os.rmdir(self.at(path))
        sync_directory(os.path.dirname(self.at(path)))

    def do_unlink(self):
        path = self.random.choice(self.files() + self.files("link") + self.files("fifo"))
        yield [(path, self.names[path], ABSENT)]
        os.unlink(self.at(path))
        sync_directory(os.path.dirname(self.at(path)))

    def do_temporary(self):
        path = self.fresh()
        inode = Inode("file", 0o600, self.new_data(path)[:30_000])
        yield [(path, ABSENT, inode)]
        file = os.open(self.root, os.O_RDWR | os.O_TMPFILE, 0o600)
        try:
            write_all(file, inode.data)
            linkat(f"/proc/self/fd/{file}", self.at(path))
            os.fsync(file)
        finally:
            os.close(file)

    def do_loose(self):
        """Never synced: it may be missing, or short, or have zeros, but no other bytes."""
        path = self.fresh()
        tag = f"{self.number}/{path}/loose"
        self.loose[path] = tag
        with open(self.at(path), "xb", buffering=0) as file:
            write_all(file.fileno(), pattern(tag, self.random.randrange(1, SIZE_MAX)))
        if len(self.loose) > 10:
            gone = self.random.choice(list(self.loose))
            self.loose.pop(gone)
            try:
                os.unlink(self.at(gone))
            except FileNotFoundError:
                pass
        return
        yield

    # ---- the comparison

    def check(self, fail):
        """Compares what is there with the ledger. `fail(text)` is called for each difference; returns how much was compared."""
        doubt_kind, doubtful = self.doubt or ("", [])
        settled = {}
        for path, before, after in doubtful:
            settled[path] = self.settle(path, before, after, doubt_kind, fail)
        self.one_moment(doubtful, settled, doubt_kind, fail)
        for path, inode in self.names.items():
            if path not in settled:
                self.compare(path, inode, inode, f"last {self.last.get(path, 'begin')}", fail)
        for path, kind in self.gone.items():
            if path not in settled and os.path.lexists(self.at(path)):
                fail(f"{kind}: {path} of w{self.number} is there again")
        for path, tag in self.loose.items():
            if tag:
                self.check_loose(path, tag, fail)
        return len(self.names) + len(self.gone)

    def settle(self, path, before, after, kind, fail):
        """What was found of a name whose operation was under way."""
        if not os.path.lexists(self.at(path)):
            if before is not ABSENT and after is not ABSENT:
                fail(f"{kind} under way: {path} of w{self.number} has gone, and was there before and after")
            return ABSENT
        if before is ABSENT and after is ABSENT:
            fail(f"{kind} under way: {path} of w{self.number} is there")
        if before is ABSENT:
            # It was made, and perhaps not all of it written.
            before = after.copy()
            before.data, before.mtime, before.xattr = b"", None, None
        self.compare(path, before, after or before, f"under way {kind}", fail)
        return True

    def one_moment(self, doubtful, settled, kind, fail):
        """A rename to a new name has happened or not: one of the names is there."""
        if kind.startswith("rename_sync") and len(doubtful) == 2 and len({bool(settled[p]) for p, _, _ in doubtful}) == 1:
            fail(f"{kind} under way: {[p for p, _, _ in doubtful]} of w{self.number} are {settled}")

    def compare(self, path, before, after, what, fail):
        """Compares a file with what it has to be; where the two states differ, each is right."""
        where = self.at(path)
        who = f"{what}: {path} of w{self.number}"
        try:
            found = os.lstat(where)
        except OSError as error:
            fail(f"{who}: {errno.errorcode.get(error.errno)}")
            return
        kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFLNK: "link", stat.S_IFIFO: "fifo"}
        kind = kinds.get(stat.S_IFMT(found.st_mode))
        if kind not in (before.kind, after.kind):
            fail(f"{who}: is a {kind}, not a {after.kind}")
            return
        if stat.S_IMODE(found.st_mode) & 0o777 not in (before.mode & 0o777, after.mode & 0o777):
            fail(f"{who}: mode {stat.S_IMODE(found.st_mode):o}, not {after.mode:o}")
        if (found.st_uid, found.st_gid) not in ((before.uid, before.gid), (after.uid, after.gid)):
            fail(f"{who}: owner {found.st_uid}:{found.st_gid}, not {after.uid}:{after.gid}")
        if before.mtime and after.mtime and found.st_mtime_ns not in (before.mtime, after.mtime):
            fail(f"{who}: mtime {found.st_mtime_ns}, not {after.mtime}")
        try:
            if kind == "link":
                if os.readlink(where) not in (before.target, after.target):
                    fail(f"{who}: leads elsewhere")
            elif kind == "file":
                self.compare_data(where, before.data, after.data, who, fail)
            if kind in ("file", "dir"):
                self.compare_xattr(where, before.xattr, after.xattr, who, fail)
        except OSError as error:
            fail(f"{who}: {errno.errorcode.get(error.errno)} while it was read")

    def compare_xattr(self, where, before, after, who, fail):
        """The one attribute that is used."""
        try:
            found = os.getxattr(where, XATTR)
        except OSError as error:
            if error.errno != errno.ENODATA:
                raise
            found = None
        if found not in (before, after):
            fail(f"{who}: the xattr has {found and len(found)} bytes, not {after and len(after)}")

    def compare_data(self, where, before, after, who, fail):
        """Bytes. While an operation was under way each may be old, new, or zero where the file grew."""
        with open(where, "rb") as file:
            found = file.read()
        if found in (before, after):
            return
        if before == after:
            fail(f"{who}: {difference(found, after)}")
            return
        if not min(len(before), len(after)) <= len(found) <= max(len(before), len(after)):
            fail(f"{who}: {len(found)} bytes, neither {len(before)} nor {len(after)}")
        for at, byte in enumerate(found):
            if byte and byte not in (before[at:at + 1] + after[at:at + 1]):
                fail(f"{who}: a foreign byte at {at}")
                return

    def check_loose(self, path, tag, fail):
        """A file that was never synced."""
        try:
            with open(self.at(path), "rb") as file:
                found = file.read()
        except OSError as error:
            if error.errno != errno.ENOENT:
                fail(f"not synced: {path}: {errno.errorcode.get(error.errno)}")
            return
        for at in range(0, len(found), BLOCK):
            block, right = found[at:at + BLOCK], pattern(tag, at + BLOCK)[at:]
            if any(byte not in (0, right[n]) for n, byte in enumerate(block)):
                fail(f"not synced: {path} has foreign bytes at {at}")
                return


KINDS = [name[3:] for name in dir(Writer) if name.startswith("do_")]


def change_mapped(path, size, offset, data):
    """Changes a file through a mapping, and syncs it."""
    file = os.open(path, os.O_RDWR)
    with mmap.mmap(file, size) as mapping:
        mapping[offset:offset + len(data)] = data
        mapping.flush()  # msync with MS_SYNC
    os.close(file)


def in_a_child(function, *arguments):
    """Calls a function in a process of its own: who touches a mapping of a mount that goes away is killed by SIGBUS."""
    child = os.fork()
    if child == 0:
        try:
            function(*arguments)
            os._exit(0)
        except OSError as error:
            os._exit(min(error.errno or errno.EIO, 255))
        finally:
            os._exit(errno.EIO)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != 0:
        number = status if status > 0 else errno.EIO
        raise OSError(number, os.strerror(number), arguments[0])


def difference(found, wanted):
    """What two contents differ in, in words."""
    if len(found) != len(wanted):
        return f"{len(found)} bytes, not {len(wanted)}"
    at = next(n for n in range(len(found)) if found[n] != wanted[n])
    return f"the byte at {at} of {len(wanted)} is {found[at]}, not {wanted[at]}"


def write_all(file, data):
    """Writes everything."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view):]


def sync_file(path):
    """fsync through a descriptor that was opened only to read."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


sync_directory = sync_file


def checked(status, path):
    """Raises what a call of the C library says."""
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)


def renameat2(source, target, flags):
    """renameat2(2)."""
    checked(libc.renameat2(AT_FDCWD, os.fsencode(source), AT_FDCWD, os.fsencode(target), flags), target)


def linkat(source, target):
    """linkat(2) through a symbolic link, as O_TMPFILE needs it."""
    checked(libc.linkat(AT_FDCWD, os.fsencode(source), AT_FDCWD, os.fsencode(target), AT_SYMLINK_FOLLOW), target)
