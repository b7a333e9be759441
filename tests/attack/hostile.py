#!/usr/bin/env python3
"""Mutated requests of somebody who has the clients' key: a client of docs/wire.md, written from it alone.

The bodies are drawn from the tables of operations and parts in docs/wire.md, so that a new operation is attacked without a change here; then
bytes, lengths, counts and header fields are changed, with all checksums put right. A holder of the key is believed about its
users, so requests name files that nobody has. No server may end, panic, grow without bound or keep others waiting; what a mount
reads beside it has to be right.

Each conversation is a session of a client of its own. Connections are unprotected, which servers are told for an address.
"""

import hashlib
import hmac
import os
import random
import re
import socket
import struct

import box as b
from between import crc32c
from cluster import MDS, MGS, OSS1, SERVERS, TARGETS, Servers, address
from ed25519 import Key, hkdf
from strangers import memory, use

PORT = 7988
HEADER = struct.Struct("<4sHHHHIQQQQQB3xIII32sIIII16sI")
KINDS = {MGS: (1, 0), MDS: (2, 0), OSS1: (3, 0)}
MEMORY_GROWTH = 256 << 20
ANSWER_SECONDS = 0.1
INTEGERS = {"u8": 1, "u16": 2, "u32": 4, "u64": 8, "u128": 16, "i32": 4, "i64": 8}


class Words:
    """The tables of docs/wire.md: operations and the parts of messages."""

    def __init__(self):
        self.operations, self.parts = {}, {}
        with open(os.path.join(b.TOP, "docs/wire.md"), encoding="utf-8") as file:
            for line in file:
                cells = [re.sub(r"\(\[.*?\]\(.*?\)\)|\(.*?\)", "", cell).strip() for cell in line.strip().strip("|").split("|")]
                if len(cells) == 5 and cells[0].isdigit() and cells[2] in ("yes", "no"):
                    self.operations[int(cells[0])] = (cells[1], cells[3])
                elif len(cells) == 2 and re.fullmatch(r"[A-Za-z]+", cells[0]) and ": " in cells[1]:
                    self.parts[cells[0].lower()] = cells[1]

    def body(self, draw, fields, depth=0):
        """Bytes of fields, with values that mean something now and then."""
        out = b""
        for field in re.findall(r"(?:later )?(\w+): ([^,]+)", fields):
            out += self.value(draw, field[1].strip(), depth)
        return out

    def value(self, draw, kind, depth):
        """Bytes of one value."""
        kind = kind.split(" ")[0]
        if kind.endswith("?"):
            return b"\0" if draw.random() < 0.5 else b"\1" + self.value(draw, kind[:-1], depth)
        if kind.startswith("["):
            count = draw.choice([0, 1, 2, 5])
            return struct.pack("<I", count) + b"".join(self.value(draw, kind.strip("[]"), depth + 1) for _ in range(count))
        if kind in INTEGERS:
            size = INTEGERS[kind]
            return draw.choice([0, 1, 2, 4096, (1 << 8 * size) - 1, 1 << 8 * size - 1, draw.randrange(1 << 8 * size)]
                               ).__and__((1 << 8 * size) - 1).to_bytes(size, "little")
        if kind == "bool":
            return bytes([draw.randrange(2)])
        if kind in ("text", "bytes"):
            data = draw.choice([b"", b"hostile", draw.randbytes(20), b"x" * 5000])
            return struct.pack("<I", len(data)) + data
        if kind == "name":
            return b"\7hostile"
        if kind.lower() == "fid":
            return struct.pack("<QII", draw.choice([0x200000007, 0xFFFFFFFF00000000, draw.randrange(1 << 64)]), draw.randrange(1 << 32), 0)
        if kind == "time":
            return struct.pack("<qI", draw.randrange(1 << 33), draw.randrange(10 ** 9))
        if kind.lower() == "object":
            return self.value(draw, "FID", depth) + struct.pack("<I", draw.randrange(4))
        if kind == "target":
            return struct.pack("<BI", draw.randrange(5), draw.randrange(5))
        if depth < 4 and kind.lower() in self.parts:
            inside = self.body(draw, self.parts[kind.lower()], depth + 1)
            return struct.pack("<I", len(inside)) + inside
        return draw.randbytes(draw.randrange(20))


class Peer:
    """One connection behind the handshake."""

    def __init__(self, fsname, key, where, draw):
        self.draw = draw
        self.socket = socket.create_connection((where, PORT), timeout=5)
        # The first 80 bytes never change; behind them stands a proof that older servers ignore.
        hello = struct.pack("<4sBBHHB5x16s32sQ8x", b"WFHS", 1, 2, 2, 2, 1, fsname.encode(), draw.randbytes(32), 0)
        hello += self.proof(key, b"weft handshake hello 1", hello, b"")
        self.send(hello)
        reply = self.receive()
        if reply[4] != 2:
            raise ConnectionError(f"refused with reason {reply[5]}")
        if reply[5] > 1:
            raise ConnectionError(f"frames are protected in way {reply[5]}")
        self.send(struct.pack("<4sB3x", b"WFHS", 3) + self.proof(key, b"weft handshake initiator 1", hello, reply))
        welcome = self.receive()
        if welcome[4] != 4:
            raise ConnectionError(f"no welcome: {welcome[4]}")
        salt = hashlib.sha256(struct.pack("<I", len(hello)) + hello + struct.pack("<I", len(reply)) + reply).digest()
        self.binding = hkdf(salt, key, b"weft binding 1\1", 32)

    @staticmethod
    def proof(key, label, first, second):
        """HMAC-SHA256 over a label and two parts."""
        return hmac.new(key, label + struct.pack("<I", len(first)) + first + struct.pack("<I", len(second)) + second, hashlib.sha256).digest()

    def send(self, head, bulk=b"", lie=0):
        """One frame."""
        start = struct.pack("<4sII48x", b"weft", len(head) + lie, len(bulk))
        self.socket.sendall(start + struct.pack("<I", crc32c(start)) + head + bulk)

    def receive(self):
        """The head of one frame."""
        start = self.exactly(64)
        _, head, bulk, _ = struct.unpack("<4sII48xI", start)
        data = self.exactly(head)
        self.exactly(bulk)
        return data

    def exactly(self, count):
        """So many bytes."""
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise ConnectionError("closed")
            data += piece
        return data

    def request(self, operation, body, kind, index, bulk=b"", **header):
        """One request, with its checksums right."""
        get = header.get
        fields = [b"WEFT", 2, 144, operation, get("flags", 8 if bulk else 0), get("status", 0), get("xid", 1), get("session", 0), get("epoch", 0),
                  get("transno", 0), 0, kind, index, get("slot", 0xFFFFFFFF), 0, b"", get("body_length", len(body)), len(bulk),
                  crc32c(body), crc32c(bulk) if bulk else 0, b"", 0]
        head = HEADER.pack(*fields)
        self.send(head + struct.pack("<I", crc32c(head)) + body, bulk, get("lie", 0))


def mutate(draw, body):
    """A body with something else in it."""
    body = bytearray(body)
    for _ in range(draw.choice([0, 0, 0, 1, 1, 2, 5])):
        way = draw.randrange(5)
        at = draw.randrange(len(body) + 1)
        if way == 0 and at < len(body):
            body[at] ^= 1 << draw.randrange(8)
        elif way == 1:
            body[at:at + 4] = draw.choice([b"\xff\xff\xff\xff", b"\0\0\0\x80", b"\0\0\1\0"])
        elif way == 2:
            del body[at:]
        elif way == 3:
            body[at:at] = draw.randbytes(draw.randrange(9))
        else:
            body += draw.randbytes(draw.randrange(3000))
    return bytes(body[:1 << 20])


def talk(peer, words, node, draw, counts):
    """A conversation, until the server closes the connection or enough was said."""
    kind, index = KINDS[node]
    xid, session, epoch = 1, 0, draw.randrange(1, 1 << 40)
    me = Key(draw.randbytes(32))
    client = hashlib.sha256(b"weft client 1" + me.public).digest()[:16]
    proof = me.public + me.sign(b"weft client proves itself 1" + peer.binding + client)
    connect = client + struct.pack("<QI", 7, len(peer.fsname)) + peer.fsname.encode() + struct.pack("<QQQ", 0, epoch, 0)
    connect += struct.pack("<I", len(proof)) + proof
    peer.request(1, connect, kind, index, xid=xid)
    answer = peer.receive()
    counts["answered"] += 1
    if not struct.unpack_from("<I", answer, 12)[0] and len(answer) > 152:
        session = struct.unpack_from("<Q", answer, 144)[0]
        counts["sessions"] += 1
    peer.socket.settimeout(ANSWER_SECONDS)
    for _ in range(draw.randrange(1, 12)):
        xid += 1
        operation = draw.choice(list(words.operations)) if draw.random() < 0.95 else draw.randrange(1 << 16)
        body = mutate(draw, words.body(draw, words.operations.get(operation, ("", ""))[1]))
        header = {"xid": xid, "session": session, "epoch": epoch if session else 0, "slot": draw.choice([0xFFFFFFFF, 0, 1, 5])}
        if draw.random() < 0.2:
            header[draw.choice(["flags", "status", "session", "epoch", "transno", "slot", "xid"])] = draw.choice([0, 1, 2, 4, 64, 128, 255])
        if draw.random() < 0.1:
            # A replay of a number that nobody was told.
            header |= {"flags": 4, "transno": draw.choice([1 << 40, 1 << 63, (1 << 64) - 2, (1 << 64) - 1])}
        if draw.random() < 0.03:
            header["lie"] = draw.choice([1, -1, 1000])
        counts["requests"] += 1
        peer.request(operation, body, kind, draw.choice([index, index, index, 1, 99]), draw.randbytes(4096) if operation in (60, 69) else b"", **header)
        try:
            peer.receive()
            counts["answered"] += 1
        except TimeoutError:
            pass


def a_round(box, servers, words, key, node, draw, counts):
    """Some conversations with one server, and a look at what others see."""
    for _ in range(25):
        try:
            peer = Peer(servers.name, key, address(node), draw)
        except TimeoutError:
            box.fail(f"{node} does not answer a handshake")
            return False
        peer.fsname = servers.name
        try:
            talk(peer, words, node, draw, counts)
        except (OSError, struct.error):
            pass
        finally:
            peer.socket.close()
    try:
        b.Bounded(use, 60, "a mount that is there")(f"{servers.mounts['b']}/beside", draw.randrange(10 ** 9))
    except (TimeoutError, OSError) as error:
        box.fail(f"beside requests to {node}: {error}")
        return False
    for server in SERVERS:
        if not b.alive(servers.pids[server]):
            box.fail(f"{server} has ended after requests to {node}")
            return False
    return True


def body(box):
    """The attack."""
    words = Words()
    extra = ["--protect", "mac+10.77.3.0/24=none"] if "--protect" in b.run(box.weft, "serve", "--help") else []
    servers = Servers(box, "hostile", serve_arguments=extra)
    servers.format()
    for node in SERVERS:
        servers.serve(node)
    servers.mount("b")
    b.run("ip", "address", "add", "10.77.3.202/24", "dev", "br0")
    with open(f"/etc/weft/{servers.name}.client.key", encoding="ascii") as file:
        key = bytes.fromhex(file.read().split()[0])
    sizes = {node: memory(servers.pids[node]) for node in SERVERS}
    counts = {"requests": 0, "answered": 0, "sessions": 0}
    draw = random.Random(box.options.seed)
    rounds = 0
    while rounds < box.options.trials and not box.time_is_up():
        if not a_round(box, servers, words, key, (MGS, MDS, OSS1)[rounds % 3], draw, counts):
            break
        rounds += 1
    box.tried(counts["requests"])
    for node in SERVERS:
        with open(servers.log(node), encoding="utf-8", errors="replace") as log:
            if found := re.search(r".*panicked at.*", log.read()):
                box.fail(f"{node}: {found.group()[:200]}")
        if b.alive(servers.pids[node]) and (grown := memory(servers.pids[node]) - sizes[node]) > MEMORY_GROWTH:
            box.fail(f"{node} grew by {grown >> 20} MiB")
    box.note(f"mutated requests of {len(words.operations)} operations with the clients' key, {counts['answered']} answered, "
             f"in {counts['sessions']} sessions")
    if not counts["sessions"]:
        box.fail("no server accepted a session")


if __name__ == "__main__":
    b.attack("hostile", body, trials=10 ** 6, seconds=60)
