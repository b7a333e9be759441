#!/usr/bin/env python3
"""Somebody between a client and the servers, who flips, cuts, reorders, repeats, drops and delays bytes, or forges whole frames.

The client's machine reaches the servers' addresses only through a program that passes on what it gets, but for now and then.
Applications may wait and see no error; every byte that is read has to be right, through this client and through another one that
nobody disturbs. When the disturbance is over, everything goes on.

"handshake" cuts connections, and flips a bit in the first bytes of every second one that follows.
"forge" changes data and puts every checksum right that docs/wire.md describes: nobody without the key may do that unnoticed.
"""

import ctypes
import multiprocessing
import os
import random
import select
import socket
import struct
import threading

import box as b
from box import libc
from cluster import SERVERS, Node, Servers, address
from promises import pattern

PORT = 7988
CHUNK = 65536
WAYS = ("flip", "cut", "reorder", "repeat", "drop", "delay", "handshake", "forge", "all")
# The handshake is about as long in each direction (docs/wire.md#handshake).
HANDSHAKE_BYTES = 200
FRAME = struct.Struct("<4sII48xI")
# Where the header has the flags, and the checksum of the bulk (docs/wire.md#header).
FLAGS_AT, BULK_CRC_AT, HEADER_CRC_AT, HEADER_BYTES, BULK_HAS_CRC = 10, 116, 140, 144, 8


def crc_table():
    """CRC-32C (Castagnoli)."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


CRC_TABLE = crc_table()


def crc32c(data):
    """The checksum of docs/wire.md."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


class Disturber:
    """Passes bytes on between sockets of two networks, and disturbs them in one way."""

    def __init__(self, box, seed):
        self.box, self.way, self.rate, self.count = box, None, 0.0, {}
        self.random = random.Random(seed)
        self.lock = threading.Lock()

    def accept(self, listener, where):
        """One thread for each server's address."""
        while True:
            near, _ = listener.accept()
            try:
                far = socket.create_connection((where, PORT), timeout=5)
                far.settimeout(None)
            except OSError:
                near.close()
                continue
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self.forward, args=(source, target), daemon=True).start()

    def hit(self):
        """Whether a piece is disturbed, and how."""
        way = self.way
        if not way or self.random.random() >= self.rate:
            return None
        return self.random.choice(WAYS[:-3]) if way == "all" else way

    def forward(self, source, target):
        """One direction of a connection."""
        kept = b""
        held = b""
        passed = 0
        try:
            while True:
                ready, _, _ = select.select([source], [], [], 0.2 if held or kept else None)
                data = source.recv(CHUNK) if ready else b""
                if ready and not data:
                    break
                if self.way == "forge" or kept:
                    kept, data = self.forge(kept + data)
                out, held = self.disturb(data, held, passed)
                passed += len(data)
                if out is None:
                    break
                target.sendall(out)
        except OSError:
            pass
        for one in (source, target):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def disturb(self, data, held, passed):
        """(what is sent now; None to cut the connection, what is held back to be sent behind the next piece)."""
        if held or not data:
            return data + held, b""
        if self.way == "handshake" and passed < HANDSHAKE_BYTES:
            way = "flip" if self.random.random() < 0.25 else None
        else:
            way = self.hit()
            if self.way == "handshake":
                way = "cut" if self.random.random() < 0.05 else None
        if way is None or way == "forge":
            return data, b""
        with self.lock:
            self.count[way] = self.count.get(way, 0) + 1
        at = self.random.randrange(len(data))
        if way == "flip":
            return data[:at] + bytes([data[at] ^ 1 << self.random.randrange(8)]) + data[at + 1:], b""
        if way == "cut":
            return None, b""
        if way == "reorder":
            return data[:at], data[at:]
        if way == "repeat":
            return data[:at] + data[at // 2:], b""
        if way == "drop":
            return data[:at // 2] + data[at:], b""
        b.time.sleep(self.random.random())
        return data, b""

    def forge(self, data):
        """Takes whole frames from the bytes; (what is left, what is sent). Changes data in the bulk of some."""
        out = b""
        while len(data) >= FRAME.size:
            magic, head, bulk, _ = FRAME.unpack_from(data)
            if magic != b"weft":
                return b"", out + data
            whole = FRAME.size + head + bulk
            if len(data) < whole:
                break
            frame, data = bytearray(data[:whole]), data[whole:]
            if self.way == "forge" and bulk and self.random.random() < self.rate * 20:
                self.forge_frame(frame, head, bulk)
            out += bytes(frame)
        return data, out

    def forge_frame(self, frame, head, bulk):
        """One bit of the data, and the checksums to match."""
        start = FRAME.size + head
        at = start + self.random.randrange(bulk)
        frame[at] ^= 1 << self.random.randrange(8)
        flags = struct.unpack_from("<H", frame, FRAME.size + FLAGS_AT)[0]
        if flags & BULK_HAS_CRC:
            struct.pack_into("<I", frame, FRAME.size + BULK_CRC_AT, crc32c(frame[start:]))
            struct.pack_into("<I", frame, FRAME.size + HEADER_CRC_AT, crc32c(frame[FRAME.size:FRAME.size + HEADER_CRC_AT]))
        with self.lock:
            self.count["forge"] = self.count.get("forge", 0) + 1


def enter_network(pid):
    """Has this thread make its sockets in the network of a process."""
    with open(f"/proc/{pid}/ns/net", "rb") as network:
        if libc.setns(network.fileno(), 0) != 0:
            raise OSError(ctypes.get_errno(), "setns")


def disturbed_client():
    """A client's machine whose only neighbour has the servers' addresses; the neighbour's sockets are made by this process."""
    client, middle = Node(None, "far"), Node(None, "middle")
    b.run("ip", "link", "add", "mid0", "netns", str(middle.holder.pid), "type", "veth", "peer", "name", "eth0", "netns",
          str(client.holder.pid))
    b.run(*client.on("ip", "address", "add", f"{address('a')}/24", "dev", "eth0"))
    b.run(*client.on("ip", "link", "set", "eth0", "up"))
    for server in SERVERS:
        b.run(*middle.on("ip", "address", "add", f"{address(server)}/24", "dev", "mid0"))
    b.run(*middle.on("ip", "link", "set", "mid0", "up"))
    return client, middle


def worker(directory, seed, until, pipe):
    """Writes, reads back, renames and lists until the time is over; then says what was wrong and what there has to be."""
    draw = random.Random(seed)
    wanted, wrong, serial = {}, [], 0
    while b.time.monotonic() < until:
        serial += 1
        try:
            name = f"f{draw.randrange(12)}"
            path = f"{directory}/{name}"
            data = pattern(f"{seed}/{serial}", draw.choice([10, 4096, 50_000, 300_000]))
            if draw.random() < 0.5 or name not in wanted:
                with open(path + ".new", "wb") as file:
                    file.write(data)
                    if draw.random() < 0.5:
                        os.fsync(file.fileno())
                os.rename(path + ".new", path)
                wanted[name] = data
            else:
                # Past what the mount keeps.
                file = os.open(path, os.O_RDONLY | os.O_DIRECT * (serial % 2))
                with open(file, "rb", buffering=0) as stream:
                    found = b"".join(iter(lambda: stream.read(1 << 20), b""))
                if found != wanted[name]:
                    wrong.append(f"{name}: {len(found)} bytes of which some are wrong")
        except OSError as error:
            wrong.append(str(error))
            if len(wrong) > 5:
                break
    pipe.send((serial, wrong, wanted))


def a_way(box, servers, disturber, way, number, seconds):
    """One way to disturb, under load."""
    name = f"{way}{number}"
    root = f"{servers.mounts['a']}/{name}"
    os.mkdir(root)
    ours, theirs = multiprocessing.Pipe()
    until = b.time.monotonic() + seconds
    process = multiprocessing.Process(target=worker, args=(root, box.random.randrange(1 << 30), until, theirs), daemon=True)
    process.start()
    before = dict(disturber.count)
    disturber.way = way
    b.time.sleep(seconds * 0.8)
    disturber.way = None
    if not ours.poll(seconds + 120):
        box.fail(f"{name}: the load does not go on 120 s after the disturbance")
        return False
    serial, wrong, wanted = ours.recv()
    count = sum(disturber.count.values()) - sum(before.values())
    box.tried(count)
    box.say(f"{name}: {count} disturbances, {serial} operations")
    for text in wrong:
        box.fail(f"{name}: {text}")
    for file, data in wanted.items():
        with open(f"{servers.mounts['b']}/{name}/{file}", "rb") as stream:
            found = stream.read()
        if found != data:
            box.fail(f"{name}: {file} has wrong bytes for the other mount")
    return True


def body(box):
    """The attack."""
    servers = Servers(box, "between", clients=("a", "b"))
    servers.format()
    for node in SERVERS:
        servers.serve(node)
    servers.mount("b")
    client, middle = disturbed_client()
    disturber = Disturber(box, box.random.random())
    # Only the thread that makes the sockets is in the neighbour's network; the threads that accept connect to the real servers.
    made = []

    def listen():
        enter_network(middle.holder.pid)
        for server in SERVERS:
            listener = socket.socket()
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address(server), PORT))
            listener.listen(64)
            made.append((listener, address(server)))
    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    b.run("ip", "address", "add", "10.77.3.200/24", "dev", "br0")
    for listener, where in made:
        threading.Thread(target=disturber.accept, args=(listener, where), daemon=True).start()
    servers.mount("a", node_of=client)
    seconds = max(4, box.options.seconds / len(WAYS) / 1.4)
    number = 0
    while number < box.options.trials and not box.time_is_up():
        way = WAYS[number % len(WAYS)]
        disturber.rate = box.random.choice([0.01, 0.03])
        if not a_way(box, servers, disturber, way, number, seconds):
            break
        number += 1
    counts = ", ".join(f"{count} {way}" for way, count in sorted(disturber.count.items()))
    box.note(f"disturbances of a client's connections: {counts}")
    for node in SERVERS:
        with open(servers.log(node), encoding="utf-8", errors="replace") as log:
            if "panicked at" in log.read():
                box.fail(f"{node} panics")


if __name__ == "__main__":
    b.attack("between", body, trials=len(WAYS), seconds=70)
