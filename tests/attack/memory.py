#!/usr/bin/env python3
"""Memory groups: `weft up` in a group of 512 MiB, while files are made, written, listed and removed without end.

A failure: the kernel kills something in the group, an operation fails, or memory goes on growing: the anonymous memory of the last
quarter may be larger than that of the second by a sixteenth of the group at most, once caches have reached their bounds.
"""

import os
import threading

import box as b
from cluster import Up

LIMIT = 512 << 20
GROWTH = LIMIT // 16
BATCH = 200
# So many files fill what is kept of files that have gone, up to its bound. Before that each may leave so many bytes.
WARM_FILES, EACH_MAX = 100_000, 3000


class Group:
    """A memory group, of either version of control groups."""

    def __init__(self, box):
        name = os.path.basename(box.work)
        self.old = os.path.isdir("/sys/fs/cgroup/memory")
        self.path = f"/sys/fs/cgroup/memory/{name}" if self.old else f"/sys/fs/cgroup/{name}"
        if not self.old:
            with open("/sys/fs/cgroup/cgroup.subtree_control", "w", encoding="ascii") as control:
                control.write("+memory")
        os.mkdir(self.path)
        self.put("memory.limit_in_bytes" if self.old else "memory.max", LIMIT)
        if not self.old:
            self.put("memory.swap.max", 0)

    def put(self, file, value):
        """Writes a file of the group."""
        with open(f"{self.path}/{file}", "w", encoding="ascii") as control:
            control.write(str(value))

    def enter(self):
        """Puts this process in, and with it what it starts."""
        self.put("cgroup.procs", os.getpid())

    def leave(self):
        """Takes this process out again; what it started stays in."""
        with open(os.path.join(os.path.dirname(self.path), "cgroup.procs"), "w", encoding="ascii") as control:
            control.write(str(os.getpid()))

    def numbers(self, file):
        """A file of names and numbers."""
        with open(f"{self.path}/{file}", encoding="ascii") as control:
            return {line.split()[0]: int(line.split()[1]) for line in control}

    def anonymous(self):
        """Bytes that no file backs: what the processes themselves have."""
        return self.numbers("memory.stat")["total_rss" if self.old else "anon"]

    def killed(self):
        """How often the kernel has killed something for want of memory."""
        return self.numbers("memory.oom_control" if self.old else "memory.events")["oom_kill"]


class Churn:
    """Directories of small files that come and go."""

    def __init__(self, box, root):
        self.box, self.root, self.files, self.errors = box, root, 0, []
        self.stopped = threading.Event()

    def work(self, number):
        """One thread."""
        serial = 0
        while not self.stopped.is_set() and not self.errors:
            serial += 1
            directory = f"{self.root}/t{number}-{serial}"
            try:
                os.mkdir(directory)
                for n in range(BATCH):
                    with open(f"{directory}/{n}", "wb", buffering=0) as file:
                        file.write(b"ten bytes!")
                for name in os.listdir(directory):
                    with open(f"{directory}/{name}", "rb") as file:
                        if file.read() != b"ten bytes!":
                            self.errors.append(f"{directory}/{name} has other bytes")
                    os.unlink(f"{directory}/{name}")
                os.rmdir(directory)
            except OSError as error:
                self.errors.append(str(error))
            self.files += BATCH


def body(box):
    """The attack."""
    group = Group(box)
    up = Up(box, "memory", osts=4)
    group.enter()
    up.start()
    group.leave()
    churn = Churn(box, up.mount)
    threads = [threading.Thread(target=churn.work, args=(number,), daemon=True) for number in range(2)]
    for thread in threads:
        thread.start()
    samples = []
    while not box.time_is_up() and not churn.errors and not group.killed():
        b.time.sleep(1)
        samples.append((churn.files, group.anonymous()))
        if len(samples) % 20 == 0:
            box.say(f"{churn.files} files, {samples[-1][1] >> 20} MiB")
    churn.stopped.set()
    for thread in threads:
        thread.join(60)
    box.tried(churn.files)
    judge(box, group, churn, samples)
    if not group.killed():
        b.attempt(box.weft, "down", up.mount)


def judge(box, group, churn, samples):
    """What the samples say."""
    if group.killed():
        box.fail(f"the kernel killed something in the group after {churn.files} files")
    for error in churn.errors[:3]:
        box.fail(error)
    quarter = len(samples) // 4
    if quarter >= 5:
        early, late = (sorted(bytes_ for _, bytes_ in part)[quarter // 2]
                       for part in (samples[quarter:2 * quarter], samples[-quarter:]))
        files = samples[-quarter // 2][0] - samples[quarter * 3 // 2][0]
        box.note(f"files made and removed in a group of {LIMIT >> 20} MiB; {early >> 20} MiB in the second quarter, "
                 f"{late >> 20} MiB in the last, {files} files between")
        each = (late - early) / max(files, 1)
        box.note(f"{each:.0f} bytes for each")
        # Caches fill to their bounds first; a short test can only see that a file does not leave much behind.
        if late > early + GROWTH and (samples[quarter][0] > WARM_FILES or each > EACH_MAX):
            box.fail(f"memory grows: {early >> 20} MiB, and {late >> 20} MiB after {files} more files")
    else:
        box.fail(f"only {len(samples)} samples")


if __name__ == "__main__":
    b.attack("memory", body, trials=1, seconds=90)
