"""What agreement costs: requests and callbacks, as the mounts count them (`weft.counters`)."""

import json
import os
import subprocess
import time

from .support import Skip, at_once, case, path, put

# Bytes of IO500's ior-hard records: no page ends where a record does.
RECORD = 47008


def counters(mount):
    """The counters of a mount."""
    try:
        return json.loads(os.getxattr(mount, "weft.counters"))
    except OSError as failed:
        raise Skip("this is no mount of weft") from failed


def requests(before, after, but=()):
    """Requests between two counts. Asking for the configuration and renewing the lease belong to nobody's operation."""
    names = {name for name in after if name.startswith("rpc.")}
    names -= {f"rpc.{name}" for name in ("GetConfig", "RenewLease", *but)}
    return {name: after[name] - before.get(name, 0) for name in names if after[name] != before.get(name, 0)}


def quiet(mount, but=()):
    """Waits until what is sent behind the operations (closes, sizes) has been sent."""
    last = counters(mount)
    for _ in range(40):
        time.sleep(0.5)
        now = counters(mount)
        if not requests(last, now, but):
            return now
        last = now
    raise AssertionError("the mount does not come to rest")


def listed(directory):
    subprocess.run(["ls", "-lR", directory], stdout=subprocess.DEVNULL, check=True)


@case
def second_listing_asks_nobody(a, b, run):
    """`ls -lR` of a tree that nobody changes sends no request the second time (10,000 files at night)."""
    counters(b)
    count = run.rounds(1000, 10000)
    for n in range(count):
        if n % 100 == 0:
            os.mkdir(path(a, f"d{n // 100}"))
        put(path(a, f"d{n // 100}/f{n}"), b"x" * (n % 50))
    quiet(a)
    # The first one may meet sizes that only the objects know, which are told to the MDT soon.
    for _ in range(2):
        listed(b)
        before = quiet(b)
    listed(b)
    sent = requests(before, counters(b))
    assert not sent, f"{count} files: {sent}"


@case
def first_listing_asks_once_for_many(a, b, run):
    """`ls -l` of a directory that a mount has not seen: a page of the directory brings the attributes of what it names, and
    whether that has extended attributes. Besides the pages at most one request for 64 files, and two for attributes."""
    counters(b)
    count = run.rounds(1000, 10000)
    for n in range(count):
        put(path(a, f"f{n}"), b"x" * (n % 50))
    quiet(a)
    before = quiet(b)
    listed(b)
    sent = requests(before, counters(b))
    pages = sent.pop("rpc.ReadDir", 0)
    xattrs = sent.get("rpc.GetXattr", 0) + sent.get("rpc.ListXattr", 0)
    assert sum(sent.values()) <= count // 64 and xattrs <= 2 and pages <= count // 64, f"{pages} pages, {sent}"


@case
def removing_what_is_kept_is_one_request(a, b, run):
    """unlink of a file that this mount has written, read and looked at: what it keeps of it goes along. One request a file at most."""
    count = run.rounds(20, 500)
    for n in range(count):
        put(path(a, f"f{n}"), b"data" * 1000)
        with open(path(a, f"f{n}"), "rb") as file:
            file.read()
        os.stat(path(a, f"f{n}"))
    before = quiet(a)
    for n in range(count):
        os.unlink(path(a, f"f{n}"))
    sent = requests(before, quiet(a))
    # With metadata write-back most travel together, but for those that have left when the next one comes, and one of which something else is
    # just being told; one message takes no more than so many.
    most = count if "rpc.KeepPromises" not in sent else 4 + count // 64
    assert set(sent) <= {"rpc.Unlink", "rpc.KeepPromises"} and sum(sent.values()) <= most, f"{count} files: {sent}"


@case
def blocks_are_read_again_for_nothing(a, b, run):
    """A process that reads and writes (a database) reads blocks again that nobody changed: no request, until another
    mount writes to one; then that one is asked for, and has the new bytes."""
    block, count = 8192, 40
    put(path(a, "f"), os.urandom(block * count))
    fd = os.open(path(b, "f"), os.O_RDWR)
    try:
        first = [os.pread(fd, block, n * block) for n in range(count)]
        before = quiet(b)
        for _ in range(2):
            assert [os.pread(fd, block, n * block) for n in range(count)] == first
        assert os.pread(fd, 3 * block, block // 2) == b"".join(first)[block // 2:block // 2 + 3 * block]
        sent = requests(before, counters(b))
        assert not sent, sent
        with open(path(a, "f"), "r+b") as file:
            file.seek(7 * block + 5)
            file.write(b"new")
        first[7] = first[7][:5] + b"new" + first[7][8:]
        assert [os.pread(fd, block, n * block) for n in range(count)] == first
        os.pwrite(fd, b"own", 9 * block)
        first[9] = b"own" + first[9][3:]
        os.fsync(fd)
        assert [os.pread(fd, block, n * block) for n in range(count)] == first
    finally:
        os.close(fd)


@case
def unchanged_file_is_read_for_nothing(a, b, run):
    """open, fstat, read and close of a file that nobody changes send no request once they did."""
    put(path(a, "f"), b"data" * 5000)
    quiet(a)

    def look():
        with open(path(b, "f"), "rb") as file:
            os.fstat(file.fileno())
            assert file.read() == b"data" * 5000
        os.stat(path(b, "f"))
    for _ in range(3):
        look()
    before = quiet(b)
    for _ in range(run.rounds(100, 1000)):
        look()
    sent = requests(before, counters(b))
    assert not sent, f"{sent}"


@case
def looks_at_the_size_leave_the_writer_alone(a, b, run):
    """A storm of stat on one mount while the other writes: the size grows, and the writer keeps its lock."""
    before = counters(a)

    def write():
        with open(path(a, "f"), "wb", buffering=0) as file:
            for _ in range(run.rounds(400, 4000)):
                file.write(b"x" * 10000)

    def look():
        last = 0
        for _ in range(run.rounds(400, 4000)):
            try:
                size = os.stat(path(b, "f")).st_size
            except FileNotFoundError:
                continue
            assert size >= last, f"the size went from {last} to {size}"
            last = size
    at_once(write, look)
    called = counters(a)["lock.ranges_called_back"] - before["lock.ranges_called_back"]
    assert called == 0, f"the writer was called back {called} times"


@case
def interleaved_records_call_nobody_back(a, b, run):
    """Two mounts write every second record of 47,008 bytes of one file: once each of them has written one, nobody is called back."""
    records = run.rounds(200, 2000)
    put(path(a, "f"))

    def callbacks():
        return sum(counters(mount)["lock.ranges_called_back"] for mount in (a, b))

    def write(mount, written):
        fd = os.open(path(mount, "f"), os.O_WRONLY)
        for n in written:
            assert os.pwrite(fd, bytes([n % 251]) * RECORD, n * RECORD) == RECORD
        os.close(fd)
    before = callbacks()
    # Who was there first has everything until the other one comes, once. (What lies before may be on the MDT.)
    write(a, [2])
    write(b, [3])
    first = callbacks() - before
    assert first == 1, f"{first} callbacks for the first two records"
    before = callbacks()
    at_once(lambda: write(a, range(4, records, 2)), lambda: write(b, range(5, records, 2)))
    called = callbacks() - before
    with open(path(a, "f"), "rb") as file:
        file.seek(2 * RECORD)
        for n in range(2, records):
            assert file.read(RECORD) == bytes([n % 251]) * RECORD, f"record {n}"
    assert called == 0, f"{called} callbacks for {records} records"
