#!/usr/bin/env python3
"""Power cuts on real file systems: targets on ext4 (with its journal) and xfs in files on loop devices, cut by the shutdown ioctl.

The ioctl drops at one moment whatever the file system has not written for a sync, as a power cut does. Half of the trials cut
the disk of all of `weft up`, client and all; after the journal's replay everything that was synced has to be there. In the
others each target of a file system with one process per role has a disk of its own, the cuts hit some of them, and the
client lives: it must not notice, and must lose nothing (docs/recovery.md, promises 1, 2 and 5).
"""

import os
import signal

import box as b
from cluster import MDS, MGS, OSS1, OSS2, SERVERS, TARGETS, Disk, Servers, Up
from ledger import WORK_SECONDS, Crew, add

CUTS = [[MDS], [OSS1], [OSS2], [MDS, OSS1, OSS2], [MGS], [OSS1, OSS2], list(SERVERS)]


def cuts_of_up(box, kind, trials, until, ledger, sums):
    """All targets on one disk, and the client gone with them."""
    disk = Disk(box, f"up-{kind}", 1024, kind)
    up = Up(box, f"cut{kind}", data=disk.path + "/data")
    up.start()
    done = 0
    while done < trials and b.time.monotonic() < until:
        crew = Crew(box, up.mount, ledger=ledger)
        crew.start()
        b.time.sleep(box.random.uniform(0.2, WORK_SECONDS))
        os.kill(up.pid, signal.SIGSTOP)
        disk.cut_power()
        up.kill()
        if not crew.stop():
            return done
        disk.unmount()
        disk.mount()
        up.start()
        crew.check(f"power cut {done} of weft up on {kind}")
        add(sums, crew.acknowledged())
        box.tried()
        done += 1
    up.stop()
    disk.unmount()
    return done


def cuts_of_servers(box, trials, until, ledger, sums):
    """Each server has a disk of its own, ext4 and xfs in turns; the client lives, but in the last kind of cut."""
    disks = {node: Disk(box, f"disk-{node}", 768, "xfs" if node in (MDS, OSS2) else "ext4") for node in SERVERS}
    node_of = {target: node for node, targets in TARGETS.items() for target in targets}
    servers = Servers(box, "cutsrv", directory=lambda target: f"{disks[node_of[target]].path}/{target}", clients=("a",))
    servers.start()
    done = 0
    while done < trials and b.time.monotonic() < until:
        crew = Crew(box, servers.mounts["a"], ledger=ledger)
        crew.start()
        b.time.sleep(box.random.uniform(0.2, WORK_SECONDS))
        victims = CUTS[done % len(CUTS)]
        with_client = victims == list(SERVERS)
        # A machine without power answers nobody: neither that a sync has failed, nor that a read has.
        for node in victims:
            os.kill(servers.pids[node], signal.SIGSTOP)
        for node in victims:
            disks[node].cut_power()
        for node in victims:
            servers.kill(node)
        if with_client:
            servers.kill_client("a")
            if not crew.stop():
                return done
        for node in victims:
            disks[node].unmount()
            disks[node].mount()
            servers.serve(node)
        if with_client:
            servers.mount("a")
        else:
            b.time.sleep(1)
            if not crew.stop():
                return done
            for error in crew.errors:
                box.fail(f"power cut {done} of {victims}: a writer saw an error: {error}")
        crew.check(f"power cut {done} of {victims}{' and the client' if with_client else ''}")
        add(sums, crew.acknowledged())
        box.tried()
        done += 1
    return done


def body(box):
    """The attack."""
    sums, counts = {}, {}
    trials, seconds = box.options.trials, box.options.seconds
    kinds = [kind for kind in ("ext4", "xfs") if b.shutil.which(f"mkfs.{kind}")]
    with open(box.path("ledger"), "w", encoding="utf-8", buffering=1) as ledger:
        for number, kind in enumerate(kinds):
            until = box.began + seconds * (number + 1) / (len(kinds) + 1)
            counts[kind] = cuts_of_up(box, kind, trials // 3, until, ledger, sums)
            box.say(f"{counts[kind]} cuts on {kind}, {sum(sums.values())} operations")
        if "xfs" in kinds:
            counts["servers"] = cuts_of_servers(box, trials - 2 * (trials // 3), box.deadline, ledger, sums)
    told = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    box.note(f"power cuts: {told}; {sum(sums.values())} operations of {len(sums)} kinds acknowledged")
    if "xfs" not in kinds:
        box.note("without xfs, whose mkfs.xfs is not installed")


if __name__ == "__main__":
    b.attack("powercut", body, trials=30, seconds=150)
