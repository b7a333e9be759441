#!/usr/bin/env python3
"""Strangers on the servers' ports: half-open connections, half a Hello, nonsense, huge lengths, and slow talkers.

Meanwhile those who have the key must hardly notice: a mount that is there goes on, and a new one is mounted soon. The servers' logs and
memory stay bounded, and all that strangers hold is let go after the handshake's time (docs/wire.md: 5 seconds).
"""

import os
import random
import resource
import socket
import struct
import threading

import box as b
from between import crc32c
from cluster import MDS, MGS, OSS1, SERVERS, Servers, address

PORT = 7988
# At each of three servers a third of it.
CROWD = 4500
# A new mount beside the strangers may take so many seconds, and so many times as long as without them.
MOUNT_SECONDS, MOUNT_TIMES = 4, 4
# So many begin while strangers of one kind are there.
MOUNTS = 4
LOG_BYTES_A_SECOND = 200_000
MEMORY_GROWTH = 64 << 20
WAYS = ("half-open", "half a Hello", "nonsense", "huge lengths", "slow talker", "connect and go")


def hello(draw):
    """A frame with a Hello in which all is right but that nobody has its key."""
    body = struct.pack("<4sBBHHB5x16s32sQ8x32s", b"WFHS", 1, 2, 1, 99, 0, b"strange", draw.randbytes(32), 0, draw.randbytes(32))
    return frame(body)


def frame(head, bulk=0):
    """A frame of docs/wire.md."""
    start = struct.pack("<4sII48x", b"weft", len(head), bulk)
    return start + struct.pack("<I", crc32c(start)) + head


class Crowd:
    """Threads that keep a number of strangers' connections."""

    def __init__(self, way, seed):
        self.way, self.random, self.stopped = way, random.Random(seed), threading.Event()
        self.made, self.lock = 0, threading.Lock()

    def talk(self, node):
        """One thread: as many connections as it may have, one after the other."""
        kept = []
        while not self.stopped.is_set():
            try:
                one = socket.create_connection((address(node), PORT), timeout=3)
                with self.lock:
                    self.made += 1
                one.settimeout(0.5)
                if self.behave(one):
                    kept.append(one)
                else:
                    one.close()
            except OSError:
                b.time.sleep(0.02)
            while len(kept) >= CROWD // 9 and not self.stopped.is_set():
                # Those that the server lets go are replaced at once.
                kept = [one for one in kept if is_open(one)]
                b.time.sleep(0.02)
            b.time.sleep(0.002)
        for one in kept:
            one.close()

    def behave(self, one):
        """What a stranger does; whether it stays."""
        draw = self.random
        if self.way == "half-open":
            return True
        if self.way == "half a Hello":
            one.sendall(hello(draw)[:draw.randrange(1, 90)])
            return True
        if self.way == "nonsense":
            one.sendall(draw.randbytes(draw.randrange(1, 5000)))
            return draw.random() < 0.5
        if self.way == "huge lengths":
            one.sendall(frame(b"", 0xFFFFFFFF)[:60] + draw.randbytes(4) if draw.random() < 0.3
                        else struct.pack("<4sII48xI", b"weft", 0xFFFFFFF0, 0xFFFFFFF0, draw.randrange(1 << 32)))
            return True
        if self.way == "slow talker":
            for byte in hello(draw)[:5]:
                one.sendall(bytes([byte]))
                b.time.sleep(0.01)
            return True
        one.sendall(hello(draw))
        return False


def is_open(one):
    """Whether the server still has a connection; closes ours if not."""
    try:
        one.setblocking(False)
        if one.recv(4096):
            return True
    except BlockingIOError:
        return True
    except OSError:
        pass
    one.close()
    return False


def memory(pid):
    """Resident bytes of a process."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def a_way(box, servers, way, seconds, alone):
    """One kind of stranger."""
    nodes = (MGS, MDS, OSS1)
    logs = {node: os.path.getsize(servers.log(node)) for node in nodes}
    sizes = {node: memory(servers.pids[node]) for node in nodes}
    crowd = Crowd(way, box.random.random())
    threads = [threading.Thread(target=crowd.talk, args=(nodes[n % 3],), daemon=True) for n in range(9)]
    began = b.time.monotonic()
    for thread in threads:
        thread.start()
    b.time.sleep(min(6, seconds / 2))
    path = f"{servers.mounts['b']}/{way.replace(' ', '-')}-{box.random.randrange(10 ** 6)}"
    longest = slowest = 0.0
    try:
        while b.time.monotonic() < began + seconds * 0.7:
            start = b.time.monotonic()
            b.Bounded(use, 60, "a mount that is there")(path, box.random.randrange(10 ** 9))
            longest = max(longest, b.time.monotonic() - start)
            box.tried()
        for _ in range(MOUNTS):
            slowest = max(slowest, mount_and_use(box, servers, way, os.path.basename(path), alone))
        b.time.sleep(max(0, began + seconds - b.time.monotonic()))
    except (TimeoutError, RuntimeError, OSError) as error:
        box.fail(f"{way}: {error}")
    grown = {node: memory(servers.pids[node]) - sizes[node] for node in nodes}
    crowd.stopped.set()
    for thread in threads:
        thread.join(10)
    took = b.time.monotonic() - began
    box.say(f"{way}: {crowd.made} connections, longest operation {longest:.2f} s, mount {slowest:.1f} s, memory of servers +{max(grown.values()) >> 20} MiB")
    box.tried(crowd.made)
    for node in nodes:
        if (said := os.path.getsize(servers.log(node)) - logs[node]) > LOG_BYTES_A_SECOND * took:
            box.fail(f"{way}: {node} logged {said} bytes in {took:.0f} s")
        if grown[node] > MEMORY_GROWTH:
            box.fail(f"{way}: {node} grew by {grown[node] >> 20} MiB")
    return crowd.made


def mount_and_use(box, servers, way, name, alone=None):
    """A mount that begins now; how long it took. `alone`: how long one takes without strangers."""
    start = b.time.monotonic()
    done = b.attempt(*servers.nodes["a"].on(box.weft, "mount", f"{address(MGS)}@tcp:/{servers.name}", servers.mounts["a"]), seconds=60)
    took = b.time.monotonic() - start
    box.tried()
    if done.returncode != 0 or not b.mounted(servers.mounts["a"]):
        box.fail(f"{way}: a mount is kept out: status {done.returncode} after {took:.0f} s: {done.stderr.strip()[-200:]}")
        return took
    if alone and took > MOUNT_SECONDS + MOUNT_TIMES * alone:
        box.fail(f"{way}: a mount took {took:.1f} s, and {alone:.1f} s without strangers")
    b.Bounded(use, 60, "the new mount")(f"{servers.mounts['a']}/{name}", 1)
    b.run("umount", servers.mounts["a"])
    return took


def use(path, value):
    """A file is made, fsynced, read and removed."""
    with open(path, "w+", encoding="utf-8") as file:
        file.write(str(value))
        file.flush()
        os.fsync(file.fileno())
        file.seek(0)
        if file.read() != str(value):
            raise OSError("other bytes")
    os.unlink(path)


def body(box):
    """The attack."""
    servers = Servers(box, "strange")
    servers.format()
    for node in SERVERS:
        servers.serve(node)
    servers.mount("b")
    b.run("ip", "address", "add", "10.77.3.201/24", "dev", "br0")
    resource.setrlimit(resource.RLIMIT_NOFILE, (CROWD * 2, CROWD * 2))
    made = number = 0
    alone = max(mount_and_use(box, servers, "no strangers", "alone") for _ in range(2))
    seconds = max(5, box.options.seconds / len(WAYS))
    while number < box.options.trials and not box.time_is_up():
        made += a_way(box, servers, WAYS[number % len(WAYS)], seconds, alone)
        number += 1
    box.note(f"{made} connections of strangers of {min(number, len(WAYS))} kinds, and what those with a key did meanwhile")
    for node in SERVERS:
        with open(servers.log(node), encoding="utf-8", errors="replace") as log:
            if "panicked at" in log.read():
                box.fail(f"{node} panics")
        if not b.alive(servers.pids[node]):
            box.fail(f"{node} has ended")


if __name__ == "__main__":
    b.attack("strangers", body, trials=len(WAYS), seconds=70)
