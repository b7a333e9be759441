#!/usr/bin/env python3
"""A link with a delay, and a count of the requests that are under way on it.

slowlink.py NETNS PORT DELAY_MS OPERATION COUNT_FILE

Listens at 127.0.0.1:PORT in the network namespace NETNS (a path), and passes everything on to the same address of the
namespace that it was started in, later by half of DELAY_MS in each direction. On SIGTERM it writes to COUNT_FILE how many requests
of OPERATION (a number of docs/wire.md) were without an answer at the same time, at most, and how many there were.
"""
import asyncio
import ctypes
import os
import signal
import socket
import struct
import sys

CLONE_NEWNET = 0x40000000
REPLY = 1
# What stands before each frame (docs/wire.md#frame).
FRAME_BYTES = 64


class Count:
    def __init__(self):
        self.under_way, self.most, self.all = set(), 0, 0

    def begin(self, xid):
        self.under_way.add(xid)
        self.all += 1
        self.most = max(self.most, len(self.under_way))

    def end(self, xid):
        self.under_way.discard(xid)


class Frames:
    """Tells of each frame of one direction."""

    def __init__(self, told):
        self.rest, self.told = b"", told

    def feed(self, data):
        self.rest += data
        while len(self.rest) >= FRAME_BYTES:
            magic, head, bulk = struct.unpack_from("<4sII", self.rest)
            assert magic == b"weft", magic
            if len(self.rest) < FRAME_BYTES + head + bulk:
                return
            if self.rest[FRAME_BYTES:FRAME_BYTES + 4] == b"WEFT":
                operation, flags = struct.unpack_from("<HH", self.rest, FRAME_BYTES + 8)
                (xid,) = struct.unpack_from("<Q", self.rest, FRAME_BYTES + 16)
                self.told(operation, flags, xid)
            self.rest = self.rest[FRAME_BYTES + head + bulk :]


async def pass_on(reader, writer, delay, arrived, left):
    """`arrived` hears of frames when they come, `left` when they go on."""
    loop = asyncio.get_running_loop()
    arrived, left = Frames(arrived), Frames(left)

    def go_on(data):
        left.feed(data)
        if not writer.is_closing():
            writer.write(data)

    while data := await reader.read(1 << 20):
        arrived.feed(data)
        loop.call_later(delay, go_on, data)
    loop.call_later(delay, writer.close)


async def main(listener, port, delay, operation, count_file):
    count = Count()

    def nothing(*_):
        pass

    async def accepted(client_reader, client_writer):
        me = object()
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", port)
        for writer in client_writer, server_writer:
            # asyncio does so only for sockets that were made with the number of the protocol.
            writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def asked(op, flags, xid):
            if op == operation and not flags & REPLY:
                count.begin((id(me), xid))

        def answered(op, flags, xid):
            if op == operation and flags & REPLY:
                count.end((id(me), xid))

        await asyncio.gather(
            pass_on(client_reader, server_writer, delay, asked, nothing),
            pass_on(server_reader, client_writer, delay, nothing, answered),
            return_exceptions=True,
        )

    server = await asyncio.start_server(accepted, sock=listener)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    print("ready", flush=True)
    await ended.wait()
    server.close()
    with open(count_file, "w") as out:
        print(count.most, count.all, file=out)


def listen_in(netns, port):
    """Sockets belong to the namespace in which they were made."""
    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(netns, os.O_RDONLY)
    if libc.setns(there, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), netns)
    listener = socket.create_server(("127.0.0.1", port))
    if libc.setns(home, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "own namespace")
    return listener


if __name__ == "__main__":
    netns, port, delay_ms, operation, count_file = sys.argv[1:]
    asyncio.run(main(listen_in(netns, int(port)), int(port), float(delay_ms) / 2000, int(operation), count_file))
