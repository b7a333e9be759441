#!/usr/bin/env python3
"""How long the ranks of an IOR run were in open and close, and how long in reading and writing.

usage: phase-report.py FILE...

FILE is what IOR wrote with -O saveRankPerformanceDetailsCSV=FILE. Prints for writes and for reads a histogram of the ranks by the time of
each phase (a bar of the powers of two, in milliseconds), and the share of open and close. A run that loses there gains nothing from
faster disks: more data for each open does, or fewer ranks that open at the same moment."""

import csv
import statistics
import sys

COLUMNS = ("access", "rank", "runtime-with-openclose", "runtime")
BAR = 40


def ranks_of(path):
    """What each rank took: its access, its seconds in open and close, and its seconds in reads or writes."""
    with open(path, newline="") as file:
        rows = csv.DictReader(file)
        lacking = [name for name in COLUMNS if name not in (rows.fieldnames or [])]
        if lacking:
            raise ValueError(f"there is no column {lacking[0]}: let IOR write it with -O saveRankPerformanceDetailsCSV={path}")
        for row in rows:
            try:
                whole, moved = float(row["runtime-with-openclose"]), float(row["runtime"])
            except (TypeError, ValueError):
                raise ValueError(f"line {rows.line_num} has no two times") from None
            yield row["access"], max(0.0, whole - moved), moved


def buckets(times):
    """The number of times below each power of two of milliseconds, from the smallest to the greatest that there is."""
    powers = [max(0, (int(time * 1000)).bit_length()) for time in times]
    return [(1 << power, powers.count(power)) for power in range(min(powers), max(powers) + 1)]


def histogram(title, times):
    lines = [f"  {title}: median {statistics.median(times) * 1000:.1f} ms, longest {max(times) * 1000:.1f} ms"]
    found = buckets(times)
    most = max(count for _, count in found)
    lines += [f"    < {below:>8} ms {count:>7} {'#' * -(-count * BAR // most)}" for below, count in found]
    return lines


def report(ranks):
    """The lines for one access."""
    around, moving = [rank[0] for rank in ranks], [rank[1] for rank in ranks]
    share = 100 * sum(around) / max(sum(around) + sum(moving), 1e-9)
    lines = [f"{len(ranks)} ranks, {share:.1f} % of their time in open and close"]
    return lines + histogram("open and close", around) + histogram("reading or writing", moving)


def main(paths):
    if not paths or paths[0].startswith("-"):
        print(__doc__)
        return 0 if paths[:1] == ["--help"] else 2
    by_access = {}
    for path in paths:
        try:
            for access, around, moving in ranks_of(path):
                by_access.setdefault(access, []).append((around, moving))
        except (OSError, ValueError) as error:
            print(f"phase-report.py: {path}: {error}", file=sys.stderr)
            return 1
    if not by_access:
        print("phase-report.py: there are no ranks in it", file=sys.stderr)
        return 1
    for access, ranks in sorted(by_access.items(), reverse=True):
        print(f"{access}: " + "\n".join(report(ranks)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
