#!/usr/bin/env python3
"""What fsync of a file keeps besides its data: names and attributes, whatever descriptor it is called through.

Usage: durable.py make DIR; durable.py change DIR PID ROW changes something, calls fsync and kills PID at once; then, with
everything started again, durable.py look DIR ROW ends with 1 if the change is lost. durable.py rows lists the rows."""

import os
import signal
import stat
import struct
import sys

TIME = 1_000_000_000
ACL = "system.posix_acl_access"
ROWS = (
    "chmod chown utimens setxattr removexattr acl truncate link unlink rename exchange mknod mknod_link symlink fifo "
    "held moved_over_held known_open"
).split()


def acl():
    """rw for the owner, r for user 5, nothing for the rest."""
    none = 0xFFFFFFFF
    entries = [(1, 6, none), (2, 4, 5), (4, 0, none), (16, 4, none), (32, 0, none)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def sync(path):
    """fsync through a descriptor that permits no change."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def exchange(one, other):
    """renameat2(RENAME_EXCHANGE)."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(-100, one.encode(), -100, other.encode(), 2) != 0:
        raise OSError(ctypes.get_errno(), "renameat2", one)


def prepare(top):
    """Files that are durable, each with another name and an attribute."""
    for row in ROWS:
        d = f"{top}/{row}"
        os.makedirs(d)
        for name in "f", "other":
            with open(f"{d}/{name}", "w", encoding="ascii") as file:
                file.write("content")
                file.flush()
                os.fsync(file.fileno())
        os.setxattr(f"{d}/f", "user.old", b"v")
        os.link(f"{d}/f", f"{d}/twin")
        # Whoever opens it now is answered from what the mount keeps.
        open(f"{d}/f", "rb").close()
        sync(d)
    sync(top)


def change(row, d):
    """One change of `f` in its directory, and the fsync that has to keep it."""
    f = f"{d}/f"
    simple = {
        "chmod": lambda: os.chmod(f, 0o641),
        "chown": lambda: os.chown(f, 7, 8),
        "utimens": lambda: os.utime(f, (TIME, TIME)),
        "setxattr": lambda: os.setxattr(f, "user.new", b"v"),
        "removexattr": lambda: os.removexattr(f, "user.old"),
        "acl": lambda: os.setxattr(f, ACL, acl()),
        "truncate": lambda: os.truncate(f, 2),
        "link": lambda: os.link(f, f"{d}/second"),
        "unlink": lambda: os.unlink(f"{d}/twin"),
        "exchange": lambda: exchange(f"{d}/other", f),
    }
    if row in simple:
        fd = os.open(f, os.O_RDONLY)
        simple[row]()
        os.fsync(fd)
        os.close(fd)
    elif row == "rename":
        os.rename(f, f"{d}/g")
        sync(f"{d}/g")
    elif row == "mknod":
        os.mknod(f"{d}/new", 0o600 | stat.S_IFREG)
        sync(f"{d}/new")
    elif row == "mknod_link":
        os.mknod(f"{d}/new", 0o600 | stat.S_IFREG)
        os.link(f"{d}/new", f"{d}/second")
        sync(f"{d}/second")
    elif row == "symlink":
        os.symlink("f", f"{d}/new")
        sync(d)
    elif row == "fifo":
        os.mkfifo(f"{d}/new")
        sync(d)
    elif row == "held":
        with open(f"{d}/tmp", "w", encoding="ascii") as file:
            file.write("new")
            file.flush()
            os.fsync(file.fileno())
            os.rename(f"{d}/tmp", f)
            os.fsync(file.fileno())
    elif row == "moved_over_held":
        # The file that loses its name is the one that is held.
        fd = os.open(f, os.O_RDONLY)
        os.unlink(f"{d}/twin")
        os.rename(f"{d}/other", f)
        os.fsync(fd)
        os.close(fd)
    elif row == "known_open":
        first, second = os.open(f, os.O_RDONLY), os.open(f, os.O_RDONLY)
        os.chmod(f, 0o641)
        os.fsync(first)
        os.rename(f, f"{d}/g")
        os.fsync(second)
        os.close(first)
        os.close(second)
    else:
        raise AssertionError(row)


def is_kept(row, d):
    """Whether the change of `row` is there."""
    f = f"{d}/f"
    exists = os.path.lexists
    checks = {
        "chmod": lambda: os.stat(f).st_mode & 0o777 == 0o641,
        "chown": lambda: (os.stat(f).st_uid, os.stat(f).st_gid) == (7, 8),
        "utimens": lambda: (os.stat(f).st_atime, os.stat(f).st_mtime) == (TIME, TIME),
        "setxattr": lambda: os.getxattr(f, "user.new") == b"v",
        "removexattr": lambda: "user.old" not in os.listxattr(f),
        "acl": lambda: os.getxattr(f, ACL) == acl(),
        "truncate": lambda: open(f, "rb").read() == b"co",
        "link": lambda: os.path.samefile(f"{d}/second", f) and os.stat(f).st_nlink == 3,
        "unlink": lambda: not exists(f"{d}/twin"),
        "exchange": lambda: os.path.samefile(f"{d}/other", f"{d}/twin"),
        "rename": lambda: exists(f"{d}/g") and not exists(f),
        "mknod": lambda: exists(f"{d}/new"),
        "mknod_link": lambda: os.stat(f"{d}/second").st_nlink == 2,
        "symlink": lambda: os.readlink(f"{d}/new") == "f",
        "fifo": lambda: stat.S_ISFIFO(os.lstat(f"{d}/new").st_mode),
        "held": lambda: open(f, "rb").read() == b"new" and not exists(f"{d}/tmp"),
        "moved_over_held": lambda: not exists(f"{d}/other") and os.stat(f).st_nlink == 1,
        "known_open": lambda: exists(f"{d}/g") and os.stat(f"{d}/g").st_mode & 0o777 == 0o641,
    }
    try:
        return checks[row]()
    except OSError:
        return False


def main():
    """Does what the first argument says."""
    what, args = sys.argv[1], sys.argv[2:]
    if what == "rows":
        print(*ROWS)
    elif what == "make":
        prepare(args[0])
    elif what == "change":
        top, pid, row = args
        change(row, f"{top}/{row}")
        os.kill(int(pid), signal.SIGKILL)
    else:
        top, row = args
        if not is_kept(row, f"{top}/{row}"):
            print(f"{row}: lost")
            sys.exit(1)


if __name__ == "__main__":
    main()
