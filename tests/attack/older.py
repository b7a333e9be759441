#!/usr/bin/env python3
"""An older copy of a target in its place, and a second copy of it at another address.

A target's start is known to its peers: one that went backwards is refused with a sentence, and never served without a word. A copy at
another address never takes over while the first one lives.
"""

import os
import re
import subprocess

import box as b
from cluster import MDS, OSS1, SERVERS, TARGETS, Servers, address, copy_sparse
from promises import pattern

FILES = 12
SERVED_SECONDS = 20
# A sentence about it, in whatever words.
SAYS = re.compile(r"older|goes? back|went back|backwards|restored|an? (earlier|old) (copy|state)")


def make(root, first, count):
    """Files, fsynced."""
    for number in range(first, first + count):
        with open(f"{root}/f{number}", "xb", buffering=0) as file:
            file.write(pattern(f"older {number}", 70_000))
            os.fsync(file.fileno())


def wrong(root, count):
    """Files that do not show what was written to them, or are missing; an error of the system is no silence."""
    found = []
    for number in range(count):
        try:
            with open(f"{root}/f{number}", "rb") as file:
                if file.read() != pattern(f"older {number}", 70_000):
                    found.append(f"f{number} shows other bytes")
        except FileNotFoundError:
            found.append(f"f{number} is missing")
        except OSError:
            pass
    return found


def older_copy(box, servers, node, number):
    """The targets of a server are stopped, copied, used on, stopped, and replaced by the copy."""
    root = f"{servers.mounts['a']}/older{number}"
    os.mkdir(root)
    b.run(box.lfs, "setstripe", "-c", "1", "-i", "0", root)
    make(root, 0, FILES)
    targets = [servers.directory(target) for target in TARGETS[node]]
    servers.kill(node)
    for target in targets:
        copy_sparse(target, target + ".older")
    servers.serve(node)
    make(root, FILES, FILES)
    b.run("umount", servers.mounts["a"])
    servers.kill(node)
    for target in targets:
        os.rename(target, target + ".newer")
        os.rename(target + ".older", target)
    size = os.path.getsize(servers.log(node))
    servers.serve(node)
    said = refusal(servers, node, size)
    box.tried()
    if not said:
        done = b.attempt(*servers.nodes["a"].on(box.weft, "mount", f"{address('mgs')}@tcp:/{servers.name}", servers.mounts["a"]), seconds=30)
        try:
            problems = b.Bounded(wrong, 40, "reading")(root, 2 * FILES) if done.returncode == 0 else []
            box.fail(f"an older copy of {TARGETS[node]} is served without a word; {len(problems)} of {2 * FILES} files are silently wrong")
        except TimeoutError:
            box.fail(f"an older copy of {TARGETS[node]} is served without a word, and reading hangs")
        b.attempt("umount", "-l", servers.mounts["a"])
    else:
        box.say(f"{node}: {said[:200]}")
    if node in servers.pids:
        servers.kill(node)
    for target in targets:
        b.shutil.rmtree(target)
        os.rename(target + ".newer", target)
    servers.serve(node)
    servers.mount("a")
    box.tried()
    for problem in b.Bounded(wrong, 60, "reading the newer one")(root, 2 * FILES):
        box.fail(f"after the newer copy of {TARGETS[node]} came back: {problem}")


def refusal(servers, node, size):
    """A line that says that the target is older; None if the server serves it."""
    end = b.time.monotonic() + SERVED_SECONDS
    while b.time.monotonic() < end:
        with open(servers.log(node), encoding="utf-8", errors="replace") as log:
            log.seek(size)
            for line in log:
                if " INFO " not in line and SAYS.search(line):
                    return line.strip()
        b.time.sleep(0.2)
    return None


def second_copy(box, servers, node):
    """A copy of a live target is served at another address."""
    root = f"{servers.mounts['a']}/second-{node}"
    b.Bounded(os.mkdir, 60, "mkdir")(root)
    b.run(box.lfs, "setstripe", "-c", "1", "-i", "0", root)
    make(root, 0, FILES)
    copies = []
    for target in TARGETS[node]:
        copies.append(box.path(f"second-{target}"))
        copy_sparse(servers.directory(target), copies[-1])
    with open(box.path("second.log"), "wb") as log:
        child = subprocess.Popen(servers.nodes["b"].on(box.weft, "serve", *copies, "--listen", f"{address('b')}@tcp", "--server", "thief"),
                                 stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    b.time.sleep(5)
    box.tried()
    try:
        b.Bounded(make, 40, "writing beside a second copy")(root, FILES, FILES)
        problems = b.Bounded(wrong, 40, "reading beside a second copy")(root, 2 * FILES)
    except (TimeoutError, OSError) as error:
        problems = [str(error)]
    b.kill(child.pid)
    for problem in problems[:3]:
        box.fail(f"a second copy of {TARGETS[node]} at another address: {problem}")
    box.tried()
    try:
        for problem in b.Bounded(wrong, 60, "reading after it")(root, 2 * FILES)[:3]:
            box.fail(f"after a second copy of {TARGETS[node]}: {problem}")
    except TimeoutError as error:
        box.fail(f"after a second copy of {TARGETS[node]}: {error}")
        return False
    return True


def body(box):
    """The attack."""
    servers = Servers(box, "age", clients=("a", "b"))
    servers.format()
    for node in SERVERS:
        servers.serve(node)
    servers.mount("a")
    for number, node in enumerate((MDS, OSS1)):
        older_copy(box, servers, node, number)
    for node in (OSS1, MDS):
        if not second_copy(box, servers, node):
            break
    box.note("an older copy of an MDT and of an OST in their places; a second copy of each at another address")


if __name__ == "__main__":
    b.attack("older", body, trials=1, seconds=60)
