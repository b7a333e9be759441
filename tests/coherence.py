"""Two mounts of one file system agree at every moment: `coherence.py [OPTIONS] A B [CASE...]`.

A and B are one directory, seen by two mounts. Both may be the same directory of any file system: that is how the
cases themselves are tested. docs/coherence.md has the table of the cases.
"""

import argparse
import os
import shutil
import signal
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from cases import support  # noqa: E402
from cases import names, crossing, below, pairs, attributes, data, shared, counters, model  # noqa: E402, F401

MODULES = (names, below, pairs, attributes, data, shared, model)
HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = os.path.join(HERE, "..", "docs", "coherence.md")
KNOWN = os.path.join(HERE, "coherence-known.txt")


def table():
    """The cases that docs/coherence.md tells of."""
    with open(TABLE, encoding="utf-8") as file:
        return [line.split("`")[1] for line in file if line.startswith("| `")]


def check_table():
    """Fails if the table and the functions are not the same."""
    told, written = table(), list(support.CASES)
    missing = [name for name in written if name not in told]
    extra = [name for name in told if name not in written]
    twice = sorted({name for name in told if told.count(name) > 1})
    for kind, which in (("not in the table", missing), ("no such case", extra), ("twice in the table", twice)):
        if which:
            print(f"docs/coherence.md: {kind}: {' '.join(which)}")
    return not (missing or extra or twice)


def known():
    """Cases that are known to fail."""
    with open(KNOWN, encoding="utf-8") as file:
        return {line.split()[0] for line in file if line.strip() and not line.startswith("#")}


def stacks(group):
    """Where the processes of a group are, for a case that does not end."""
    lines = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.getpgid(int(pid)) != group:
                continue
            with open(f"/proc/{pid}/wchan", encoding="ascii") as file:
                where = file.read()
            try:
                with open(f"/proc/{pid}/stack", encoding="ascii") as file:
                    where += " " + " ".join(line.split()[-1] for line in file)
            except OSError:
                pass
            lines.append(f"process {pid} waits in {where}")
        except OSError:
            continue
    return lines


def run_case(function, a, b, run, seconds):
    """Runs a case in a process group of its own; returns (status, text), status one of ok, skip, fail."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.close(reader)
        status, text = "ok", ""
        try:
            function(a, b, run)
        except support.Skip as why:
            status, text = "skip", str(why)
        except AssertionError as failed:
            status, text = "fail", f"{failed}\n{traceback.format_exc(limit=-3)}"
        except BaseException:
            status, text = "fail", traceback.format_exc()
        os.write(writer, f"{status}\n{text}".encode()[:60000])
        os._exit(0)
    os.close(writer)
    os.set_blocking(reader, False)
    said, end, hung = b"", time.monotonic() + seconds, []
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        said += drain(reader)
        if time.monotonic() > end:
            hung = stacks(pid)
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            break
        time.sleep(0.002)
    said += drain(reader)
    os.close(reader)
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    if hung:
        return "fail", "\n".join([f"not done after {seconds} s"] + hung)
    status, _, text = said.decode().partition("\n")
    return (status or "fail"), (text or ("" if status == "ok" else "the process died"))


def drain(reader):
    """What lies in the pipe."""
    try:
        return os.read(reader, 65536)
    except BlockingIOError:
        return b""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", action="store_true", help="more rounds")
    parser.add_argument("--seed", type=int, default=1, help="of the random cases")
    parser.add_argument("--seconds", type=int, default=0, help="limit of one case")
    parser.add_argument("--list", action="store_true", help="show the cases")
    parser.add_argument("--check-table", action="store_true", help="compare them with docs/coherence.md")
    parser.add_argument("a", nargs="?")
    parser.add_argument("b", nargs="?")
    parser.add_argument("cases", nargs="*")
    return parser.parse_args()


def main():
    args = arguments()
    if args.list:
        for name, function in support.CASES.items():
            print(f"{name:32} {' '.join(function.__doc__.split())}")
        return True
    if args.check_table:
        return check_table()
    wanted = args.cases or list(support.CASES)
    allowed = known()
    counts = {"ok": 0, "known": 0, "skip": 0, "fail": 0}
    base = f"coherence.{os.getpid()}"
    os.mkdir(os.path.join(args.a, base))
    os.chmod(os.path.join(args.a, base), 0o755)
    for name in wanted:
        a, b = (os.path.join(top, base, name) for top in (args.a, args.b))
        os.mkdir(a)
        start = time.monotonic()
        run = support.Run(args.long, args.seed)
        if name in support.ROOT_ONLY and os.geteuid() != 0:
            status, text = "skip", "needs root"
        else:
            status, text = run_case(support.CASES[name], a, b, run, args.seconds or (3600 if args.long else 60))
        took = time.monotonic() - start
        if status == "fail" and name in allowed:
            status, text = "known", text.split("\n")[0]
        elif status == "ok" and name in allowed:
            text = "passes, so it can be struck from tests/coherence-known.txt"
        counts[status] += 1
        print(f"{status:5} {name:32} {took:6.2f} s" + (f": {text.splitlines()[0]}" if text else ""), flush=True)
        if status == "fail":
            for line in text.splitlines()[1:]:
                print("      |", line)
        shutil.rmtree(a, ignore_errors=True)
    shutil.rmtree(os.path.join(args.a, base), ignore_errors=True)
    print(f"{counts['ok']} passed, {counts['fail']} failed, {counts['known']} known to fail, {counts['skip']} skipped")
    return counts["fail"] == 0


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
