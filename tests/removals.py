"""The MDS is killed in the middle of rm -rf, and no object is left that no file has: removals.py WEFT WORK ID.

In the cluster of faults.py a tree of striped files is removed on one client; the other one has some of them open. At certain
moments of the removal processes are killed, and servers started again. Afterwards, by what the OSTs say (lfs df -i counts
their objects), there are as many objects as the files that are left, and those that are open without a name, have stripes; and
no more inodes than files and directories. What is left has to be whole, and at the end the checker has to find nothing.
"""

import json
import os
import re
import subprocess
import sys
import time

import faults
from faults import poll, run

LFS = os.path.join(os.path.dirname(os.path.abspath(sys.argv[1])), "lfs")
FILES = 2000
FILES_PER_DIRECTORY = 50
STRIPES = 2
STRIPE_BYTES = 65536
# The second stripe has something too: an object comes with the first write.
FILE_BYTES = STRIPE_BYTES + 512
HELD = 20
KEPT = 50
# How long what is to be destroyed may take to be, after all that are to go on do: a lease, and some more.
DESTROY_SECONDS = 60
# Rows: name, at which parts of the removal whom to kill, and who is started again.
ROWS = [
    ("mds killed", [(0.5, ("mds",))]),
    ("mds killed three times", [(0.25, ("mds",)), (0.5, ("mds",)), (0.75, ("mds",))]),
    ("mds and oss1 killed", [(0.5, ("mds", "oss1"))]),
    # With its client, what was not durable of the removal is lost: the files are there again, whole.
    ("mds and the client killed", [(0.2, ("sync",)), (0.5, ("mds", "cla"))]),
    ("mds, oss1 and the client killed", [(0.2, ("sync",)), (0.5, ("mds", "oss1", "cla"))]),
]


def content(number):
    """What file `number` holds."""
    return (b"%08d" % number) * (FILE_BYTES // 8)


def make_tree(top, name, count):
    """A tree of striped files. Returns its root and the paths of the files."""
    root, paths = f"{top}/{name}", []
    os.mkdir(root)
    run(LFS, "setstripe", "-c", str(STRIPES), "-S", str(STRIPE_BYTES), root)
    for number in range(count):
        if number % FILES_PER_DIRECTORY == 0:
            directory = f"{root}/{number // FILES_PER_DIRECTORY:03d}"
            os.mkdir(directory)
        paths.append(f"{directory}/{number:05d}")
        with open(paths[-1], "wb") as file:
            file.write(content(number))
    return root, paths


def used(cluster):
    """Inodes of the MDT and objects of the OSTs that are in use; nothing while one of them does not say."""
    told = subprocess.run([LFS, "df", "-i", cluster.top("clb")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          check=False, timeout=60).stdout.decode()
    counts = {name: int(count) for name, count in re.findall(r"-(MDT\d{4}|OST\d{4})_UUID +\d+ +(\d+) ", told)}
    if len(counts) != 5:
        return None
    return counts["MDT0000"], sum(count for name, count in counts.items() if name != "MDT0000")


def counted(cluster, right):
    """Inodes and objects in use, as soon as every target says and they are right."""
    seen = []

    def is_so():
        seen[:] = [used(cluster)]
        return seen[0] is not None and right(seen[0])
    try:
        poll(is_so, DESTROY_SECONDS, "inodes and objects")
    except TimeoutError as failed:
        raise TimeoutError(f"{failed}: they are {seen[0]}") from failed
    return seen[0]


def stripes(path):
    """Stripes of a file, as its layout says."""
    return len(json.loads(os.getxattr(path, "weft.layout"))["file"]["osts"])


def left(top):
    """Files and directories below a mount, and stripes of the files; each file is whole."""
    entries = count = 0
    for directory, directories, files in os.walk(top):
        entries += len(directories) + len(files)
        for name in files:
            path = os.path.join(directory, name)
            count += stripes(path)
            with open(path, "rb") as file:
                if file.read() != content(int(name)):
                    raise ValueError(f"{path} is not what was written")
    return entries, count


def kill(cluster, nodes):
    """Kills all of them, and starts the servers again. `sync` has made durable what was removed."""
    if nodes == ("sync",):
        run(cluster.weft, "sync", cluster.top("cla"))
        return
    for node in nodes:
        cluster.kill(node)
    for node in nodes:
        if node in faults.TARGETS:
            cluster.serve(node)


def removed_under(cluster, root, kills):
    """rm -rf, with its kills. Returns how it ended; None if its client was killed."""
    todo, count = list(kills), 0
    with subprocess.Popen(["rm", "-rfv", root], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as removing:
        for _ in removing.stdout:
            count += 1
            if todo and count >= todo[0][0] * FILES:
                kill(cluster, todo.pop(0)[1])
        status = removing.wait()
    if todo:
        raise RuntimeError(f"the removal ended after {count} lines, before {todo}")
    return None if any("cla" in nodes for _, nodes in kills) else status


def settled(cluster, extra_entries, extra_objects, before):
    """Waits until there is nothing that nobody has. Returns the counts, and how long it took."""
    start = time.monotonic()
    entries, count = left(cluster.top("clb"))
    want = (before[0] + entries + extra_entries, before[1] + count + extra_objects)
    seen = []

    def is_so():
        seen[:] = [used(cluster)]
        return seen[0] == want
    try:
        poll(is_so, DESTROY_SECONDS, "what is left")
    except TimeoutError as failed:
        raise TimeoutError(f"{failed}: inodes and objects are {seen[0]}, not {want}") from failed
    return entries, count, time.monotonic() - start


def one(cluster, name, kills):
    """One row."""
    if not os.path.ismount(cluster.top("cla")):
        cluster.mount("cla")
    # Nothing but the root, and what a target has by itself.
    before = counted(cluster, lambda _: True)
    root, paths = make_tree(cluster.top("cla"), "tree", FILES)
    make_tree(cluster.top("cla"), "kept", KEPT)
    run(cluster.weft, "sync", cluster.top("cla"))
    # What another mount is told of the OSTs may be a moment old.
    counted(cluster, lambda counts: counts[1] - before[1] == (FILES + KEPT) * STRIPES)
    held = [os.open(path.replace(cluster.top("cla"), cluster.top("clb")), os.O_RDONLY) for path in paths[::FILES // HELD]]
    status = removed_under(cluster, root, kills)
    if status is None:
        subprocess.run(["umount", "-l", cluster.top("cla")], check=False, stderr=subprocess.DEVNULL)
    elif status:
        raise RuntimeError(f"rm says {status}")
    # A file that is open and has no name has objects all the same, and its bytes.
    nameless = [fd for fd in held if os.fstat(fd).st_nlink == 0]
    entries, count, seconds = settled(cluster, len(nameless), len(nameless) * STRIPES, before)
    for fd in held:
        if os.pread(fd, FILE_BYTES, 0)[8:] != os.pread(fd, 8, 0) * (FILE_BYTES // 8 - 1):
            raise ValueError("a file that is open and removed is not what was written")
        os.close(fd)
    _, _, closed = settled(cluster, 0, 0, before)
    evicted = cluster.evictions() if status is not None else []
    if evicted:
        raise RuntimeError(f"evictions: {evicted}")
    if not 0 < len(nameless) <= HELD:
        raise ValueError(f"{len(nameless)} of the open files have no name: the removal did not begin")
    if status is not None and entries != KEPT + 1 + (KEPT + FILES_PER_DIRECTORY - 1) // FILES_PER_DIRECTORY:
        raise ValueError(f"{entries} names are left")
    print(f"{name:<34} {count:5} stripes of files that are left, {len(nameless) * STRIPES:3} of those open without a name: "
          f"as many objects after {seconds:.1f} s, and {closed:.1f} s after they were closed", flush=True)
    run("rm", "-rf", root.replace(cluster.top("cla"), cluster.top("clb")), f"{cluster.top('clb')}/kept")
    settled(cluster, 0, 0, before)


def main():
    """All rows."""
    weft, work, ident = sys.argv[1:4]
    net = faults.Net(ident)
    cluster = faults.Cluster(os.path.abspath(weft), work, net)
    try:
        net.make()
        cluster.format()
        for node in faults.TARGETS:
            cluster.serve(node)
        for node in ("cla", "clb"):
            cluster.mount(node)
        for name, kills in ROWS:
            one(cluster, name, kills)
        cluster.stop()
        for n in range(4):
            path = f"{work}/ost{n}"
            if os.path.exists(path):
                run(weft, "check", path)
        run(weft, "check", f"{work}/mdt0")
    finally:
        cluster.stop()
        net.remove()
        faults.keep_logs(cluster)


if __name__ == "__main__":
    main()
