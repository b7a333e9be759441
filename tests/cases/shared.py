"""Mapped memory: what one mount maps, the other writes, and the other way round."""

import fcntl
import mmap
import os
import signal
import sys

from .support import Open, at_once, both_ways, case, fork, get, path, put, same, same_bytes

PAGE = mmap.PAGESIZE


def mapped(fd, length, access=mmap.ACCESS_WRITE):
    """A shared mapping of a file from its start."""
    return mmap.mmap(fd, length, access=access)


@case
@both_ways
def mmap_read_of_writes(a, b, run):
    """A mapping that has shown the old bytes shows what the other mount writes (sanityn 18)."""
    put(path(a, "f"), b"-" * (10 * PAGE))
    with Open() as files:
        writer, reader = files.fd(path(a, "f")), files.fd(path(b, "f"), os.O_RDONLY)
        with mapped(reader, 10 * PAGE, mmap.ACCESS_READ) as view:
            for n in range(run.rounds(50, 1000)):
                at = (n * 1237) % (10 * PAGE - 200)
                view[at:at + 100]
                os.pwrite(writer, b"%0100d" % n, at)
                same(view[at:at + 100], b"%0100d" % n, f"mapping after write {n}")


@case
@both_ways
def mmap_write_seen(a, b, run):
    """What was stored into a shared mapping is read by the other mount after msync (sanityn 16g, 18)."""
    put(path(a, "f"), b"-" * (10 * PAGE))
    with Open() as files:
        one, two = files.fd(path(a, "f")), files.fd(path(b, "f"), os.O_RDONLY)
        with mapped(one, 10 * PAGE) as view:
            for n in range(run.rounds(50, 1000)):
                at = (n * 1237) % (10 * PAGE - 200)
                os.pread(two, 100, at)
                view[at:at + 100] = b"%0100d" % n
                view.flush()
                same(os.pread(two, 100, at), b"%0100d" % n, f"read after msync {n}")


@case
@both_ways
def mmap_to_mmap(a, b, run):
    """Two shared mappings on two mounts: after msync on one the other shows the bytes."""
    put(path(a, "f"), bytes(4 * PAGE))
    with Open() as files:
        one, two = files.fd(path(a, "f")), files.fd(path(b, "f"))
        with mapped(one, 4 * PAGE) as here, mapped(two, 4 * PAGE) as there:
            for n in range(run.rounds(50, 1000)):
                at = (n * 613) % (4 * PAGE - 16)
                for view, other in ((here, there), (there, here)):
                    view[at:at + 8] = n.to_bytes(8, "little")
                    view.flush()
                    same(other[at:at + 8], n.to_bytes(8, "little"), f"the other mapping after {n}")
                    at += 8


@case
@both_ways
def mmap_against_write(a, b, run):
    """Stores into a mapping, flushed, and writes of the other mount into other parts of the same pages: none is
    lost."""
    put(path(a, "f"), bytes(2 * PAGE))
    want = bytearray(2 * PAGE)
    with Open() as files:
        one, two = files.fd(path(a, "f")), files.fd(path(b, "f"))
        with mapped(one, 2 * PAGE) as view:
            for n in range(run.rounds(100, 2000)):
                at = (n * 64) % (2 * PAGE)
                view[at:at + 10] = b"m%09d" % n
                view.flush()
                os.pwrite(two, b"w%09d" % n, at + 32)
                want[at:at + 10], want[at + 32:at + 42] = b"m%09d" % n, b"w%09d" % n
                same_bytes(view[:], bytes(want), f"the mapping, step {n}")
                same_bytes(os.pread(two, 2 * PAGE, 0), bytes(want), f"the other mount, step {n}")


@case
def mmap_counters(a, b, run):
    """Processes on both mounts, two on each, add to counters in shared mappings under a file lock, and look at them without: none is
    lost, and none goes back."""
    pages, rounds = 8, run.rounds(100, 3000)
    put(path(a, "f"), bytes(pages * PAGE))
    # Not struct.pack_into: it writes zeros first, which others may see.
    each = PAGE // 8

    def worker(top):
        def work():
            with Open() as files:
                fd = files.fd(path(top, "f"), os.O_RDWR)
                with mapped(fd, pages * PAGE) as view, memoryview(view) as bytes_of, bytes_of.cast("Q") as numbers:
                    seen = [0] * pages
                    for n in range(rounds):
                        fcntl.lockf(fd, fcntl.LOCK_EX, 1, pages * PAGE)
                        for page in (0, 1 + n % (pages - 1)):
                            numbers[page * each] += 1
                        fcntl.lockf(fd, fcntl.LOCK_UN, 1, pages * PAGE)
                        for page in range(pages):
                            now = numbers[page * each]
                            assert now >= seen[page], f"page {page} went back from {seen[page]} to {now}"
                            seen[page] = now
        return work

    at_once(worker(a), worker(b), worker(a), worker(b))
    for top in (a, b):
        data = get(path(top, "f"))
        found = [int.from_bytes(data[page * PAGE:page * PAGE + 8], sys.byteorder) for page in range(pages)]
        same((found[0], sum(found[1:])), (4 * rounds, 4 * rounds), "counters")


@case
@both_ways
def mmap_private(a, b, run):
    """A private mapping made after a write has its bytes; stores into it are seen by nobody."""
    put(path(a, "f"), b"0" * PAGE)
    with Open() as files:
        one, two = files.fd(path(a, "f")), files.fd(path(b, "f"))
        for n in range(run.rounds(20, 300)):
            os.pwrite(one, b"%08d" % n, 100)
            with mapped(two, PAGE, mmap.ACCESS_COPY) as view:
                same(view[100:108], b"%08d" % n, "private mapping")
                view[100:108] = b"private!"
                same(os.pread(one, 8, 100), b"%08d" % n, "the file")
                same(os.pread(two, 8, 100), b"%08d" % n, "the file on the same mount")


@case
@both_ways
def mmap_after_truncate(a, b, run):
    """A mapping shows zeroes behind the new end in the last page after the other mount has truncated, and new bytes
    after it has written there again (sanityn 16h)."""
    with Open() as files:
        put(path(a, "f"), b"x" * (2 * PAGE))
        one, two = files.fd(path(a, "f")), files.fd(path(b, "f"))
        with mapped(two, 2 * PAGE, mmap.ACCESS_READ) as view:
            for n in range(run.rounds(20, 300)):
                os.pwrite(one, b"x" * (2 * PAGE), 0)
                same(view[:], b"x" * (2 * PAGE), "before")
                cut = PAGE + 1 + (n * 97) % (PAGE - 1)
                os.ftruncate(one, cut)
                same_bytes(view[:], b"x" * cut + bytes(2 * PAGE - cut), f"cut at {cut}")
                os.pwrite(one, b"y" * 10, 2 * PAGE - 10)
                want = (b"x" * cut + bytes(2 * PAGE - cut))[:2 * PAGE - 10] + b"y" * 10
                same_bytes(view[:], want, "grown again")


@case
@both_ways
def mmap_behind_end(a, b, run):
    """A load from a page that the other mount has cut off gives SIGBUS, or zeroes: not the old bytes."""
    for _ in range(run.rounds(5, 50)):
        put(path(a, "f"), b"x" * (3 * PAGE))
        with Open() as files:
            fd = files.fd(path(b, "f"), os.O_RDONLY)
            view = mapped(fd, 3 * PAGE, mmap.ACCESS_READ)
            same(view[2 * PAGE], ord("x"), "before")
            os.truncate(path(a, "f"), PAGE)

            def load():
                os._exit(0 if view[2 * PAGE] == 0 else 1)
            process = fork.Process(target=load)
            process.start()
            process.join()
            assert process.exitcode in (0, -signal.SIGBUS), f"exit {process.exitcode}: the old bytes are still there"
            same(view[0], ord("x"), "the first page")
            view.close()


@case
@both_ways
def mmap_flushed_by_unmap(a, b, run):
    """What was stored into a mapping is in the file when it was unmapped and the file was closed and synced."""
    for n in range(run.rounds(10, 100)):
        put(path(a, "f"), bytes(20 * PAGE))
        with Open() as files:
            fd = files.fd(path(a, "f"))
            view = mapped(fd, 20 * PAGE)
            for page in range(20):
                view[page * PAGE + n:page * PAGE + n + 4] = b"here"
            view.close()
            os.fsync(fd)
        want = (bytes(n) + b"here" + bytes(PAGE - 4 - n)) * 20
        same_bytes(get(path(b, "f")), want, "the other mount")
