"""Attributes: owner, mode, times, sizes, extended attributes and ACLs as the other mount sees them."""

import os
import stat
import struct
import subprocess
import time

from .support import (
    Open, Skip, as_root, as_user, at_once, both_ways, case, elsewhere, fork, get, names, path, put, result, same)

NOBODY = 65534
# close() does not wait until the access time is told.
ATIME_SECONDS = 5
FRIEND = 4242


@case
@both_ways
def chmod_seen(a, b, run):
    """Each change of the mode is seen at once by stat and by fstat of a file that was open before (sanityn 1, 2, 4)."""
    put(path(a, "f"))
    os.mkdir(path(a, "d"))
    with Open() as files:
        held = files.fd(path(b, "f"))
        for n in range(run.rounds(60, 2000)):
            mode = (n * 37) & 0o777 | 0o600
            os.chmod(path(a, "f"), mode)
            same(stat.S_IMODE(os.stat(path(b, "f")).st_mode), mode, "stat of a file")
            same(stat.S_IMODE(os.fstat(held).st_mode), mode, "fstat of an open file")
            os.chmod(path(a, "d"), mode)
            same(stat.S_IMODE(os.stat(path(b, "d")).st_mode), mode, "stat of a directory")


@case
@both_ways
def chmod_root_seen(a, b, run):
    """The mode of the root of the file system, too (sanityn 2c, 2e)."""
    tops = [os.path.dirname(os.path.dirname(os.path.dirname(top))) for top in (a, b)]
    before = stat.S_IMODE(os.stat(tops[1]).st_mode)
    for mode in (0o777, 0o755, before):
        os.chmod(tops[0], mode)
        same(stat.S_IMODE(os.stat(tops[1]).st_mode), mode, "mode of the root")


@case
@as_root
@both_ways
def chmod_against_open(a, b, run):
    """When chmod() has returned, an open of the other mount by another user is decided by the new mode, of the file
    and of the directory above it."""
    os.chmod(a, 0o755)
    os.mkdir(path(a, "d"), 0o755)
    put(path(a, "d", "f"), b"x")

    def user():
        def may():
            return result(get, path(b, "d", "f"))

        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        return may()
    for _ in range(run.rounds(10, 200)):
        for name, closed, wide in ((path("d", "f"), 0o600, 0o644), ("d", 0o700, 0o755), ("d", 0o744, 0o711)):
            same(elsewhere(user), b"x", "before")
            os.chmod(path(a, name), closed)
            same(elsewhere(user), "EACCES", f"{name} is {closed:o}")
            os.chmod(path(a, name), wide)
            same(elsewhere(user), b"x", f"{name} is {wide:o} again")
            os.chmod(path(a, "d"), 0o755)


@case
@as_root
@both_ways
def chmod_against_open_and_times(a, b, run):
    """The same while the times of the file change all the time: what is taken back from the kernel in the middle of its
    question for the mode must not make it decide by the mode of before."""
    os.chmod(a, 0o755)
    put(path(a, "f"), b"x")
    over = fork.Event()

    def times():
        n = 0
        while not over.is_set():
            n += 1
            os.utime(path(a, "f"), ns=(n, n))

    def modes():
        try:
            for _ in range(run.rounds(60, 1000)):
                os.chmod(path(a, "f"), 0o600)
                same(as_user(NOBODY, lambda: get(path(b, "f"))), "EACCES", "f is 600")
                os.chmod(path(a, "f"), 0o644)
                same(as_user(NOBODY, lambda: get(path(b, "f"))), b"x", "f is 644 again")
        finally:
            over.set()
    at_once(times, modes)


@case
@as_root
@both_ways
def chown_seen(a, b, run):
    """Owner and group are seen at once, clear the bits that chown clears, and decide who may open."""
    os.chmod(a, 0o755)
    put(path(a, "f"), b"x")
    for n in range(run.rounds(20, 300)):
        os.chmod(path(a, "f"), 0o6770)
        same(os.stat(path(b, "f")).st_mode & 0o7777, 0o6770, "before")
        os.chown(path(a, "f"), FRIEND + n % 3, NOBODY - n % 5)
        got = os.stat(path(b, "f"))
        same((got.st_uid, got.st_gid), (FRIEND + n % 3, NOBODY - n % 5), "owner and group")
        same(got.st_mode & 0o7777, 0o770, "mode")
    for owner, want in ((FRIEND, "EACCES"), (NOBODY, b"x"), (0, "EACCES")):
        os.chown(path(a, "f"), owner, 0)
        os.chmod(path(a, "f"), 0o600)
        same(as_user(NOBODY, lambda: get(path(b, "f"))), want, f"read with owner {owner}")


@case
@as_root
@both_ways
def new_owner_may(a, b, run):
    """Whoever is given a file by the other mount may change its mode and times, and remove it where only owners may, at once."""
    give_away(a, b, run.rounds(5, 50))


@case
@as_root
@both_ways
def new_owner_may_after_many(a, b, run):
    """The same after the mode of more files has changed than a mount looks after (4,096), about which nobody has asked since."""
    os.mkdir(path(a, "many"))
    many = [f"f{n}" for n in range(5000)]
    for name in many:
        put(path(a, "many", name))
    for name in many:
        os.stat(path(b, "many", name))
    for name in many:
        os.chmod(path(a, "many", name), 0o600)
    give_away(a, b, run.rounds(100, 300))


def give_away(a, b, rounds):
    os.chmod(a, 0o1777)
    file, there = path(a, "f"), path(b, "f")
    ask = {
        "chmod": lambda: os.chmod(there, 0o640),
        "utime": lambda: os.utime(there, (7, 7)),
        "unlink": lambda: os.unlink(there),
    }
    for n in range(rounds):
        for name, change in ask.items():
            put(file, b"x")
            os.chown(file, FRIEND, FRIEND)
            same(os.stat(there).st_uid, FRIEND, "before")
            os.chown(file, NOBODY, NOBODY)
            same(as_user(NOBODY, change), None, f"{name} {n}")


@case
@as_root
@both_ways
def truncated_by_reader(a, b, run):
    """O_TRUNC of a file that is opened to read cuts it."""
    for _ in range(run.rounds(5, 50)):
        put(path(a, "f"), b"x" * 100)
        os.close(os.open(path(b, "f"), os.O_RDONLY | os.O_TRUNC))
        same(os.stat(path(a, "f")).st_size, 0, "size")


@case
@both_ways
def times_set_after_reading(a, b, run):
    """A time of access that the other mount sets stays, although this one has read what it made before, and tells of that later."""
    past = 1_000_000_000
    for n in range(run.rounds(3, 20)):
        made = [path(a, f"d{n}"), path(a, f"f{n}")]
        os.mkdir(made[0])
        put(made[1], b"x")
        names(made[0])
        get(made[1])
        with Open() as files:
            files.fd(made[1])
            for name in (f"d{n}", f"f{n}"):
                os.utime(path(b, name), (past, past))
        time.sleep(1)
        for top in (a, b):
            for name in (f"d{n}", f"f{n}"):
                same(os.stat(path(top, name)).st_atime, past, f"time of access of {name}")


@case
@as_root
@both_ways
def no_time_of_access(a, b, run):
    """O_NOATIME is heeded, of files and of directories."""
    os.mkdir(path(a, "d"))
    put(path(a, "f"), b"x")
    for name in ("d", "f"):
        os.utime(path(a, name), (1_000_000_000, 1_000_000_000))
        with Open() as files:
            held = files.fd(path(a, name), os.O_RDONLY | os.O_NOATIME)
            os.listdir(held) if name == "d" else os.read(held, 1)
        time.sleep(1)
        for top in (a, b):
            same(os.stat(path(top, name)).st_atime, 1_000_000_000, f"time of access of {name}")


@case
@as_root
@both_ways
def suid_cleared_by_write(a, b, run):
    """A write by another user takes the set-user bits away, for both mounts."""
    os.chmod(a, 0o755)
    for n in range(run.rounds(5, 50)):
        put(path(a, "f"), b"x")
        os.chmod(path(a, "f"), 0o6777)
        same(os.stat(path(b, "f")).st_mode & 0o7777, 0o6777, "before")
        same(as_user(NOBODY, lambda: put(path(a, "f"), b"y", 0)), None, "write")
        same(os.stat(path(b, "f")).st_mode & 0o7777, 0o777, "after")


@case
@as_root
@both_ways
def suid_set_by_the_other(a, b, run):
    """What one mount sets while the other has the file open, a write of a user through that takes away: setuid, setgid, capabilities."""
    os.chmod(a, 0o755)
    capability = bytes.fromhex("0100000200200000000000000000000000000000")
    changes = [lambda fd: os.pwrite(fd, b"y", 0), lambda fd: os.posix_fallocate(fd, 0, 200)]
    for n in range(run.rounds(6, 60)):
        name = f"f{n}"
        put(path(a, name), b"x")
        os.chmod(path(a, name), 0o666)
        with Open() as files:
            held = files.fd(path(a, name), os.O_RDWR)
            os.chmod(path(b, name), [0o4777, 0o2777, 0o6777][n % 3])
            same(as_user(NOBODY, lambda: changes[n % 2](held) and None), None, "a change")
            same(os.stat(path(b, name)).st_mode & 0o7777, 0o777, "mode after")
            os.setxattr(path(b, name), "security.capability", capability)
            same(as_user(NOBODY, lambda: changes[0](held) and None), None, "a write")
            same("security.capability" in os.listxattr(path(b, name)), False, "a capability after")


@case
@both_ways
def times_seen(a, b, run):
    """utimensat with nanoseconds, past and future, is seen at once by name and on open files."""
    put(path(a, "f"))
    with Open() as files:
        held = files.fd(path(b, "f"))
        for n in range(run.rounds(50, 1000)):
            want = (10**18 + n * 1_000_000_007, 2 * 10**18 - n * 999_999_937)
            os.utime(path(a, "f"), ns=want)
            for info in (os.stat(path(b, "f")), os.fstat(held)):
                same((info.st_atime_ns, info.st_mtime_ns), want, "times")


@case
@both_ways
def times_set_while_open(a, b, run):
    """Times that are set while the other mount has the file open for writing stay set after its close
    (sanityn 26c)."""
    for wrote in (False, True):
        with Open() as files:
            held = files.fd(path(b, "f"), os.O_RDWR | os.O_CREAT)
            if wrote:
                os.write(held, b"x" * 100)
            os.utime(path(a, "f"), (978261179, 978261179))
            os.close(held)
        for top in (a, b):
            info = os.stat(path(top, "f"))
            same((info.st_atime, info.st_mtime), (978261179, 978261179), f"times, {wrote=}")


def later(name, than):
    """The mtime of a file, which has to be later."""
    got = os.stat(name).st_mtime_ns
    assert got > than, f"mtime {got} is not later than {than}"
    return got


@case
@both_ways
def mtime_of_writes(a, b, run):
    """mtime follows writes and truncates of the other mount, also when it was set into the past, and both mounts see
    the same one (sanityn 26b, 39)."""
    past = 10**18
    with Open() as files:
        fd = files.fd(path(a, "f"), os.O_RDWR | os.O_CREAT)
        steps = (lambda: os.pwrite(fd, b"hello", 0), lambda: os.truncate(path(a, "f"), 2),
                 lambda: os.ftruncate(fd, 9000), lambda: put(path(a, "f"), b"more", os.O_APPEND),
                 lambda: put(path(a, "f"), b"", os.O_TRUNC))
        for n, step in enumerate(steps):
            for at in (past, 0):
                if at:
                    os.utime(path(b, "f"), ns=(past, past))
                    same(os.fstat(fd).st_mtime_ns, past, "set into the past")
                before = os.stat(path(b, "f"))
                step()
                later(path(b, "f"), before.st_mtime_ns) if at else None
                one, two = os.stat(path(a, "f")), os.stat(path(b, "f"))
                same(one.st_mtime_ns, two.st_mtime_ns, f"mtime on both after step {n}")
                same(one.st_ctime_ns, two.st_ctime_ns, f"ctime on both after step {n}")
    before = os.stat(path(a, "f")).st_mtime_ns
    os.rename(path(a, "f"), path(a, "g"))
    same([os.stat(path(top, "g")).st_mtime_ns for top in (a, b)], [before] * 2, "mtime after rename")


@case
@both_ways
def ctime_seen(a, b, run):
    """chmod, link, rename and setxattr change ctime for the other mount, and leave mtime."""
    put(path(a, "f"), b"x")
    steps = (lambda: os.chmod(path(a, "f"), 0o640), lambda: os.link(path(a, "f"), path(a, "l")),
             lambda: os.rename(path(a, "l"), path(a, "m")), lambda: os.unlink(path(a, "m")),
             lambda: os.setxattr(path(a, "f"), "user.x", b"1"), lambda: os.removexattr(path(a, "f"), "user.x"))
    for n, step in enumerate(steps):
        before = os.stat(path(b, "f"))
        # The clock of a file may tick slowly: wait until it has.
        while True:
            os.chmod(a, 0o755)
            if os.stat(a).st_ctime_ns > before.st_ctime_ns:
                break
        step()
        after = os.stat(path(b, "f"))
        assert after.st_ctime_ns > before.st_ctime_ns, f"ctime after step {n}"
        same(after.st_mtime_ns, before.st_mtime_ns, f"mtime after step {n}")


@case
@both_ways
def atime_seen(a, b, run):
    """A read on one mount shows in the atime on the other soon after the file was closed (sanityn 23)."""
    put(path(a, "f"), b"x")
    past = 10**18
    for _ in range(run.rounds(3, 30)):
        os.utime(path(a, "f"), ns=(past, past + 1))
        same(os.stat(path(b, "f")).st_atime_ns, past, "before")
        get(path(a, "f"))
        if os.stat(path(a, "f")).st_atime_ns == past:
            raise Skip("the file system is mounted noatime")
        end = time.monotonic() + ATIME_SECONDS
        while os.stat(path(b, "f")).st_atime_ns == past:
            assert time.monotonic() < end, "atime after the read"


@case
@both_ways
def size_while_writing(a, b, run):
    """After each write of the other mount, not synced and not closed, stat and fstat see its size, and an mtime that
    does not go back (sanityn 26a, 105)."""
    with Open() as files:
        fd = files.fd(path(a, "f"), os.O_WRONLY | os.O_CREAT)
        held = files.fd(path(b, "f"), os.O_RDONLY)
        size = mtime = 0
        for n in range(run.rounds(60, 2000)):
            length = 1 + (n * 7919) % 50000
            os.write(fd, b"x" * length)
            size += length
            for info in (os.stat(path(b, "f")), os.fstat(held)):
                same(info.st_size, size, f"size after write {n}")
                assert info.st_mtime_ns >= mtime, "mtime goes back"
                mtime = info.st_mtime_ns
            same(os.lseek(held, 0, os.SEEK_END), size, "SEEK_END")


@case
@both_ways
def size_never_goes_back(a, b, run):
    """While one mount only appends, the other never sees the size shrink, nor beyond what was written."""
    count = run.rounds(300, 10000)

    def write():
        with Open() as files:
            fd = files.fd(path(a, "f"), os.O_WRONLY | os.O_CREAT)
            for n in range(count):
                os.write(fd, b"x" * 1000)
                if n % 50 == 0:
                    os.fsync(fd)
        put(path(a, "done"))

    def look():
        last = 0
        while not os.path.exists(path(b, "done")):
            try:
                size = os.stat(path(b, "f")).st_size
            except FileNotFoundError:
                continue
            assert last <= size <= count * 1000, f"{size} after {last}"
            last = size
        same(os.stat(path(b, "f")).st_size, count * 1000, "size in the end")
    at_once(write, look)


@case
@both_ways
def blocks_seen(a, b, run):
    """Synced data shows in st_blocks on the other mount, and freed data goes from it (sanityn 2g)."""
    put(path(a, "f"), b"x" * 1_000_000)
    with Open() as files:
        fd = files.fd(path(a, "f"))
        os.fsync(fd)
        got = os.stat(path(b, "f")).st_blocks * 512
        assert 1_000_000 <= got < 4_000_000, f"{got} bytes in blocks"
        os.ftruncate(fd, 0)
        os.fsync(fd)
        got = os.stat(path(b, "f")).st_blocks * 512
        assert got < 500_000, f"{got} bytes in blocks after truncate"


@case
@both_ways
def xattr_seen(a, b, run):
    """Extended attributes that are set, replaced and removed on one mount are so on the other (sanityn 72)."""
    put(path(a, "f"))
    with Open() as files:
        held = files.fd(path(b, "f"))
        for n in range(run.rounds(30, 500)):
            same(result(os.getxattr, path(b, "f"), "user.x"), "ENODATA", "before")
            os.setxattr(path(a, "f"), "user.x", b"v" * n)
            same(os.getxattr(path(b, "f"), "user.x"), b"v" * n, "by name")
            same(os.getxattr(held, "user.x"), b"v" * n, "on an open file")
            os.setxattr(path(a, "f"), "user.x", b"other", os.XATTR_REPLACE)
            same(os.getxattr(path(b, "f"), "user.x"), b"other", "replaced")
            same(os.listxattr(path(b, "f")), ["user.x"], "list")
            same(result(os.setxattr, path(b, "f"), "user.x", b"", os.XATTR_CREATE), "EEXIST", "create again")
            os.removexattr(path(a, "f"), "user.x")
            same(os.listxattr(path(b, "f")), [], "list after removal")


@case
@both_ways
def xattr_of_removed_file(a, b, run):
    """Extended attributes of a file that the other mount has removed can be read and set while it is open
    (sanityn 82)."""
    put(path(a, "f"))
    os.setxattr(path(a, "f"), "user.x", b"1")
    with Open() as files:
        held = files.fd(path(b, "f"))
        os.unlink(path(a, "f"))
        same(os.getxattr(held, "user.x"), b"1", "get")
        os.setxattr(held, "user.x", b"2")
        os.setxattr(held, "user.y", b"3")
        same([os.getxattr(held, "user.x"), os.getxattr(held, "user.y")], [b"2", b"3"], "set")


@case
def xattr_create_race(a, b, run):
    """Of XATTR_CREATE on both mounts at once, exactly one succeeds."""
    put(path(a, "f"))
    count = run.rounds(50, 500)

    def worker(top):
        def work():
            return [n for n in range(count)
                    if result(os.setxattr, path(top, "f"), f"user.{n}", b"", os.XATTR_CREATE) is None]
        return work
    one, two = at_once(worker(a), worker(b))
    same(sorted(one + two), list(range(count)), "one winner each")
    same(len(os.listxattr(path(a, "f"))), count, "attributes")


def acl(owner, users, group, mask, other):
    """The bytes of system.posix_acl_access: permissions of the owner, of further users {uid: permissions}, ..."""
    entries = [(1, owner, 0xFFFFFFFF)]
    entries += [(2, permissions, uid) for uid, permissions in sorted(users.items())]
    entries.append((4, group, 0xFFFFFFFF))
    if users:
        entries.append((16, mask, 0xFFFFFFFF))
    entries.append((32, other, 0xFFFFFFFF))
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


@case
@as_root
@both_ways
def acl_seen(a, b, run):
    """An ACL that is set on one mount decides at once who may open on the other (sanityn 25)."""
    os.chmod(a, 0o755)
    put(path(a, "f"), b"x")
    os.chmod(path(a, "f"), 0o600)
    name = "system.posix_acl_access"

    def may():
        return as_user(FRIEND, lambda: get(path(b, "f")))
    for _ in range(run.rounds(5, 100)):
        same(may(), "EACCES", "before")
        os.setxattr(path(a, "f"), name, acl(6, {FRIEND: 4}, 0, 4, 0))
        same(may(), b"x", "with an entry")
        same(as_user(NOBODY, lambda: get(path(b, "f"))), "EACCES", "who has none")
        same(os.getxattr(path(b, "f"), name), acl(6, {FRIEND: 4}, 0, 4, 0), "the ACL")
        same(stat.S_IMODE(os.stat(path(b, "f")).st_mode), 0o640, "mode shows the mask")
        os.chmod(path(a, "f"), 0o600)
        same(may(), "EACCES", "chmod changes the mask")
        os.removexattr(path(a, "f"), name)
        same(result(os.getxattr, path(b, "f"), name), "ENODATA", "removed")


@case
@as_root
@both_ways
def default_acl_seen(a, b, run):
    """A default ACL that one mount sets is what files that the other makes begin with."""
    os.mkdir(path(a, "d"))
    for n in range(run.rounds(5, 100)):
        put(path(b, "d", f"before{n}"))
        same(result(os.getxattr, path(b, "d", f"before{n}"), "system.posix_acl_access"), "ENODATA", "without")
        os.setxattr(path(a, "d"), "system.posix_acl_default", acl(7, {FRIEND: 7}, 5, 7, 0))
        put(path(b, "d", f"after{n}"))
        same(os.getxattr(path(a, "d", f"after{n}"), "system.posix_acl_access"), acl(6, {FRIEND: 7}, 5, 4, 0), "with")
        os.removexattr(path(a, "d"), "system.posix_acl_default")


@case
def statfs_agrees(a, b, run):
    """Both mounts tell of one file system, and both see space being taken (sanityn 24)."""
    one, two = os.statvfs(a), os.statvfs(b)
    for field in ("f_bsize", "f_frsize", "f_blocks", "f_namemax"):
        same(getattr(one, field), getattr(two, field), field)
    size = 64 << 20
    put(path(a, "f"), os.urandom(1 << 20) * 64)
    with Open() as files:
        os.fsync(files.fd(path(a, "f")))
    after = [os.statvfs(top) for top in (a, b)]
    for info in after:
        # Others on the same disk make and remove files at the same time.
        taken = (one.f_bfree - info.f_bfree) * one.f_frsize
        assert taken > -size, f"{taken} bytes taken"
    same(after[0].f_blocks, after[1].f_blocks, "blocks")


@case
@both_ways
def birth_time_agrees(a, b, run):
    """statx shows the same time of birth on both mounts, and nothing changes it (sanityn 106a)."""
    put(path(a, "f"), b"x")

    def birth(top):
        return subprocess.run(["stat", "-c", "%W %w", path(top, "f")], check=True, capture_output=True).stdout
    first = birth(a)
    same(first.startswith(b"0 "), False, "there is a time of birth")
    same(birth(b), first, "on the other mount")
    os.utime(path(b, "f"), (1, 1))
    put(path(b, "f"), b"more", os.O_TRUNC)
    same([birth(a), birth(b)], [first] * 2, "after changes")


@case
def inode_numbers_agree(a, b, run):
    """Inode numbers and device-independent attributes of a tree are the same on both mounts."""
    for n in range(run.rounds(50, 1000)):
        top = (a, b)[n % 2]
        os.mkdir(path(top, f"d{n}"))
        put(path(top, f"d{n}", "f"), b"x" * n)
        os.symlink("target" * (n % 9 + 1), path(top, f"d{n}", "l"))

    def describe(top):
        found = {}
        for directory, subs, files in os.walk(top):
            for name in subs + files:
                info = os.lstat(path(directory, name))
                found[os.path.relpath(path(directory, name), top)] = (
                    info.st_ino, info.st_mode, info.st_nlink, info.st_uid, info.st_gid, info.st_size, info.st_mtime_ns,
                    info.st_ctime_ns)
        return found
    one, two = describe(a), describe(b)
    same([name for name in one if one[name] != two.get(name)], [], "which differ")
    same(len(one), len(two), "count")


@case
@both_ways
def executed_elsewhere(a, b, run):
    """A program that one mount has just written runs on the other at once, in its newest version (sanityn 14)."""
    for n in range(run.rounds(10, 100)):
        put(path(a, "program"), b"#!/bin/sh\necho %d\n" % n, os.O_CREAT | os.O_TRUNC, 0o755)
        got = subprocess.run([path(b, "program")], check=True, capture_output=True).stdout
        same(got, b"%d\n" % n, "what it says")
        os.chmod(path(a, "program"), 0o644)
        same(result(os.execv, path(b, "program"), ["x"]), "EACCES", "without the right to execute")
        os.chmod(path(a, "program"), 0o755)
