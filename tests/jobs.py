#!/usr/bin/env python3
"""Two jobs at the same time on two mounts: what each of them did is what the MDT and the OSTs have counted for it, and what the changelog says.

Usage: tests/jobs.py LFS MDT READER DIRECTORY SAME-DIRECTORY-ON-ANOTHER-MOUNT -- LCTL...; as root, with jobid_var=SLURM_JOB_ID and cleared
statistics. LCTL... is the command that reads parameters of all targets.
"""

import collections
import json
import os
import re
import subprocess
import sys
import threading
import time

JOBS = ("4711", "4712")
THREADS = 3
FILES = 4
ROW = re.compile(
    r"  (\w+): +\{ samples: +(\d+), unit: (?:usecs|bytes), min: +\d+, max: +\d+, sum: +(\d+), sumsq: +\d+ \}$"
)


def size(job, thread, number):
    """Of one file of a job."""
    return 1 + 1000 * int(job[-1]) + 70_000 * thread + 40_000 * number


def names(top, job, thread):
    return [os.path.join(top, f"{job}.{thread}.{number}") for number in range(FILES)]


def write(top, job, thread):
    for number, name in enumerate(names(top, job, thread)):
        file = os.open(name + ".new", os.O_RDWR | os.O_CREAT | os.O_EXCL)
        data = b"x" * size(job, thread, number)
        for at in range(0, len(data), 30_000):
            os.write(file, data[at : at + 30_000])
        os.close(file)
        os.chmod(name + ".new", 0o640)
        os.rename(name + ".new", name)
        os.mkdir(name + ".d")
        os.rmdir(name + ".d")
        os.symlink("nowhere", name + ".l")
        os.unlink(name + ".l")


def read(top, job, thread):
    """The files of the other job, which this mount has never seen."""
    other = next(one for one in JOBS if one != job)
    for number, name in enumerate(names(top, other, thread)):
        with open(name, "rb", buffering=0) as file:
            assert len(file.readall()) == size(other, thread, number)


def work(act, top, job):
    """A process of a job, with threads."""
    threads = [threading.Thread(target=act, args=(top, job, thread)) for thread in range(THREADS)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()


def start(act, tops):
    """Both jobs, each on its mount."""
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, "--work", act, top, job], env={**os.environ, "SLURM_JOB_ID": job}
        )
        for top, job in zip(tops, JOBS)
    ]
    assert all(process.wait() == 0 for process in processes)


def counted(lctl, pattern):
    """By job and row: how often, and all together."""
    text = subprocess.run([*lctl, "get_param", "-n", pattern], check=True, capture_output=True, text=True).stdout
    sums = collections.defaultdict(lambda: collections.defaultdict(lambda: [0, 0]))
    job = None
    for line in text.splitlines():
        if line.startswith("- job_id:"):
            job = json.loads(line.split(":", 1)[1])
        elif row := ROW.match(line):
            sums[job][row[1]][0] += int(row[2])
            sums[job][row[1]][1] += int(row[3])
        else:
            assert re.match(r"job_stats:$|  (snapshot_time|start_time|elapsed_time): +\d+$", line), line
    try:
        import yaml
    except ImportError:
        return sums
    for part in text.split("job_stats:\n")[1:]:
        for one in yaml.safe_load(part) or []:
            assert one["job_id"] and one["snapshot_time"] >= one["start_time"], one
    return sums


def until(seconds, what, *args):
    """The closes come when the data is durable."""
    end = time.monotonic() + seconds
    while (told := what(*args)) is not None:
        assert time.monotonic() < end, told
        time.sleep(0.2)


def differs(lctl, wanted):
    sums = counted(lctl, "mdt.*.job_stats")
    told = {job: {row: sums[job][row][0] for row in rows} for job, rows in wanted.items()}
    return None if told == wanted else f"the MDT says {told}, and it was {wanted}"


def bytes_differ(lctl, row, wanted):
    sums = counted(lctl, "obdfilter.*.job_stats")
    told = {job: sums[job][row][1] for job in JOBS}
    return None if told == wanted else f"the OSTs say {row} {told}, and it was {wanted}"


def main():
    at = sys.argv.index("--")
    lfs, mdt, reader, *tops = sys.argv[1:at]
    lctl = sys.argv[at + 1 :]
    done = THREADS * FILES
    sizes = {job: sum(size(job, thread, n) for thread in range(THREADS) for n in range(FILES)) for job in JOBS}
    start("write", tops)
    rows = dict.fromkeys(("open", "close", "setattr", "mkdir", "rmdir", "mknod", "unlink", "rename"), done)
    rows["samedir_rename"], rows["crossdir_rename"] = done, 0
    until(60, differs, lctl, {job: rows for job in JOBS})
    until(60, bytes_differ, lctl, "write_bytes", sizes)
    start("read", tops)
    # Whoever has looked a file up opens it to read without the MDT.
    until(10, differs, lctl, {job: {"open": done} for job in JOBS})
    until(10, bytes_differ, lctl, "read_bytes", dict(zip(JOBS, reversed([sizes[job] for job in JOBS]))))
    records = subprocess.run([lfs, "changelog", "--user", reader, mdt], check=True, capture_output=True, text=True)
    told = collections.Counter()
    for line in records.stdout.splitlines():
        kind = line.split()[1][2:]
        job = re.search(r" t=\[[^ ]+\] j=([^ ]+) ef=", line)
        if job and job[1] in JOBS:
            told[job[1], kind] += 1
            owner = re.search(r"p=\[[^ ]+\] (\d+)\.", line)
            assert owner is None or owner[1] == job[1], line
    kinds = ("CREAT", "CLOSE", "SATTR", "RENME", "MKDIR", "RMDIR", "SLINK", "UNLNK")
    assert told == {(job, kind): done for job in JOBS for kind in kinds}, told
    print(f"{sum(told.values())} records, {sum(sizes.values())} bytes")


if __name__ == "__main__":
    if sys.argv[1] == "--work":
        work({"write": write, "read": read}[sys.argv[2]], *sys.argv[3:])
    else:
        main()
