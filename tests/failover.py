"""Pairs of servers that take each other's targets over, under load: failover.py [--long] WEFT WORK ID [FAULT...].

As faults.py, with an MDS and its standby, and two OSSes of which each is given the directories of both; the four are in
one file system on this machine, which plays the shared storage. For each fault the same row. First come the rows with the
MGS as store of owners, then those with an etcd cluster, whose servers also fence; their names begin with `etcd`.
"""

import os
import re
import signal
import subprocess
import sys
import time

import faults
from etcd import MEMBERS, Etcd
from faultload import Load
from faults import Fault, poll, run

faults.ADDRESSES = {"mgs": 1, "mds1": 2, "mds2": 3, "oss1": 4, "oss2": 5, "cla": 6, "clb": 7,
                    **{member: 8 + n for n, member in enumerate(MEMBERS)}}
PAIRS = {"mds1": ("mds1", "mds2"), "mds2": ("mds1", "mds2"), "oss1": ("oss1", "oss2"), "oss2": ("oss1", "oss2")}
HOMES = {"mdt0": "mds1", "ost0": "oss1", "ost1": "oss1", "ost2": "oss2", "ost3": "oss2"}
SERVERS = ("mgs", "mds1", "mds2", "oss1", "oss2")
# Said by a server that has got a target.
TAKEN = re.compile(r"the target is this server's")
# What fences in the test: it succeeds if there is a file that permits it, and writes down what it is told.
FENCE = """#!/bin/sh
echo "$WEFT_TARGET $WEFT_FORMER_SERVER $WEFT_FORMER_NIDS $#" >> {work}/fenced
[ -e {work}/fence-may-succeed ]
"""


class Cluster(faults.Cluster):
    """Pairs instead of single servers."""

    etcd = None

    def keep_owners_in_etcd(self):
        """From now on, in a place of its own."""
        self.work = f"{self.work}/etcd"
        os.mkdir(self.work)
        os.symlink("../pids", f"{self.work}/pids")
        self.processes.clear()
        self.read.clear()
        self.clients.clear()
        self.etcd = Etcd(self.work, faults.address, self.net.within)
        self.etcd.ready()
        with open(f"{self.work}/fence", "w", encoding="ascii") as script:
            script.write(FENCE.format(work=self.work))
        os.chmod(f"{self.work}/fence", 0o755)
        self.permit_fencing(True)

    def permit_fencing(self, may):
        """Whether the next attempt to fence succeeds."""
        path = f"{self.work}/fence-may-succeed"
        if may:
            open(path, "w", encoding="ascii").close()
        else:
            os.unlink(path)

    def fenced(self):
        """What the program that fences was told so far."""
        try:
            with open(f"{self.work}/fenced", encoding="ascii") as said:
                return said.read().splitlines()
        except FileNotFoundError:
            return []

    def format(self):
        form = [self.weft, "format", "--fsname", self.fsname]
        run(*form, "--mgs", f"{self.work}/mgs", stdout=subprocess.DEVNULL)
        for target, home in HOMES.items():
            first, second = sorted(PAIRS[home], key=lambda node: node != home)
            kind = "--mdt" if target.startswith("mdt") else "--ost"
            run(*form, kind, "--index", target[3:], "--mgsnode", f"{faults.address('mgs')}@tcp", "--servicenode",
                f"{faults.address(first)}@tcp", "--servicenode", f"{faults.address(second)}@tcp",
                f"{self.work}/{target}", stdout=subprocess.DEVNULL)

    def serve(self, node):
        mine = ["mgs"] if node == "mgs" else [target for target, home in HOMES.items() if node in PAIRS[home]]
        owners = [*self.etcd.options(), "--fence", f"{self.work}/fence"] if self.etcd else []
        self.launch(node, "serve", *[f"{self.work}/{target}" for target in mine], "--listen",
                    f"{faults.address(node)}@tcp", "--server", node, *owners)

    def where(self):
        """Which server has which target, as a client knows."""
        import json
        said = subprocess.run([self.weft, "status", "--json", self.top("cla")], stdout=subprocess.PIPE, check=False)
        targets = json.loads(said.stdout)[0]["targets"]
        return {target["name"].split("-")[1][:3].lower() + str(int(target["name"][-4:], 16)): target["server"]
                for target in targets}

    def move(self, target, to):
        """weft failover; gives what it says."""
        name = f"{self.fsname}-{target[:3].upper()}{int(target[3:]):04x}"
        said = subprocess.run([*self.net.within(HOMES[target]), self.weft, "failover", name, "--to", to, "--mgsnode",
                               f"{faults.address('mgs')}@tcp"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              check=False, text=True)
        if said.returncode:
            raise RuntimeError(said.stdout)
        return said.stdout.strip()

    def at_home(self):
        """Every target where it belongs."""
        for target, home in HOMES.items():
            if self.where().get(target) != home:
                self.move(target, home)

    def stop(self):
        for node in SERVERS:
            if node in self.processes:
                self.processes[node].send_signal(signal.SIGCONT)
        for node in ("clb", "cla"):
            if node in self.processes and self.processes[node].poll() is None:
                try:
                    self.unmount(node)
                except (OSError, subprocess.SubprocessError):
                    self.kill(node)
            subprocess.run(["umount", "-l", self.top(node)], check=False, stderr=subprocess.DEVNULL)
        # The MGS last: without it nobody knows whether they may write.
        for nodes in (("mds2", "mds1", "oss2", "oss1"), ("mgs",)):
            here = [self.processes[node] for node in nodes if node in self.processes]
            for process in here:
                process.terminate()
            for process in here:
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
        if self.etcd:
            self.etcd.stop()
        if os.path.exists(f"{self.work}/pids"):
            os.truncate(f"{self.work}/pids", 0)

    def check(self):
        """weft check --data of every target; returns what it finds."""
        found = []
        for target in HOMES:
            said = subprocess.run([self.weft, "check", "--data", f"{self.work}/{target}"], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, check=False, text=True)
            if said.returncode:
                found.append(f"{target}: {said.stdout.strip()}")
        return found


def begin(load):
    """The pause is counted from now on."""
    load.shared.back.value = time.monotonic()
    return load.shared.back.value


def kill(cluster, load, fault):
    """kill -9 of a server. It comes back when its peer has taken over."""
    began = begin(load)
    for node in fault.nodes:
        cluster.kill(node)
    peer = {node: next(other for other in PAIRS[node] if other != node) for node in fault.nodes}
    gone = [target for target, home in HOMES.items() if home in fault.nodes]
    poll(lambda: all(cluster.where().get(target) == peer[HOMES[target]] for target in gone), 30, "the take-over")
    time.sleep(1)
    for node in fault.nodes:
        cluster.serve(node)
    return began


def freeze(cluster, load, fault):
    """SIGSTOP of a server, in the middle of its writes; it goes on when its peer has taken over."""
    began = begin(load)
    node = fault.nodes[0]
    cluster.signal(node, signal.SIGSTOP)
    peer = next(other for other in PAIRS[node] if other != node)
    gone = [target for target, home in HOMES.items() if home == node]
    poll(lambda: all(cluster.where().get(target) == peer for target in gone), 30, "the take-over")
    time.sleep(fault.seconds)
    cluster.signal(node, signal.SIGCONT)
    pattern = re.compile(r"belongs to another server")
    lines = []
    poll(lambda: lines.extend(cluster.found(pattern)) or len(lines) >= len(gone), 10, "the former owner notices")
    return began


def move(cluster, load, fault):
    """weft failover of each target of a server, and back."""
    began = begin(load)
    node = fault.nodes[0]
    peer = next(other for other in PAIRS[node] if other != node)
    for to in (peer, node):
        for target in [target for target, home in HOMES.items() if home == node]:
            load.shared.say(cluster.move(target, to))
            time.sleep(0.5)
    return began


def leave(cluster, load, fault):
    """A server is stopped in order, and started again when its peer has what it had."""
    began = begin(load)
    node = fault.nodes[0]
    cluster.processes[node].terminate()
    cluster.processes[node].wait(30)
    peer = next(other for other in PAIRS[node] if other != node)
    gone = [target for target, home in HOMES.items() if home == node]
    poll(lambda: all(cluster.where().get(target) == peer for target in gone), 30, "the take-over")
    cluster.serve(node)
    return began


def again(cluster, load, fault):
    """kill -9 and a start at once: it goes on in its place."""
    began = begin(load)
    for node in fault.nodes:
        cluster.kill(node)
        cluster.serve(node)
    return began


def nobody_takes_over(cluster, act):
    """Does something in which every owner has to stay what it is."""
    cluster.found(TAKEN)
    owners = cluster.etcd.values("/weft/")
    over = act()
    taken = cluster.found(TAKEN)
    now = cluster.etcd.values("/weft/")
    changed = [key for key, value in owners.items() if "/owners/" in key and now.get(key) != value]
    if taken or changed:
        raise RuntimeError(f"owners have changed: {changed} {taken}")
    return over


def kill_leader(cluster, load, fault):
    """kill -9 of etcd's leader; it comes back when there has been another one for a while."""
    def act():
        began = begin(load)
        leader = cluster.etcd.leader()
        cluster.etcd.kill(leader)
        poll(lambda: cluster.etcd.leader() is not None, 20, "another leader")
        time.sleep(fault.seconds)
        cluster.etcd.start(leader)
        return began
    return nobody_takes_over(cluster, act)


def kill_majority(cluster, load, fault):
    """kill -9 of two of etcd's members for a while. The pause is counted from their start."""
    def act():
        gone = MEMBERS[:2]
        for member in gone:
            cluster.etcd.kill(member)
        time.sleep(fault.seconds)
        began = begin(load)
        for member in gone:
            cluster.etcd.start(member)
        poll(lambda: cluster.etcd.leader() is not None, 20, "a leader")
        time.sleep(4)
        return began
    return nobody_takes_over(cluster, act)


def lose_mgs(cluster, load, fault):
    """The MGS is away for a while."""
    def act():
        began = begin(load)
        cluster.kill("mgs")
        time.sleep(fault.seconds)
        cluster.serve("mgs")
        return began
    return nobody_takes_over(cluster, act)


def cut_member(cluster, load, fault):
    """A server does not reach one of etcd's members, which falls silent, for a while."""
    def act():
        began = begin(load)
        cluster.net.cut(*fault.nodes)
        time.sleep(fault.seconds)
        cluster.net.mend(fault.nodes[0])
        return began
    return nobody_takes_over(cluster, act)


def fence(cluster, load, fault):
    """kill -9 of a server whose peer cannot fence it at first. The pause is counted from when it can."""
    node = fault.nodes[0]
    gone = [target for target, home in HOMES.items() if home == node]
    peer = next(other for other in PAIRS[node] if other != node)
    cluster.permit_fencing(False)
    before = len(cluster.fenced())
    cluster.kill(node)
    names = {f"{cluster.fsname}-{target[:3].upper()}{int(target[3:]):04x} {node} {faults.address(node)}@tcp 3" for target in gone}
    # Each of them twice.
    poll(lambda: len(cluster.fenced()) >= before + 2 * len(gone), 60, "attempts to fence")
    said = set(cluster.fenced()[before:])
    if said != names:
        raise RuntimeError(f"the program that fences was told {said}, and not {names}")
    where = cluster.where()
    if any(where.get(target) == peer for target in gone):
        raise RuntimeError(f"a target is served whose former owner was not fenced: {where}")
    cluster.permit_fencing(True)
    began = begin(load)
    poll(lambda: all(cluster.where().get(target) == peer for target in gone), 60, "the take-over")
    cluster.serve(node)
    return began


FAULTS = [
    Fault("none", faults.none, (), 2),
    Fault("kill oss1, the peer takes over", kill, ("oss1",), limit=5.0),
    Fault("kill mds1, the standby takes over", kill, ("mds1",), limit=5.0),
    Fault("move the targets of oss1 and back", move, ("oss1",), limit=3.0),
    Fault("move the targets of mds1 and back", move, ("mds1",), limit=3.0),
    Fault("freeze oss1, the peer takes over", freeze, ("oss1",), 1, limit=5.0),
    Fault("freeze mds1, the standby takes over", freeze, ("mds1",), 1, limit=5.0),
    Fault("kill oss1, restart at once", again, ("oss1",), limit=3.0),
    Fault("kill oss1 and mds1, the peers take over", kill, ("oss1", "mds1"), limit=5.0, always=False,
          known="the OSTs wait for the MDT"),
    Fault("stop oss2 in order", leave, ("oss2",), limit=5.0, always=False),
    Fault("stop mds1 in order", leave, ("mds1",), limit=5.0, always=False),
    Fault("kill mgs, restart after 5 s", faults.kill, ("mgs",), 5, limit=3.0),
    Fault("mds1 and mgs cut 5 s", faults.cut, ("mds1", "mgs"), 5, limit=5.0),
    Fault("oss1 and mgs cut 15 s", faults.cut, ("oss1", "mgs"), 15, limit=5.0, always=False),
    Fault("etcd: kill oss1, the peer takes over", kill, ("oss1",), limit=5.0),
    Fault("etcd: kill its leader", kill_leader, (), 1, limit=3.0),
    Fault("etcd: kill mds1, the standby takes over", kill, ("mds1",), limit=5.0, always=False),
    Fault("etcd: freeze oss1, the peer takes over", freeze, ("oss1",), 1, limit=5.0, always=False),
    Fault("etcd: move the targets of oss1 and back", move, ("oss1",), limit=3.0, always=False),
    Fault("etcd: kill oss1, restart at once", again, ("oss1",), limit=3.0, always=False),
    Fault("etcd: kill two of three for 10 s", kill_majority, (), 10, limit=3.0, always=False),
    Fault("etcd: kill mgs for 6 s", lose_mgs, (), 6, limit=1.0, always=False),
    # Longer than that, clients may use nothing of what they keep.
    Fault("etcd: kill mgs for 10 s", lose_mgs, (), 10, limit=5.0, always=False),
    Fault("etcd: oss1 and a member cut 10 s", cut_member, ("oss1", "etcd1"), 10, limit=1.0, always=False),
    Fault("etcd: fencing fails, then succeeds", fence, ("oss1",), limit=10.0, always=False),
]


def session(arguments, cluster):
    """The rows with each store of owners, as far as any are wanted. Returns whether all was well."""
    with_etcd = [fault for fault in chosen(arguments) if fault.name.startswith("etcd")]
    with_mgs = [fault for fault in chosen(arguments) if fault not in with_etcd]
    good = True
    if with_mgs:
        good = rows(arguments, cluster, with_mgs)
    if with_etcd:
        cluster.keep_owners_in_etcd()
        good = rows(arguments, cluster, with_etcd) and good
    return good


def rows(arguments, cluster, wanted):
    """Starts the cluster and makes all faults. Returns whether all was well."""
    cluster.format()
    for node in SERVERS:
        cluster.serve(node)
    for node in ("cla", "clb"):
        cluster.mount(node)
    poll(lambda: cluster.where() == HOMES, 30, "each target is at home")
    lfs = os.path.join(os.path.dirname(cluster.weft), "lfs")
    for n in range(2):
        run(lfs, "setstripe", "-c", "4", "-S", "64k", f"{cluster.top('cla')}/blocks.{n}")
    load = Load([cluster.top("cla"), cluster.top("clb")], arguments.seed)
    load.start()
    good = True
    try:
        poll(lambda: all(done > faults.OPERATIONS for done in load.shared.done), 60, "the load starts")
        print(faults.line(faults.COLUMNS, arguments.markdown), flush=True)
        if arguments.markdown:
            print("|---" * len(faults.COLUMNS) + "|")
        for fault in wanted:
            row, notes, wrong, alive = faults.one(cluster, load, fault)
            print(faults.line(row, arguments.markdown), flush=True)
            for note in notes:
                print(f"    {note}", flush=True)
            good = good and not wrong
            if not alive:
                print("    the load hangs; the rest is left out")
                for node in ("cla", "clb"):
                    cluster.kill(node)
                return False
            cluster.at_home()
    finally:
        load.stop()
    lost, notes = faults.check_after_remount(cluster, load)
    print(f"read again after new mounts: {lost} bytes lost or changed")
    cluster.stop()
    found = cluster.check()
    print(f"weft check --data of all targets: {len(found)} with findings")
    for note in notes + found:
        print(f"    {note}")
    return good and not lost and not found


def chosen(arguments):
    """The rows that are wanted."""
    if arguments.fault:
        return arguments.rounds * [fault for fault in FAULTS if any(fault.name.startswith(name) for name in arguments.fault)]
    return arguments.rounds * [fault for fault in FAULTS if fault.always or arguments.long]


if __name__ == "__main__":
    sys.exit(0 if faults.main(Cluster, session) else 1)
