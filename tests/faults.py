"""One fault at a time under load, and what applications saw of it: faults.py [--long] [--markdown] WEFT WORK ID [FAULT...].

Four servers and two clients in six network namespaces and a bridge in a seventh, real mounts, and the load of
faultload.py on both. For each fault one row: errors of applications, the longest single operation on each client, how
long anybody waited after the fault was over (the server started again, the link up, the process continued), evictions
of live clients that were logged, bytes lost or changed, and reads that saw for a moment what another mount had
overwritten before. Errors, evictions and bytes have to be 0, but for ENOSPC while a disk is full; the pause has to be
under the fault's limit, and longer on a machine that is busy. Stale reads have nothing to do with faults (docs/recovery.md): they are shown and do not fail the
test. FAULT: only rows whose names begin so.
"""

import argparse
import dataclasses
import fcntl
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time

from faultload import Load
from patience import patience

ADDRESSES = {"mgs": 1, "mds": 2, "oss1": 3, "oss2": 4, "cla": 5, "clb": 6, "clc": 7}
TARGETS = {"mgs": ["mgs"], "mds": ["mdt0"], "oss1": ["ost0", "ost1"], "oss2": ["ost2", "ost3"]}
# Said by servers of clients that they throw out, and by mounts that learn that it happened.
EVICTED = re.compile(r"a client is evicted|did not replay in time|changes are lost")
BEGINS = re.compile(r"a session begins .*client=(\S+) from=([0-9.]+)")
OF_CLIENT = re.compile(r"client=(\S+)")
PANICKED = re.compile(r"panicked at|assertion .* failed")
# Operations of each worker that have to be done before a row is over.
OPERATIONS = 40
# Nobody may take longer to go on, with any fault.
SETTLE_SECONDS = 150
# How long a server may believe that a client lives which does not.
LEASE_SECONDS = 15
POLL = 0.005
FULL_DISK_BYTES = 192 << 20


def address(node):
    """Address of a node."""
    return f"10.99.8.{ADDRESSES[node]}"


def poll(condition, seconds, what):
    """Waits until something is so."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(POLL)


def run(*command, **named):
    """Runs a command that has to succeed."""
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, **named)


class Net:
    """Namespaces of nodes, and one with the bridge between them, so that nothing of the host's network is touched."""

    def __init__(self, ident):
        self.ident = ident
        self.nodes = []

    def namespace(self, node):
        """Name of a node's namespace."""
        return f"wf{self.ident}{node}"

    def within(self, node):
        """Begin of a command that is to run in a node's network. Not `ip netns exec`: that would hide the mounts."""
        return ["nsenter", f"--net=/run/netns/{self.namespace(node)}"]

    def make(self):
        """Makes everything."""
        run("ip", "netns", "add", self.namespace("sw"))
        self.nodes.append("sw")
        run(*self.within("sw"), "ip", "link", "add", "br0", "type", "bridge")
        run(*self.within("sw"), "ip", "link", "set", "br0", "up")
        for node in ADDRESSES:
            port = f"v{self.ident}{node}"
            run("ip", "netns", "add", self.namespace(node))
            self.nodes.append(node)
            run("ip", "link", "add", port, "netns", self.namespace("sw"), "type", "veth", "peer", "name", "eth0",
                "netns", self.namespace(node))
            run(*self.within("sw"), "ip", "link", "set", port, "master", "br0", "up")
            run(*self.within(node), "ip", "address", "add", f"{address(node)}/24", "dev", "eth0")
            run(*self.within(node), "ip", "link", "set", "eth0", "up")
            run(*self.within(node), "ip", "link", "set", "lo", "up")

    def link(self, node, state):
        """The node's cable, at the switch."""
        run(*self.within("sw"), "ip", "link", "set", f"v{self.ident}{node}", state)
        if state == "up":
            carrier = [*self.within(node), "ip", "-j", "link", "show", "dev", "eth0"]
            poll(lambda: json.loads(subprocess.check_output(carrier))[0]["operstate"] == "UP", 10, f"link of {node}")

    def cut(self, node, other):
        """Nothing passes between two nodes any more; the first one's firewall drops it."""
        rules = (f"table inet faults {{\n"
                 f"chain i {{\ntype filter hook input priority 0\nip saddr {address(other)} drop\n}}\n"
                 f"chain o {{\ntype filter hook output priority 0\nip daddr {address(other)} drop\n}}\n}}\n")
        subprocess.run([*self.within(node), "nft", "-f", "-"], input=rules.encode(), check=True)

    def mend(self, node):
        """The end of a cut."""
        run(*self.within(node), "nft", "delete", "table", "inet", "faults")

    def remove(self):
        """Removes everything."""
        for node in self.nodes:
            subprocess.run(["ip", "netns", "del", self.namespace(node)], check=False)


class Cluster:
    """Servers, mounts, their logs."""

    def __init__(self, weft, work, net):
        self.weft, self.work, self.net = weft, work, net
        self.fsname = f"wf{net.ident}"
        self.processes = {}
        self.read = {}
        # Where each client that servers know is, by its id.
        self.clients = {}

    def format(self):
        """Makes the targets; the last OST on a small file system of its own, that can be full."""
        mgs = ["--mgsnode", f"{address('mgs')}@tcp"]
        run("truncate", "-s", str(FULL_DISK_BYTES * 4), f"{self.work}/disk")
        run("mkfs.ext4", "-q", "-m", "0", f"{self.work}/disk")
        os.mkdir(f"{self.work}/small")
        run("mount", "-o", "loop", f"{self.work}/disk", f"{self.work}/small")
        os.symlink("small/ost3", f"{self.work}/ost3")
        form = [self.weft, "format", "--fsname", self.fsname]
        run(*form, "--mgs", f"{self.work}/mgs", stdout=subprocess.DEVNULL)
        run(*form, "--mdt", "--index", "0", *mgs, f"{self.work}/mdt0", stdout=subprocess.DEVNULL)
        for n in range(4):
            path = f"{self.work}/small/ost3" if n == 3 else f"{self.work}/ost{n}"
            run(*form, "--ost", "--index", str(n), *mgs, path, stdout=subprocess.DEVNULL)

    def launch(self, node, *command):
        """Starts a process on a node; its pid is its own, since nsenter becomes it."""
        with open(self.log(node), "ab") as log:
            process = subprocess.Popen([*self.net.within(node), self.weft, *command], stdin=subprocess.DEVNULL,
                                       stdout=log, stderr=log)
        self.processes[node] = process
        with open(f"{self.work}/pids", "a", encoding="ascii") as pids:
            pids.write(f"{process.pid}\n")

    def log(self, node):
        """Where a node's process writes."""
        return f"{self.work}/{node}.log"

    def serve(self, node):
        """Starts a server."""
        directories = [f"{self.work}/{target}" for target in TARGETS[node]]
        self.launch(node, "serve", *directories, "--listen", f"{address(node)}@tcp", "--server", node)

    def mount(self, node):
        """Mounts on a client, and waits until it is."""
        os.makedirs(self.top(node), exist_ok=True)
        self.launch(node, "mount", f"{address('mgs')}@tcp:/{self.fsname}", self.top(node), "--foreground")
        poll(lambda: os.path.ismount(self.top(node)) or self.processes[node].poll() is not None, 30, f"mount on {node}")
        if self.processes[node].poll() is not None:
            raise RuntimeError(f"no mount on {node}: {open(self.log(node), encoding='utf-8').read()}")

    def top(self, node):
        """Where a client's mount is."""
        return f"{self.work}/{node}"

    def unmount(self, node):
        """Unmounts, and waits for the end of the process."""
        if subprocess.run(["umount", self.top(node)], check=False, timeout=60).returncode:
            run("umount", "-l", self.top(node))
        self.processes[node].wait(60)

    def kill(self, node):
        """kill -9."""
        self.processes[node].kill()
        self.processes[node].wait()

    def signal(self, node, number):
        """Any other signal."""
        self.processes[node].send_signal(number)

    def found(self, pattern):
        """Lines of logs that match and were not there the last time; all of the rest is read too."""
        lines = []
        for node in self.processes:
            key = (node, pattern.pattern)
            with open(self.log(node), encoding="utf-8", errors="replace") as log:
                log.seek(self.read.get(key, 0))
                lines += [f"{node}: {line.strip()}" for line in log.readlines() if pattern.search(line)]
                self.read[key] = log.tell()
        return lines

    def evictions(self):
        """New lines about clients that live and were thrown out."""
        for text in self.found(BEGINS):
            client, origin = BEGINS.search(text).groups()
            self.clients[client] = origin
        live = (address("cla"), address("clb"))
        # An MDS is a client of OSTs too; it remembers for itself what they have to do.
        others = {client for client, origin in self.clients.items() if origin not in live}
        return [text for text in self.found(EVICTED) if not others & set(OF_CLIENT.findall(text))]

    def stop(self):
        """Ends everything, clients first."""
        for node in list(self.processes):
            self.processes[node].send_signal(signal.SIGCONT)
        for node in ("clc", "clb", "cla"):
            if node in self.processes and self.processes[node].poll() is None:
                try:
                    self.unmount(node)
                except (OSError, subprocess.SubprocessError):
                    self.kill(node)
            subprocess.run(["umount", "-l", self.top(node)], check=False, stderr=subprocess.DEVNULL)
        for node in ("oss1", "oss2", "mds", "mgs"):
            if node in self.processes:
                self.processes[node].terminate()
        for process in self.processes.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
        subprocess.run(["umount", f"{self.work}/small"], check=False, stderr=subprocess.DEVNULL)
        # Nobody is to be killed by a number that may be somebody else's by now.
        if os.path.exists(f"{self.work}/pids"):
            os.truncate(f"{self.work}/pids", 0)


@dataclasses.dataclass
class Fault:
    """What happens in a row. Each kind has a function below; it returns when the fault is over, as a monotonic time."""

    name: str
    kind: object
    nodes: tuple
    seconds: float = 0.0
    limit: float = 3.0
    always: bool = True
    # Why its pause may be over the limit for now.
    known: str = ""


def none(_cluster, _load, fault):
    """No fault, to see what the load does by itself."""
    time.sleep(fault.seconds)
    return time.monotonic()


def kill(cluster, _load, fault):
    """kill -9 of servers; started again after a while."""
    for node in fault.nodes:
        cluster.kill(node)
    time.sleep(fault.seconds)
    back = time.monotonic()
    for node in fault.nodes:
        cluster.serve(node)
    return back


def link(cluster, _load, fault):
    """A node's link is down for a while."""
    cluster.net.link(fault.nodes[0], "down")
    time.sleep(fault.seconds)
    cluster.net.link(fault.nodes[0], "up")
    return time.monotonic()


def stop(cluster, _load, fault):
    """A process is stopped for a while."""
    cluster.signal(fault.nodes[0], signal.SIGSTOP)
    time.sleep(fault.seconds)
    cluster.signal(fault.nodes[0], signal.SIGCONT)
    return time.monotonic()


def cut(cluster, _load, fault):
    """Two nodes do not reach each other for a while."""
    cluster.net.cut(*fault.nodes)
    time.sleep(fault.seconds)
    cluster.net.mend(fault.nodes[0])
    return time.monotonic()


def full(cluster, load, fault):
    """The disk of an OST is full until applications have seen it, and for a while more."""
    ballast = f"{cluster.work}/small/ballast"
    load.shared.may_be_full.value = 1
    with open(ballast, "wb") as file:
        free = os.statvfs(ballast)
        os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize - (1 << 20))
        try:
            while True:
                file.write(bytes(1 << 16))
                file.flush()
        except OSError:
            pass
        file.truncate(os.stat(ballast).st_size)
    # What the OST had taken from its disk before has to be used up.
    filler = f"{cluster.top('cla')}/filler"
    lfs = os.path.join(os.path.dirname(cluster.weft), "lfs")
    run(lfs, "setstripe", "-c", "1", "-i", "3", filler)
    fd = os.open(filler, os.O_WRONLY)
    try:
        while True:
            os.write(fd, bytes(1 << 20))
    except OSError as failed:
        load.shared.say(f"the filler ends with {failed} at {os.fstat(fd).st_size >> 20} MiB")
    time.sleep(fault.seconds)
    os.unlink(ballast)
    # If the disk fails next, the ballast does not come back with it.
    directory = os.open(os.path.dirname(ballast), os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)
    back = time.monotonic()
    try:
        os.close(fd)
    except OSError as failed:
        load.shared.say(f"the filler's close says {failed}")
    os.unlink(filler)
    # Until the OST has looked again, and each mount has heard of it, writes are refused.
    run(lfs, "setstripe", "-c", "1", "-i", "3", filler)
    for node in ("cla", "clb"):
        poll(lambda node=node: takes(f"{cluster.top(node)}/filler"), 30, f"{node} may write again")
    os.unlink(filler)
    return back


def takes(path):
    """Whether the file may be written."""
    fd = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(fd, bytes(1 << 20), 0)
        os.fsync(fd)
        return True
    except OSError:
        return False
    finally:
        try:
            os.close(fd)
        except OSError:
            pass


# EXT4_IOC_SHUTDOWN, and its argument for not flushing: from then on every access is an I/O error.
SHUTDOWN, WITHOUT_FLUSHING = 0x8004587D, struct.pack("I", 2)


def disk(cluster, _load, fault):
    """The disk of an OST gives nothing but I/O errors for a while. Then it is there again, without what was not synced."""
    small, image = f"{cluster.work}/small", f"{cluster.work}/disk"
    fd = os.open(small, os.O_RDONLY)
    fcntl.ioctl(fd, SHUTDOWN, WITHOUT_FLUSHING)
    os.close(fd)
    time.sleep(fault.seconds)
    run("umount", "-l", small)
    # The server has it open until it has noticed.
    poll(lambda: not subprocess.check_output(["losetup", "-j", image]), 30, "the server lets the failed disk go")
    run("mount", "-o", "loop", image, small)
    return time.monotonic()


def gone(cluster, _load, fault):
    """A client with open files, locks and unwritten data is killed for good; after a while servers are, and started again."""
    cluster.mount("clc")
    top = cluster.top("clc")
    fds = [os.open(f"{top}/gone{n}", os.O_RDWR | os.O_CREAT) for n in range(4)]
    for fd in fds:
        os.write(fd, bytes(300_000))
    os.listdir(top)
    cluster.kill("clc")
    for fd in fds:
        try:
            os.close(fd)
        except OSError:
            pass
    run("umount", "-l", top)
    time.sleep(fault.seconds)
    return kill(cluster, None, dataclasses.replace(fault, seconds=0))


def silent(cluster, load, fault):
    """A client's link is cut for good, and another one wants what it holds. The time is that of the cut."""
    cluster.mount("clc")
    paths = [f"{cluster.top(node)}/silent" for node in ("clc", "cla")]
    fd = os.open(paths[0], os.O_RDWR | os.O_CREAT)
    os.write(fd, bytes(300_000))
    cluster.net.link("clc", "down")
    back = time.monotonic()
    other = os.open(paths[1], os.O_RDWR)
    os.write(other, bytes(300_000))
    os.fsync(other)
    os.close(other)
    waited = time.monotonic() - back
    load.shared.say(f"what a client held that went silent for good was waited for {waited:.1f} s")
    cluster.kill("clc")
    try:
        os.close(fd)
    except OSError:
        pass
    run("umount", "-l", cluster.top("clc"))
    cluster.net.link("clc", "up")
    if waited > patience(fault.limit):
        raise TimeoutError(f"the silent client was waited for {waited:.1f} s")
    return back


# CI takes those that are `always`; all with --long. Limits are of the pause after the fault, in seconds.
FAULTS = [
    Fault("none", none, (), 2),
    *(Fault(f"kill {'+'.join(n)}, restart at once", kill, n) for n in (("mgs",), ("mds",), ("oss1",))),
    *(Fault(f"kill {'+'.join(n)}, restart after 5 s", kill, n, 5, always=n != ("mgs",)) for n in (("mgs",), ("mds",), ("oss1",))),
    Fault("kill mds+oss1, restart at once", kill, ("mds", "oss1")),
    Fault("kill oss1+oss2, restart at once", kill, ("oss1", "oss2")),
    Fault("kill mgs+mds, restart after 5 s", kill, ("mgs", "mds"), 5, always=False),
    *(Fault(f"link of {n} down 1 s", link, (n,), 1) for n in ("cla", "oss1", "mds")),
    *(Fault(f"link of {n} down 10 s", link, (n,), 10, always=n != "mds") for n in ("cla", "oss1", "mds")),
    *(Fault(f"link of {n} down 60 s", link, (n,), 60, always=False) for n in ("cla", "oss1", "mds")),
    *(Fault(f"{n} stopped 1 s", stop, (n,), 1) for n in ("cla", "oss1", "mds")),
    *(Fault(f"{n} stopped {s} s", stop, (n,), s, always=False) for s in (30, 120) for n in ("cla", "oss1", "mds")),
    Fault("cla and oss1 cut 5 s", cut, ("cla", "oss1"), 5),
    Fault("cla and oss1 cut 60 s", cut, ("cla", "oss1"), 60, always=False),
    Fault("mds and mgs cut 5 s", cut, ("mds", "mgs"), 5),
    Fault("mds and mgs cut 60 s", cut, ("mds", "mgs"), 60, always=False),
    Fault("full disk of an OST", full, (), 1),
    Fault("disk of an OST fails for 5 s", disk, (), 5),
    Fault("disk of an OST fails for 5 s more", disk, (), 5),
    *(Fault(f"client gone, kill {n}", gone, (n,), LEASE_SECONDS + 1, always=False) for n in ("mds", "oss1")),
    Fault("client silent for good", silent, (), 0, 200, always=False),
    *(Fault(f"client and {n} killed at once", gone, (n,), 0, LEASE_SECONDS + 2, always=False) for n in ("mds", "oss1")),
]

COLUMNS = ("fault", "errors", "longest A", "longest B", "pause", "limit", "evictions", "bytes", "stale", "verdict")
WIDTHS = (31, 6, 9, 9, 7, 5, 9, 6, 5, 0)


def line(cells, markdown):
    """A row as text."""
    if markdown:
        return "| " + " | ".join(str(cell) for cell in cells) + " |"
    return "  ".join(f"{cell!s:<{w}}" if n in (0, len(cells) - 1) else f"{cell!s:>{w}}" for n, (cell, w) in enumerate(zip(cells, WIDTHS)))


def one(cluster, load, fault):
    """Makes one fault. Returns its row, what is wrong with it, and whether the load goes on."""
    shared = load.shared
    load.said()
    shared.may_be_full.value = 0
    shared.reset()
    shared.back.value = back = fault.kind(cluster, load, fault)
    done, wrong, alive = list(shared.done), [], True

    def settled():
        return not load.stuck(back) and all(now >= then + OPERATIONS for now, then in zip(shared.done, done))
    try:
        poll(settled, SETTLE_SECONDS, "everybody goes on")
    except TimeoutError as failed:
        wrong.append(f"{failed}; under way: {load.stuck(time.monotonic())}")
        alive = False
    longest, pause = [load.longest(mount) for mount in range(shared.mounts)], load.pause()
    if alive and not load.verify():
        wrong.append("the verification hangs")
        alive = False
    evicted, panicked = cluster.evictions(), cluster.found(PANICKED)
    errors, lost = shared.errors.value, shared.lost.value
    if errors:
        wrong.append("errors")
    if evicted:
        wrong.append("evictions")
    if lost:
        wrong.append("bytes")
    if shared.stale.value:
        wrong.append("stale")
    limit = patience(fault.limit)
    if pause > limit and not fault.known:
        wrong.append("pause")
    if panicked:
        wrong.append("panic")
    shown = f"{errors}" + (f"+{shared.full.value} ENOSPC" if shared.full.value else "")
    row = (fault.name, shown, *(f"{seconds:.2f} s" for seconds in longest), f"{pause:.2f} s", f"{limit:.0f} s",
           len(evicted), lost, shared.stale.value, "FAIL: " + ", ".join(wrong) if wrong else f"known: {fault.known}" if pause > limit else "ok")
    notes = [*load.said()[:40], *evicted, *panicked]
    return row, notes if wrong else [], bool(wrong), alive


def chosen(arguments):
    """The rows that are wanted."""
    if arguments.fault:
        return arguments.rounds * [fault for fault in FAULTS if any(fault.name.startswith(name) for name in arguments.fault)]
    return arguments.rounds * [fault for fault in FAULTS if fault.always or arguments.long]


def check_after_remount(cluster, load):
    """Everything is read once more by clients that remember nothing."""
    load.shared.reset()
    for node in ("cla", "clb"):
        cluster.unmount(node)
    for node in ("cla", "clb"):
        cluster.mount(node)
    for worker in load.workers[::2]:
        worker.open()
        worker.stopped = True
        worker.verify()
        os.close(worker.own)
        for fd in worker.others.values():
            os.close(fd)
    return load.shared.lost.value, load.said()


def session(arguments, cluster):
    """Starts the cluster and makes all faults. Returns whether all was well."""
    cluster.format()
    for node in TARGETS:
        cluster.serve(node)
    for node in ("cla", "clb"):
        cluster.mount(node)
    lfs = os.path.join(os.path.dirname(cluster.weft), "lfs")
    run(lfs, "setstripe", "-c", "4", "-S", "64k", f"{cluster.top('cla')}/blocks.0")
    run(lfs, "setstripe", "-c", "4", "-S", "64k", f"{cluster.top('cla')}/blocks.1")
    load = Load([cluster.top("cla"), cluster.top("clb")], arguments.seed)
    load.start()
    good, rows = True, []
    try:
        poll(lambda: all(done > OPERATIONS for done in load.shared.done), 60, "the load starts")
        print(line(COLUMNS, arguments.markdown), flush=True)
        if arguments.markdown:
            print("|---" * len(COLUMNS) + "|")
        for fault in chosen(arguments):
            row, notes, wrong, alive = one(cluster, load, fault)
            rows.append(row)
            print(line(row, arguments.markdown), flush=True)
            for note in notes:
                print(f"    {note}", flush=True)
            good = good and not wrong
            if not alive:
                print("    the load hangs; the rest is left out")
                # Nothing that hangs can be ended before, and no mount unmounted.
                for node in ("cla", "clb"):
                    cluster.kill(node)
                return False
    finally:
        load.stop()
    lost, notes = check_after_remount(cluster, load)
    print(f"read again after new mounts: {lost} bytes lost or changed")
    for note in notes:
        print(f"    {note}")
    return good and not lost


def keep_logs(cluster):
    """Copies the logs to where the environment says, if it does."""
    if keep := os.environ.get("FAULT_LOGS"):
        os.makedirs(keep, exist_ok=True)
        for node in cluster.processes:
            shutil.copy(cluster.log(node), keep)


def main(make_cluster=Cluster, run_session=session):
    """Runs the rows that are asked for; tests/failover.py has a cluster and rows of its own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("weft")
    parser.add_argument("work")
    parser.add_argument("ident")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("fault", nargs="*")
    arguments = parser.parse_args()
    start = time.monotonic()
    net = Net(arguments.ident)
    cluster = make_cluster(os.path.abspath(arguments.weft), arguments.work, net)
    try:
        net.make()
        good = run_session(arguments, cluster)
    finally:
        cluster.stop()
        net.remove()
        keep_logs(cluster)
    print(f"{'ok' if good else 'FAIL'} after {time.monotonic() - start:.0f} s")
    return good


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
