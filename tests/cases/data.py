"""Data: what one mount writes, cuts and punches, the other reads at once."""

import fcntl
import mmap
import os

from .support import (FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_ZERO_RANGE, Open, at_once, both_ways, case,
                      fallocate, fork, get, path, put, result, same, same_bytes)

MIB = 1 << 20
# The record of a well-known code that writes many of them side by side: no multiple of anything.
RECORD = 47008


def pattern(seed, length):
    """Bytes that tell where they come from."""
    unit = b"%08d." % seed
    return (unit * (length // len(unit) + 1))[:length]


@case
@both_ways
def write_seen(a, b, run):
    """What was written, without close and without sync, is read by the other mount on a handle that it had, and that
    has read the old bytes before (sanityn 16f)."""
    with Open() as files:
        one = files.fd(path(a, "f"), os.O_RDWR | os.O_CREAT)
        two = files.fd(path(b, "f"), os.O_RDONLY)
        for n in range(run.rounds(40, 1000)):
            length = (1, 100, 4096, 5000, RECORD, 300_000)[n % 6]
            at = (n * 12347) % 200_000
            os.pread(two, length + 10000, max(0, at - 5000))
            os.pwrite(one, pattern(n, length), at)
            same_bytes(os.pread(two, length, at), pattern(n, length), f"read after write {n} at {at}")


@case
@both_ways
def write_far_behind(a, b, run):
    """A write far behind the end makes a hole, which the other mount reads as zeroes up to the new end, although it
    has read nothing of what was written."""
    with Open() as files:
        one = files.fd(path(a, "f"), os.O_RDWR | os.O_CREAT)
        two = files.fd(path(b, "f"), os.O_RDONLY)
        for n in range(1, run.rounds(10, 100)):
            end = n * 700_000
            same(os.pread(two, 1000, end - 650_000), b"", "before")
            os.pwrite(one, b"x", end)
            same_bytes(os.pread(two, 1000, end - 650_000), bytes(1000), f"in the hole before {end}")
            same_bytes(os.pread(two, 1000, end - 10), bytes(10) + b"x", "at the end")


@case
@both_ways
def write_seen_by_name(a, b, run):
    """The same for opens: open, read, close on one mount after write (not closed) on the other."""
    with Open() as files:
        one = files.fd(path(a, "f"), os.O_RDWR | os.O_CREAT)
        for n in range(run.rounds(30, 500)):
            same(len(get(path(b, "f"))), 1000 if n else 0, "before")
            os.pwrite(one, pattern(n, 1000), 0)
            same_bytes(get(path(b, "f")), pattern(n, 1000), "after")


@case
def write_in_turns(a, b, run):
    """Both mounts write bytes of one page in turns, none is lost and each is seen (sanityn 10)."""
    with Open() as files:
        fds = [files.fd(path(a, "f"), os.O_RDWR | os.O_CREAT), files.fd(path(b, "f"))]
        want = bytearray()
        for n in range(run.rounds(300, 5000)):
            os.pwrite(fds[n % 2], bytes([n % 251]), n)
            want.append(n % 251)
            if n % 7 == 0 or n < 40:
                same_bytes(os.pread(fds[1 - n % 2], n + 10, 0), bytes(want), f"after byte {n}")
        for top in (a, b):
            same_bytes(get(path(top, "f")), bytes(want), "in the end")


@case
def append_in_turns(a, b, run):
    """Appends in turns, by names and by handles, come one behind the other (sanityn 9a)."""
    with Open() as files:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        fds = [files.fd(path(a, "f"), flags), files.fd(path(b, "f"), flags)]
        want = b""
        for n in range(run.rounds(100, 2000)):
            piece = pattern(n, 1 + n % 40)
            if n % 3 == 0:
                put(path((a, b)[n % 2], "f"), piece, os.O_APPEND)
            else:
                os.write(fds[n % 2], piece)
            want += piece
        for top in (a, b):
            same_bytes(get(path(top, "f")), want, "file")


@case
@both_ways
def append_behind_sparse(a, b, run):
    """An append goes behind what the other mount has just written far away (sanityn 9b)."""
    for n in range(run.rounds(5, 50)):
        with Open() as files:
            appender = files.fd(path(a, "f"), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC)
            writer = files.fd(path(b, "f"), os.O_RDWR)
            os.write(appender, b"foo")
            end = (n + 2) * MIB + n * 1000
            os.pwrite(writer, b"x" * 1000, end - 1000)
            os.write(appender, b"foo")
            same(os.pread(writer, 100, end), b"foo", "behind the end")
            os.ftruncate(writer, 10)
            os.write(appender, b"bar")
            same_bytes(get(path(b, "f")), b"foo" + bytes(7) + b"bar", "behind the new end")


@case
def append_against_append(a, b, run):
    """Many writers with O_APPEND on both mounts at once: no record is lost, cut, or mixed with another."""
    count = run.rounds(150, 3000)
    writers = [(a, 0), (b, 1), (a, 2), (b, 3), (a, 4), (b, 5)]

    def worker(top, who):
        def work():
            with Open() as files:
                fd = files.fd(path(top, "f"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
                for n in range(count):
                    body = b"." * ((who * 131 + n * 17) % 700)
                    record = b"<%d %d%s>" % (who, n, body)
                    same(os.write(fd, record), len(record), "short write")
        return work
    at_once(*(worker(top, who) for top, who in writers))
    text = get(path(a, "f"))
    same_bytes(get(path(b, "f")), text, "both mounts")
    following = [0] * len(writers)
    for record in text.split(b"<")[1:]:
        assert record.endswith(b">"), f"a record that is cut: {record[:60]!r}"
        who, n = record[:-1].rstrip(b".").split()
        same(int(n), following[int(who)], f"records of writer {int(who)} in order")
        same(len(record) + 1, len(b"<%d %d>" % (int(who), int(n))) + (int(who) * 131 + int(n) * 17) % 700, "length")
        following[int(who)] += 1
    same(following, [count] * len(writers), "records")


@case
def append_set_later(a, b, run):
    """O_APPEND that is set on open files with F_SETFL, as make does with its output, appends to what the other mount appended."""
    with Open() as files:
        fds = [files.fd(path(top, "f"), os.O_WRONLY | os.O_CREAT) for top in (a, b)]
        for fd in fds:
            fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
        want = b""
        for n in range(run.rounds(50, 1000)):
            record = b"<%d>" % n
            same(os.write(fds[n % 2 if n < 20 else n // 3 % 2], record), len(record), "short write")
            want += record
    for top in (a, b):
        same_bytes(get(path(top, "f")), want, "records")


@case
def allocated_side_by_side(a, b, run):
    """Both mounts reserve the space of their part of one file, and write it, at the same time: nothing is cut off."""
    part = 300_000
    for n in range(run.rounds(20, 300)):
        name = f"f{n}"
        put(path(a, name), b"")

        def worker(top, number):
            def work():
                with Open() as files:
                    fd = files.fd(path(top, name), os.O_RDWR)
                    os.posix_fallocate(fd, number * part, part)
                    os.pwrite(fd, pattern(number, part), number * part)
                    os.fsync(fd)
            return work
        at_once(*(worker(top, number) for number, top in enumerate((a, b, a, b))))
        for top in (a, b):
            same_bytes(get(path(top, name)), b"".join(pattern(number, part) for number in range(4)), name)


@case
@both_ways
def tail_follows(a, b, run):
    """A reader at the end of the file gets what the other mount appends, as `tail -f` does."""
    with Open() as files:
        writer = files.fd(path(a, "log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        reader = files.fd(path(b, "log"), os.O_RDONLY)
        for n in range(run.rounds(100, 2000)):
            same(os.read(reader, 1000), b"", "at the end")
            os.write(writer, pattern(n, 1 + n % 500))
            same_bytes(os.read(reader, 1000), pattern(n, 1 + n % 500), "the new line")


@case
@both_ways
def tail_follows_while_pages_change(a, b, run):
    """The same while pages of the file are taken back from the reader's kernel all the time: what it asks for the size
    meanwhile must not get lost."""
    put(path(a, "log"), bytes(4096))
    over = fork.Event()

    def again(top, flags, operation):
        with Open() as files:
            fd = files.fd(path(top, "log"), flags)
            while not over.is_set():
                operation(fd)

    def tail():
        try:
            with Open() as files:
                writer = files.fd(path(a, "log"), os.O_WRONLY)
                reader = files.fd(path(b, "log"), os.O_RDONLY)
                end = 4096
                for n in range(run.rounds(300, 5000)):
                    data = pattern(n, 1 + n * 97 % 5000)
                    os.pwrite(writer, data, end)
                    same_bytes(os.pread(reader, len(data), end), data, "the new line")
                    end += len(data)
        finally:
            over.set()
    at_once(lambda: again(a, os.O_WRONLY, lambda fd: os.pwrite(fd, bytes(100), 0)),
            lambda: again(b, os.O_RDONLY, lambda fd: os.pread(fd, 100, 0)), tail)


@case
@both_ways
def truncate_against_read(a, b, run):
    """After truncate() the other mount reads up to the new end and no further, by a handle that has read it all
    (sanityn 5, 16i)."""
    with Open() as files:
        reader = files.fd(path(b, "f"), os.O_RDONLY | os.O_CREAT)
        for n in range(run.rounds(20, 500)):
            put(path(a, "f"), pattern(n, 100_000))
            same_bytes(os.pread(reader, 200_000, 0), pattern(n, 100_000), "before")
            cut = (n * 7919) % 100_000
            os.truncate(path(a, "f"), cut)
            same_bytes(os.pread(reader, 200_000, 0), pattern(n, 100_000)[:cut], "after truncate")
            same(os.fstat(reader).st_size, cut, "size")
            same(os.pread(reader, 10, cut + 5), b"", "behind the end")


@case
@both_ways
def truncate_zeroes(a, b, run):
    """What was cut off does not come back when the file grows, whoever cut and whoever grows it."""
    for n in range(run.rounds(10, 200)):
        cut, grown = 100 + n * 333 % 55_000, 60_000 + n * 10
        with Open() as files:
            one, two = files.fd(path(a, "f"), os.O_RDWR | os.O_CREAT | os.O_TRUNC), files.fd(path(b, "f"))
            os.pwrite(one, b"x" * 50_000, 0)
            same(os.pread(two, 100_000, 0), b"x" * 50_000, "before")
            os.ftruncate(two, cut)
            if n % 2:
                os.ftruncate(one, grown)
            else:
                os.pwrite(one, b"y", grown - 1)
            want = b"x" * min(cut, 50_000)
            want += bytes(grown - 1 - len(want)) + (b"\0" if n % 2 else b"y")
            for fd in (one, two):
                same_bytes(os.pread(fd, 200_000, 0), want, f"cut at {cut}, grown to {grown}")


@case
def truncate_against_append(a, b, run):
    """truncate() to a larger size against an append: the append is before it or behind it (sanityn 121)."""
    for n in range(run.rounds(40, 1000)):
        put(path(a, "f"), b"a" * 20_000)
        at_once(lambda: os.truncate(path(a, "f"), 51_200), lambda: put(path(b, "f"), b"b" * 20_480, os.O_APPEND))
        got = [get(path(top, "f")) for top in (a, b)]
        same_bytes(got[1], got[0], "both mounts")
        behind = b"a" * 20_000 + bytes(31_200) + b"b" * 20_480
        before = b"a" * 20_000 + b"b" * 20_480 + bytes(51_200 - 40_480)
        assert got[0] in (behind, before), f"length {len(got[0])}, {got[0].count(b'b')} appended bytes"


@case
@both_ways
def open_truncates(a, b, run):
    """open(O_TRUNC) on one mount empties what the other has cached and open."""
    with Open() as files:
        held = files.fd(path(b, "f"), os.O_RDWR | os.O_CREAT)
        for n in range(run.rounds(20, 300)):
            os.pwrite(held, pattern(n, 30_000), 0)
            put(path(a, "f"), b"new")
            same(os.pread(held, 100_000, 0), b"new", "the other's handle")
            same(os.fstat(held).st_size, 3, "size")


@case
def false_sharing(a, b, run):
    """Two mounts write records of 47,008 bytes in turns of place, at the same time, without any sync: each page that
    they share has the bytes of both."""
    records = run.rounds(60, 1000)

    def worker(top, first):
        def work():
            with Open() as files:
                fd = files.fd(path(top, "f"), os.O_WRONLY | os.O_CREAT)
                for n in range(first, records, 2):
                    same(os.pwrite(fd, pattern(n, RECORD), n * RECORD), RECORD, "short write")
        return work
    at_once(worker(a, 0), worker(b, 1))
    want = b"".join(pattern(n, RECORD) for n in range(records))
    for top in (a, b):
        same_bytes(get(path(top, "f")), want, "file")


@case
def small_records_side_by_side(a, b, run):
    """The same with records of a few bytes, hundreds to a page, and a rewrite of each."""
    records, length = run.rounds(1000, 20000), 13

    def worker(top, first, mark):
        def work():
            with Open() as files:
                fd = files.fd(path(top, "f"), os.O_RDWR | os.O_CREAT)
                for again in (b"_", mark):
                    for n in range(first, records, 2):
                        os.pwrite(fd, again * length, n * length)
        return work
    at_once(worker(a, 0, b"a"), worker(b, 1, b"b"))
    want = b"".join((b"a", b"b")[n % 2] * length for n in range(records))
    for top in (a, b):
        same_bytes(get(path(top, "f")), want, "file")


@case
@both_ways
def fallocate_seen(a, b, run):
    """Space that fallocate() adds is seen as size and zeroes, and takes nothing away."""
    with Open() as files:
        one, two = files.fd(path(a, "f"), os.O_RDWR | os.O_CREAT), files.fd(path(b, "f"))
        size = 0
        for n in range(run.rounds(10, 100)):
            os.pwrite(two, b"x" * 10, size)
            os.posix_fallocate(one, size, 5000 + n)
            same_bytes(os.pread(two, 20_000, size), b"x" * 10 + bytes(4990 + n), "zeroes")
            size += 5000 + n
            same(os.fstat(two).st_size, size, "size")


@case
@both_ways
def punch_seen(a, b, run):
    """A hole that one mount punches is zeroes for the other, which has read the bytes before; bytes around it stay."""
    with Open() as files:
        one, two = files.fd(path(a, "f"), os.O_RDWR | os.O_CREAT), files.fd(path(b, "f"))
        want = bytearray(pattern(1, 600_000))
        os.pwrite(two, want, 0)
        for n in range(run.rounds(20, 300)):
            at, length = (n * 30_011) % 550_000, (1, 4096, 10_000, 50_000)[n % 4]
            same_bytes(os.pread(two, 700_000, 0), bytes(want), "before")
            fallocate(one, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, at, length)
            want[at:at + length] = bytes(len(want[at:at + length]))
            same_bytes(os.pread(two, 700_000, 0), bytes(want), f"punched {at}+{length}")
            os.pwrite(two, b"again", at)
            want[at:at + 5] = b"again"


@case
@both_ways
def zero_range_seen(a, b, run):
    """FALLOC_FL_ZERO_RANGE does the same, if the file system has it."""
    with Open() as files:
        one, two = files.fd(path(a, "f"), os.O_RDWR | os.O_CREAT), files.fd(path(b, "f"))
        os.pwrite(two, b"x" * 100_000, 0)
        os.pread(two, 100_000, 0)
        said = result(fallocate, one, FALLOC_ZERO_RANGE, 10_000, 30_000)
        if said != "EOPNOTSUPP":
            same(said, None, "fallocate")
            same_bytes(os.pread(two, 200_000, 0), b"x" * 10_000 + bytes(30_000) + b"x" * 60_000, "zeroes")


@case
@both_ways
def seek_data_and_hole(a, b, run):
    """SEEK_DATA and SEEK_HOLE know what the other mount has written and cut, synced or not (sanityn 108a)."""
    with Open() as files:
        one, two = files.fd(path(a, "f"), os.O_RDWR | os.O_CREAT), files.fd(path(b, "f"))
        os.pwrite(one, b"x" * 10_000, 0)
        same(os.lseek(two, 5000, os.SEEK_DATA), 5000, "in data")
        same(os.lseek(two, 5000, os.SEEK_HOLE), 10_000, "the hole at the end")
        os.ftruncate(one, 2000)
        same(os.lseek(two, 1000, os.SEEK_HOLE), 2000, "after truncate")
        same(result(os.lseek, two, 2000, os.SEEK_DATA), "ENXIO", "no data behind the end")
        os.pwrite(one, b"x" * MIB, 8 * MIB)
        at = os.lseek(two, 0, os.SEEK_HOLE)
        while at < 8 * MIB and at != 0:
            data = os.lseek(two, at, os.SEEK_DATA)
            same(any(os.pread(two, data - at, at)), False, "a hole has zeroes")
            at = os.lseek(two, data, os.SEEK_HOLE)
        same(os.lseek(two, 8 * MIB + 5, os.SEEK_DATA), 8 * MIB + 5, "in the far data")
        same(os.lseek(two, 8 * MIB + 5, os.SEEK_HOLE), 9 * MIB, "the end")


def aligned(length, fill=b"\0"):
    """Memory that O_DIRECT takes."""
    memory = mmap.mmap(-1, length)
    memory.write(fill * (length // len(fill)))
    memory.seek(0)
    return memory


@case
@both_ways
def mapped_data_is_found(a, b, run):
    """SEEK_DATA finds what a program has stored through a mapping that it has still, on its own mount and on the other one."""
    for n in range(run.rounds(4, 20)):
        # What was stored is written back when any handle of this mount is closed: each round looks once.
        name, at = f"f{n}", 500_000 + n
        with Open() as files:
            held = files.fd(path(a, name), os.O_RDWR | os.O_CREAT)
            os.ftruncate(held, MIB)
            with mmap.mmap(held, MIB) as memory:
                memory[at:at + 5] = b"HELLO"
                looker = held if n % 2 == 0 else files.fd(path(b, name), os.O_RDONLY)
                data = os.lseek(looker, 0, os.SEEK_DATA)
                same(0 < data <= at, True, f"data before {at}: {data}")
                same(os.lseek(looker, data, os.SEEK_HOLE) > at, True, "the hole behind it")
                memory[at + 100_000] = 1
                same(os.lseek(looker, at + 50_000, os.SEEK_DATA) <= at + 100_000, True, "what was stored later")


@case
@both_ways
def direct_against_cached(a, b, run):
    """O_DIRECT writes are seen by cached reads of the other mount, and cached writes by O_DIRECT reads
    (sanityn 16d, 16e, 16j)."""
    with Open() as files:
        direct = files.fd(path(a, "f"), os.O_RDWR | os.O_CREAT | os.O_DIRECT)
        cached = files.fd(path(b, "f"))
        for n in range(run.rounds(20, 400)):
            length, at = 4096 * (1 + n % 40), 4096 * ((n * 13) % 50)
            os.pread(cached, length, at)
            same(os.pwritev(direct, [aligned(length, bytes([65 + n % 26]))], at), length, "direct write")
            same_bytes(os.pread(cached, length, at), bytes([65 + n % 26]) * length, "cached read")
            assert os.fstat(cached).st_size >= at + length, "size"
            os.pwrite(cached, pattern(n, length - 100), at + 50)
            memory = aligned(length)
            same(os.preadv(direct, [memory], at), length, "direct read")
            same_bytes(memory[50:length - 50], pattern(n, length - 100), "bytes of the direct read")


@case
def direct_beside_cached(a, b, run):
    """O_DIRECT on one mount and cached writes on the other, to neighbouring blocks at the same time."""
    blocks = run.rounds(200, 5000)

    def direct():
        with Open() as files:
            fd = files.fd(path(a, "f"), os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
            memory = aligned(4096, b"d")
            for n in range(0, blocks, 2):
                os.pwritev(fd, [memory], n * 4096)

    def cached():
        with Open() as files:
            fd = files.fd(path(b, "f"), os.O_WRONLY | os.O_CREAT)
            for n in range(1, blocks, 2):
                for part in range(4):
                    os.pwrite(fd, b"c" * 1024, n * 4096 + part * 1024)
    at_once(direct, cached)
    want = b"".join((b"d", b"c")[n % 2] * 4096 for n in range(blocks))
    for top in (a, b):
        same_bytes(get(path(top, "f")), want, "file")


@case
@both_ways
def large_write_seen(a, b, run):
    """Tens of megabytes, written and not synced, are read whole by the other mount."""
    size = run.rounds(24, 256) * MIB
    block = os.urandom(MIB)
    with Open() as files:
        one, two = files.fd(path(a, "f"), os.O_RDWR | os.O_CREAT), files.fd(path(b, "f"))
        for at in range(0, size, MIB):
            os.pwrite(one, at.to_bytes(8, "little") + block[8:], at)
        for at in range(0, size, MIB):
            same_bytes(os.pread(two, MIB, at), at.to_bytes(8, "little") + block[8:], f"block at {at}")
        for at in range(0, size, MIB):
            os.pwrite(two, b"second", at + 1000)
        for at in range(0, size, MIB):
            same(os.pread(one, 8, at + 999), block[999:1000] + b"second" + block[1006:1007], f"change at {at}")


@case
@both_ways
def copy_range_seen(a, b, run):
    """copy_file_range() takes what the other mount has just written, and its result is seen there at once. (The kernel
    goes by the size that it knows, so the source is looked at first, as cp does.)"""
    put(path(a, "to"))
    with Open() as files:
        source, held = files.fd(path(b, "from"), os.O_RDWR | os.O_CREAT), files.fd(path(b, "to"))
        one, two = files.fd(path(a, "from")), files.fd(path(a, "to"))
        before = 0
        for n in range(run.rounds(10, 100)):
            length = 1 + (n * 77_777) % 500_000
            os.pwrite(source, pattern(n, length), 0)
            os.pread(held, length, 0)
            same(os.fstat(one).st_size, max(length, before), "size of the source")
            before = max(length, before)
            done = 0
            while done < length:
                got = os.copy_file_range(one, two, length - done, done, done)
                assert got > 0, "nothing copied"
                done += got
            same_bytes(os.pread(held, length, 0), pattern(n, length), "copy")


@case
@both_ways
def read_while_replaced(a, b, run):
    """A reader that holds a file while the other mount truncates and rewrites it gets old bytes, new bytes, or a short
    read: nothing else."""
    rounds, length = run.rounds(100, 2000), 20_000
    put(path(a, "f"), b"A" * length)

    def rewrite():
        for n in range(rounds):
            put(path(a, "f"), bytes([65 + (n + 1) % 26]) * length)
        put(path(a, "done"))

    def read():
        with Open() as files:
            fd = files.fd(path(b, "f"), os.O_RDONLY)
            while not os.path.exists(path(b, "done")):
                got = os.pread(fd, length * 2, 0)
                assert len(got) <= length, f"{len(got)} bytes"
                strange = set(got) - set(range(65, 91)) - {0}
                assert not strange, f"bytes {strange}"
    at_once(rewrite, read)
    same_bytes(get(path(b, "f")), bytes([65 + rounds % 26]) * length, "in the end")
