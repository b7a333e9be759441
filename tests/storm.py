"""Two clients in one directory, every operation timed: storm.py A B SECONDS [STALL_MS].

First half: both extract the same archive into one directory, again and again, as `tar -x` does it: with the same
names, the same files, and whatever the other has made is removed first. Second half: one creates files in a
directory, the other lists and removes them. Fails if one operation took longer than STALL_MS (default 1000; longer if the machine is busy), if an
errno comes that a local file system would not give, or if what is left is not what was in the archive.
"""

import errno
import json
import multiprocessing
import os
import random
import sys
import time

from patience import patience

fork = multiprocessing.get_context("fork")
STALL_MS = 1000
SHOWN_SLOWEST = 5


class Timed:
    """Runs operations and remembers how long each took."""

    def __init__(self, who):
        self.who = who
        self.took = {}
        self.slowest = []

    def __call__(self, name, function, *args, allowed=(), **named):
        """Does one operation; an errno of `allowed` is returned."""
        start = time.monotonic()
        try:
            return function(*args, **named)
        except OSError as failed:
            if failed.errno not in allowed:
                raise
            return failed.errno
        finally:
            seconds = time.monotonic() - start
            self.took.setdefault(name, []).append(seconds)
            if len(self.slowest) < SHOWN_SLOWEST or seconds > self.slowest[-1][0]:
                what = f"{name} {args[0] if args else ''}"
                self.slowest = sorted(self.slowest + [(seconds, self.who, what, time.time())], reverse=True)
                self.slowest = self.slowest[:SHOWN_SLOWEST]


def archive(count):
    """Members of an archive: (path, kind, bytes or target)."""
    rng = random.Random(7)
    members = []
    for n in range(count):
        if n % 20 == 0:
            members.append((f"d{n // 20 % 7}", "dir", None))
            members.append((f"d{n // 20 % 7}/s{n // 140}", "dir", None))
        directory = f"d{n // 20 % 7}/s{n // 140}"
        members.append((f"{directory}/f{n}", "file", rng.randbytes(rng.choice((10, 900, 4096, 20_000, 70_000)))))
        if n % 10 == 0:
            members.append((f"{directory}/l{n}", "link", f"f{n}"))
    return members


def again(timed, path, make):
    """Makes something that may be there: what is there is removed, as tar does it, until it works."""
    for _ in range(1000):
        got = make()
        if got != errno.EEXIST:
            return got
        timed("unlink", os.unlink, path, allowed=(errno.ENOENT,))
    raise AssertionError(f"{path}: removed a thousand times, and still there")


def extract(timed, top, members):
    """Extracts the archive once."""
    for name, kind, value in members:
        path = os.path.join(top, name)
        if kind == "dir":
            timed("mkdir", os.mkdir, path, allowed=(errno.EEXIST,))
        elif kind == "link":
            again(timed, path, lambda: timed("symlink", os.symlink, value, path, allowed=(errno.EEXIST,)))
        else:
            fd = again(timed, path, lambda: (timed("create", os.open, path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600,
                                                   allowed=(errno.EEXIST,))))
            timed("write", os.write, fd, value)
            timed("utime", os.utime, fd, (1_700_000_000, 1_700_000_000))
            timed("chmod", os.fchmod, fd, 0o644)
            timed("close", os.close, fd)


def extracting(timed, top, end):
    """The first half."""
    members, rounds = archive(280), 0
    while time.monotonic() < end:
        extract(timed, top, members)
        rounds += 1
    return rounds


def creating(timed, top, end):
    """The second half, first mount."""
    n = 0
    while time.monotonic() < end:
        path = os.path.join(top, f"storm{n}")
        fd = timed("create", os.open, path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        if n % 4 == 0:
            timed("write", os.write, fd, b"x" * 5000)
        timed("close", os.close, fd)
        if n % 8 == 0:
            timed("rename", os.rename, path, path + ".moved", allowed=(errno.ENOENT,))
        n += 1
    return n


def removing(timed, top, end):
    """The second half, second mount."""
    n = 0
    while time.monotonic() < end:
        for name in timed("readdir", os.listdir, top):
            path = os.path.join(top, name)
            timed("stat", os.stat, path, allowed=(errno.ENOENT,))
            if timed("unlink", os.unlink, path, allowed=(errno.ENOENT,)) is None:
                n += 1
            if time.monotonic() > end:
                break
    return n


def half(name, works, seconds):
    """Runs works at once; returns what was timed."""
    queue, processes = fork.Queue(), []
    end = time.monotonic() + seconds

    def child(number, work, top):
        timed = Timed(f"{name} on {top}")
        try:
            queue.put((timed, work(timed, top, end), None))
        except BaseException as failed:
            queue.put((timed, 0, f"{name} on {top}: {type(failed).__name__}: {failed}"))
    for number, (work, top) in enumerate(works):
        processes.append(fork.Process(target=child, args=(number, work, top)))
        processes[-1].start()
    answers = [queue.get() for _ in processes]
    for process in processes:
        process.join()
    return answers


def check_archive(a, b):
    """What both extracted is there, whole, on both mounts."""
    wrong = []
    for top in (a, b):
        for name, kind, value in archive(280):
            path = os.path.join(top, name)
            if kind == "dir":
                good = os.path.isdir(path)
            elif kind == "link":
                good = os.readlink(path) == value
            else:
                with open(path, "rb") as file:
                    good = file.read() == value
                info = os.stat(path)
                good = good and info.st_mode & 0o777 == 0o644 and info.st_mtime == 1_700_000_000
            if not good:
                wrong.append(path)
    return wrong


def percentile(values, share):
    """The value that so many of them do not exceed."""
    return values[min(len(values) - 1, int(len(values) * share))] * 1000


def report(answers, seconds):
    """Prints counts and percentiles; returns the slowest."""
    merged, slowest = {}, []
    for timed, _, _ in answers:
        for name, took in timed.took.items():
            merged.setdefault(name, []).extend(took)
        slowest += timed.slowest
    for name, took in sorted(merged.items()):
        took.sort()
        print(f"  {name:8} {len(took):8} ({len(took) / seconds:7.0f}/s)  ms: p50 {percentile(took, .5):7.2f}  "
              f"p99 {percentile(took, .99):7.2f}  p99.9 {percentile(took, .999):7.2f}  max {took[-1] * 1000:7.2f}")
    slowest.sort(reverse=True)
    for took, who, what, when in slowest[:SHOWN_SLOWEST]:
        print(f"  {took * 1000:8.1f} ms  {who}: {what} at {time.strftime('%H:%M:%S', time.gmtime(when))}")
    return slowest[0][0] * 1000 if slowest else 0


def counters(top):
    """What a mount has counted, in sums: requests sent, and times its locks were called back. Empty elsewhere."""
    try:
        counted = json.loads(os.getxattr(top, "weft.counters"))
    except OSError:
        return {}
    return {"requests": sum(count for name, count in counted.items() if name.startswith("rpc.")),
            "inode locks called back": counted["lock.bits_called_back"],
            "ranges called back": counted["lock.ranges_called_back"]}


def report_counters(tops, before):
    """Prints what the mounts have counted since."""
    for top, old in zip(tops, before):
        if old:
            now = counters(top)
            print(f"  {os.path.basename(top)}: " + ", ".join(f"{now[name] - old[name]} {name}" for name in now))


def main():
    a, b, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3]) / 2
    stall = float(sys.argv[4]) if len(sys.argv) > 4 else STALL_MS
    wrong, longest = [], 0
    for name, works in (("extract", (extracting, extracting)), ("create-remove", (creating, removing))):
        os.mkdir(os.path.join(a, name))
        before = [counters(top) for top in (a, b)]
        answers = half(name, [(work, os.path.join(top, name)) for work, top in zip(works, (a, b))], seconds)
        print(f"{name}: {' and '.join(str(done) for _, done, _ in answers)} rounds or files")
        longest = max(longest, report(answers, seconds))
        report_counters((a, b), before)
        wrong += [failed for _, _, failed in answers if failed]
        if name == "extract" and not wrong:
            wrong += [f"not as in the archive: {path}" for path in check_archive(*(os.path.join(t, name) for t in (a, b)))]
    print(f"the longest operation took {longest:.1f} ms")
    stall = patience(stall)
    if longest > stall:
        wrong.append(f"an operation took {longest:.0f} ms: more than {stall:.0f} is a stall")
    for line in wrong[:20]:
        print("FAIL", line)
    return not wrong


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
