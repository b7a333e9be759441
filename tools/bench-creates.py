#!/usr/bin/env python3
"""Creates for a while, and counts them in buckets of 100 ms: whether a flush in the background stalls them (G13).

Usage: bench-creates.py DIR [--control DIR] [--seconds 60] [--processes 2]

DIR is on a mount. Each process makes empty files, 1,000 in a directory. With --control, a process besides makes files in that
directory (on a tmpfs) in small steps, with pauses, all the time: what it cannot do in a bucket, the machine has taken from it, and such
buckets, and those next to them, are counted apart. Printed: the least bucket as a part of the median, the same of the undisturbed
ones, the spectrum's part at 0.2 Hz (a flush each 5 s), and latencies.
"""
import argparse
import cmath
import multiprocessing
import os
import statistics
import time

BUCKET = 0.1


def create(directory, number, until, begin, results):
    """Makes files until the time is over; gives the end and the duration of each create."""
    home = os.path.join(directory, f"p{number}")
    os.mkdir(home)
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
    done = []
    begin.wait()
    count = 0
    while True:
        if count % 1000 == 0:
            where = os.path.join(home, str(count // 1000))
            os.mkdir(where)
        before = time.monotonic()
        if before > until.value:
            break
        os.close(os.open(os.path.join(where, str(count)), flags, 0o644))
        after = time.monotonic()
        done.append((after, after - before))
        count += 1
    results.put(done)


def watch(directory, until, begin, results):
    """How long a short piece of work takes, again and again: longer than usual if others have the processor."""
    begin.wait()
    seen = []
    path = os.path.join(directory, f"control{os.getpid()}")
    while True:
        before = time.monotonic()
        if before > until.value:
            break
        for _ in range(20):
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
            os.unlink(path)
        seen.append((before, time.monotonic() - before))
        time.sleep(0.005)
    results.put(seen)


def buckets(times, start, count):
    counted = [0] * count
    for at in times:
        bucket = int((at - start) / BUCKET)
        if 0 <= bucket < count:
            counted[bucket] += 1
    return counted


def part_at(counted, hertz):
    """Amplitude at a frequency, as a part of the mean; and the largest of its neighbours, for comparison."""
    mean = statistics.fmean(counted)

    def amplitude(at):
        turn = -2j * cmath.pi * at * BUCKET
        return 2 * abs(sum((value - mean) * cmath.exp(turn * n) for n, value in enumerate(counted))) / len(counted) / mean

    step = 1 / (len(counted) * BUCKET)
    others = [amplitude(hertz + n * step) for n in range(-5, 6) if n != 0 and hertz + n * step > 0]
    return amplitude(hertz), max(others)


def disturbed(seen, start, count):
    """Buckets in which the control was held up, and their neighbours."""
    usual = statistics.median(took for _, took in seen)
    bad = set()
    for at, took in seen:
        if took > 3 * usual:
            first, last = int((at - start) / BUCKET), int((at + took - start) / BUCKET)
            bad.update(range(first - 1, last + 2))
    # Who was not seen at all in a bucket did not run in it.
    present = {int((at - start) / BUCKET) for at, _ in seen}
    bad.update(n for n in range(count) if n not in present)
    return {n for n in bad if 0 <= n < count}


def report(name, counted):
    median = statistics.median(counted)
    least = min(counted)
    print(f"{name}: {len(counted)} buckets, median {median:.0f}, least {least} ({100 * least / median:.0f} % of the median)")
    low = sum(value < 0.7 * median for value in counted)
    print(f"  below 70 %: {low} ({100 * low / len(counted):.1f} %)")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--control")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--raw", help="write the buckets there: number, creates, 1 if disturbed")
    given = parser.parse_args()
    until, begin, results, seen = multiprocessing.Value("d", 0), multiprocessing.Event(), multiprocessing.Queue(), multiprocessing.Queue()
    workers = [
        multiprocessing.Process(target=create, args=(given.directory, n, until, begin, results))
        for n in range(given.processes)
    ]
    if given.control:
        workers.append(multiprocessing.Process(target=watch, args=(given.control, until, begin, seen)))
    for worker in workers:
        worker.start()
    time.sleep(1)
    start = time.monotonic() + 1
    until.value = start + given.seconds
    begin.set()
    done = [one for _ in range(given.processes) for one in results.get()]
    watched = seen.get() if given.control else []
    for worker in workers:
        worker.join()
    count = int(given.seconds / BUCKET)
    inside = [(at, took) for at, took in done if start <= at < start + given.seconds]
    counted = buckets((at for at, _ in inside), start, count)
    bad = disturbed(watched, start, count) if watched else set()
    print(f"{len(inside)} creates in {given.seconds:.0f} s by {given.processes} processes, {len(inside) / given.seconds:.0f} a second")
    report("all", counted)
    calm = [value for n, value in enumerate(counted) if n not in bad]
    if watched and calm:
        report("undisturbed", calm)
    amplitude, others = part_at(counted, 0.2)
    print(f"at 0.2 Hz: {100 * amplitude:.1f} % of the mean; its neighbours at most {100 * others:.1f} %")
    for name, chosen in (
        ("all", inside),
        ("undisturbed", [one for one in inside if int((one[0] - start) / BUCKET) not in bad]),
    ):
        took = sorted(took for _, took in chosen)
        if took:
            middle, late = took[len(took) // 2], took[len(took) * 999 // 1000]
            print(f"latency, {name}: median {1e6 * middle:.0f} us, p99.9 {1e6 * late:.0f} us ({late / middle:.1f} times), longest {1e3 * took[-1]:.1f} ms")
    if given.raw:
        with open(given.raw, "w") as raw:
            for n, value in enumerate(counted):
                raw.write(f"{n} {value} {int(n in bad)}\n")


main()
