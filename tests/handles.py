#!/usr/bin/env python3
"""Files opened by handle, as NFS servers do it: name_to_handle_at and open_by_handle_at.

usage: handles.py make DIR STATE      makes files in DIR and keeps their handles in STATE
       handles.py open DIR STATE      opens each by its handle, with nothing of it in the kernel, and compares
"""

import ctypes
import errno
import json
import os
import sys

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100
HANDLE_BYTES = 128


class FileHandle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("handle", ctypes.c_ubyte * HANDLE_BYTES)]


def handle_of(path):
    handle, mount = FileHandle(bytes=HANDLE_BYTES), ctypes.c_int()
    if libc.name_to_handle_at(AT_FDCWD, os.fsencode(path), ctypes.byref(handle), ctypes.byref(mount), 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
    return {"type": handle.type, "handle": bytes(handle.handle[: handle.bytes]).hex()}


def open_handle(mount_fd, kept, flags):
    raw = bytes.fromhex(kept["handle"])
    handle = FileHandle(bytes=len(raw), type=kept["type"])
    ctypes.memmove(handle.handle, raw, len(raw))
    fd = libc.open_by_handle_at(mount_fd, ctypes.byref(handle), flags)
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return fd


def make(top, state):
    deep = os.path.join(top, "a/b/c")
    os.makedirs(deep)
    paths = [top, os.path.join(top, "a"), deep]
    for name in ("file", "moved", "removed"):
        path = os.path.join(deep, name)
        with open(path, "w") as file:
            file.write(name)
        paths.append(path)
    kept = {path: handle_of(path) | {"ino": os.stat(path).st_ino} for path in paths}
    os.rename(os.path.join(deep, "moved"), os.path.join(top, "moved"))
    os.unlink(os.path.join(deep, "removed"))
    with open(state, "w") as file:
        json.dump(kept, file)


def check(top, state):
    with open(state) as file:
        kept = json.load(file)
    mount_fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    for path, one in kept.items():
        with open("/proc/sys/vm/drop_caches", "w") as file:
            file.write("2")
        name = os.path.basename(path)
        if name == "removed":
            try:
                open_handle(mount_fd, one, os.O_RDONLY)
            except OSError as error:
                assert error.errno == errno.ESTALE, (path, error)
                continue
            raise AssertionError(f"{path} is removed, and opens by its handle")
        fd = open_handle(mount_fd, one, os.O_RDONLY)
        assert os.fstat(fd).st_ino == one["ino"], path
        if os.path.isdir(f"/proc/self/fd/{fd}"):
            # A directory has a place in the tree again, with all that is above it.
            assert os.readlink(f"/proc/self/fd/{fd}") == path, (os.readlink(f"/proc/self/fd/{fd}"), path)
        else:
            assert os.read(fd, 100) == name.encode(), path
        os.close(fd)
    print(f"{len(kept)} handles")


if __name__ == "__main__":
    {"make": make, "open": check}[sys.argv[1]](*sys.argv[2:])
