#!/usr/bin/env python3
"""Full disks: of the MGS, of the MDT, of an OST, each a small file system of its own, by blocks and by inodes.

What grows says ENOSPC and nothing else; what was fsynced stays; reading and removing go on; the servers start again with the
full disk; when there is room again, everything goes on (docs/recovery.md, promise 9).
"""

import errno
import os

import box as b
from cluster import MDS, MGS, OSS1, SERVERS, TARGETS, Disk, Servers
from promises import sync_directory, sync_file

# Nobody may wait longer for an answer.
ANSWER_SECONDS = 40
MIB = 1 << 20
# A disk that is not full after so long is told.
FILL_SECONDS = 100
BATCH = 16
XATTR = "user.filling"


class Case:
    """One disk that is filled."""

    def __init__(self, box, servers, disk, node, what):
        self.box, self.servers, self.disk, self.node, self.what = box, servers, disk, node, what
        self.root = f"{servers.mounts['a']}/{what.replace(' ', '-')}"
        self.kept = {}
        self.failed = False

    def fail(self, text):
        """Counts a failure of this case."""
        self.failed = True
        self.box.fail(f"{self.what}: {text}")

    def bounded(self, what, function, *arguments):
        """Calls something that has to come back; None if it did not, or an error."""
        self.box.tried()
        try:
            return b.Bounded(function, ANSWER_SECONDS + (FILL_SECONDS if function == self.fill else 0), what)(*arguments)
        except TimeoutError as error:
            self.fail(str(error))
        except OSError as error:
            self.fail(f"{what}: {error}")
        return None

    def keep(self, names, data):
        """Files that are written and then fsynced; False if there is no space."""
        paths = [f"{self.root}/k{name}" for name in names]
        try:
            for path in paths:
                with open(path, "xb", buffering=0) as file:
                    if self.node == MDS:
                        # What fills an MDT quickly.
                        os.setxattr(path, XATTR, data)
                    elif file.write(data) != len(data):
                        return False
            for path in paths:
                sync_file(path)
                self.kept[path] = data
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                return False
            raise
        return True

    def fill(self, data, count):
        """Makes files until there is no space three times, or `count`."""
        number = refused = 0
        end = b.time.monotonic() + FILL_SECONDS
        while number < count and refused < 3 and b.time.monotonic() < end:
            refused += not self.keep(range(number, number + BATCH), data)
            number += BATCH
        return refused

    def read_all(self):
        """Everything that was fsynced."""
        for path, data in self.kept.items():
            with open(path, "rb") as file:
                if (os.getxattr(path, XATTR) if self.node == MDS else file.read()) != data:
                    self.fail(f"{path} has other bytes")
                    return

    def remove(self, share):
        """Removes a share of the files, from the first."""
        for path in list(self.kept)[: int(len(self.kept) * share) + 1]:
            os.unlink(path)
            del self.kept[path]
        sync_directory(self.root)

    def restart(self):
        """The server is killed and started again, with its disk as full as it is."""
        self.servers.kill(self.node)
        self.servers.serve(self.node)

    def goes_on(self, data):
        """Something is written again. Room comes back some moments after a removal."""
        end = b.time.monotonic() + ANSWER_SECONDS * 0.8
        number = 10 ** 6
        while not self.keep([number], data):
            number += 1
            if b.time.monotonic() > end:
                raise TimeoutError("nothing can be written although there is room again")
            b.time.sleep(0.5)


def ballast(disk, leave):
    """Fills a disk from outside but for some bytes; the file that has to go again."""
    path = f"{disk.path}/ballast"
    space = os.statvfs(disk.path)
    with open(path, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(4096, space.f_bavail * space.f_frsize - leave))
    return path


def fill_and_empty(case, data, count):
    """The life of a target whose disk is full."""
    refused = case.bounded("filling", case.fill, data, count)
    if refused is None:
        return
    if not refused:
        case.box.note(f"{case.what} was not filled by {len(case.kept)} files")
    case.bounded("reading while it is full", case.read_all)
    case.bounded("a listing while it is full", os.listdir, case.root)
    case.restart()
    case.bounded("reading after a start with a full disk", case.read_all)
    case.bounded("removing while it is full", case.remove, 0.5)
    case.bounded("writing when there is room again", case.goes_on, data)
    case.bounded("reading at the end", case.read_all)
    done = b.attempt(case.box.weft, "status", case.servers.mounts["a"], seconds=ANSWER_SECONDS)
    case.box.tried()
    if done.returncode == 124:
        case.fail("weft status does not come back")


def mgs_full(case):
    """The MGS has nothing to write for files; it starts, and clients mount, with a full disk."""
    path = ballast(case.disk, 64 << 10)
    case.bounded("writing beside a full MGS", case.keep, [1], b"data")
    case.restart()
    case.bounded("writing after the start of a full MGS", case.keep, [2], b"data")
    mount = case.servers.mounts["b"]

    def mount_again():
        b.run("umount", mount)
        case.servers.mount("b")
    case.bounded("mounting with a full MGS", guarded(mount_again))
    os.unlink(path)
    case.restart()
    case.bounded("reading at the end", case.read_all)


def guarded(function):
    """A command that fails is an error of the operating system to who counts."""
    def call():
        try:
            return function()
        except RuntimeError as error:
            raise OSError(str(error)) from None
    return call


def a_case(box, number):
    """One target on a small disk, in a file system of its own."""
    what, node, mebibytes, data, count = CASES[number]
    disk = Disk(box, f"small{number}", mebibytes)
    small = TARGETS[node][0]
    servers = Servers(box, f"full{number}", directory=lambda target: f"{disk.path}/{target}" if target == small
                      else box.path(f"full{number}-{target}"))
    case = Case(box, servers, disk, node, what)
    try:
        servers.start()
        os.mkdir(case.root)
        if node == OSS1:
            # Files go to the OST that is small.
            b.run(box.lfs, "setstripe", "-c", "1", "-i", "0", case.root)
        sync_directory(servers.mounts["a"])
        if node == MGS:
            mgs_full(case)
        else:
            fill_and_empty(case, data, count)
    except (RuntimeError, TimeoutError) as error:
        case.fail(str(error)[-300:])
    finally:
        if case.failed:
            for line in open(servers.log(node), encoding="utf-8", errors="replace").readlines()[-3:]:
                box.say(f"{node}: {line.strip()[:250]}")
        for client in list(servers.mount_pids):
            b.kill(servers.mount_pids[client])
            b.attempt("umount", "-l", servers.mounts[client])
        for server in SERVERS:
            if server in servers.pids:
                servers.kill(server)
        servers.release()
        b.attempt("umount", disk.path)
        for name in os.listdir(box.work):
            if name.startswith(f"full{number}-") and not name.endswith(".log"):
                b.shutil.rmtree(box.path(name), ignore_errors=True)


CASES = [
    ("MDT of 160 MiB", MDS, 160, b"a" * 60_000, 5000),
    ("OST of 160 MiB", OSS1, 160, b"x" * MIB, 400),
    ("MGS of 48 MiB", MGS, 48, b"", 0),
    ("OST of 160 MiB with small files", OSS1, 160, b"y" * 5000, 40_000),
]


def body(box):
    """The attack."""
    done = 0
    while done < min(box.options.trials, len(CASES)) and not (done and box.time_is_up()):
        a_case(box, done)
        box.say(f"{CASES[done][0]}: done")
        done += 1
    box.note(f"steps with a full {', '.join(case[0] for case in CASES[:done])}")


if __name__ == "__main__":
    b.attack("full", body, trials=len(CASES), seconds=150)
