#!/usr/bin/env python3
"""A race of renames: processes on two mounts list a directory and rename what they find from N to N+1; one wins each.

That is how queues and leases in directories work. rename(2) may succeed for one only: for the loser the old name is gone.
The same for link, unlink, rmdir and open with O_EXCL over a name that the other mount has just moved.
"""

import collections
import multiprocessing
import os

import box as b
from cluster import Servers

TOKENS = 4


def runner(directory, who, until, results):
    """Lists the directory, and moves each name on by one."""
    won, errors = [], []
    while b.time.monotonic() < until:
        try:
            names = os.listdir(directory)
        except OSError as error:
            errors.append(f"listing: {error}")
            continue
        for name in names:
            token, number = name.split(".")
            try:
                os.rename(f"{directory}/{name}", f"{directory}/{token}.{int(number) + 1}")
                won.append(name)
            except FileNotFoundError:
                pass
            except OSError as error:
                # docs/posix.md, "Not yet", allows ESTALE between directories only.
                errors.append(f"rename of {name}: {error}")
    results.put((who, won, errors))


def taker(directory, kind, who, until, results):
    """Takes names away by unlink, rmdir or link plus unlink, or claims them with O_EXCL, and makes or moves them again."""
    won, errors, serial = [], [], 0
    while b.time.monotonic() < until:
        try:
            for name in os.listdir(directory):
                serial += 1
                if name.startswith("claim"):
                    continue
                path = f"{directory}/{name}"
                try:
                    if kind == "unlink":
                        os.unlink(path)
                    elif kind == "rmdir":
                        os.rmdir(path)
                    else:
                        os.close(os.open(f"{directory}/claim.{name}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
                        os.unlink(path)
                except (FileNotFoundError, FileExistsError):
                    continue
                won.append(name)
                fresh = f"{directory}/n{who}.{serial}.{name[-8:]}"
                if kind == "rmdir":
                    os.mkdir(fresh)
                else:
                    os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
                if serial % 2:
                    os.rename(fresh, fresh + "m")
        except FileNotFoundError:
            continue  # the other one was quicker with the name that this one made
        except OSError as error:
            errors.append(f"{kind}: {error}")
    results.put((who, won, errors))


def race(box, servers, name, target, arguments, processes):
    """Runs processes on both mounts; what was won by two is a failure."""
    results = multiprocessing.SimpleQueue()
    until = b.time.monotonic() + min(15, max(4, box.options.seconds / 5))
    runners = [multiprocessing.Process(target=target, daemon=True, args=(
        f"{servers.mounts['ab'[who % 2]]}/{name}", *arguments, who, until, results)) for who in range(processes)]
    for process in runners:
        process.start()
    take = b.Bounded(results.get, 120, f"a process of {name}")
    won = collections.Counter()
    for _ in runners:
        who, names, errors = take()
        won.update(names)
        for error in errors[:3]:
            box.fail(f"{name}: process {who}: {error}")
    twice = [key for key, count in won.items() if count > 1]
    box.tried(len(won))
    for key in twice:
        box.fail(f"{name}: {key} was won {won[key]} times")
    box.note(f"{name}: {len(twice)} of {len(won)} won twice")
    return won


def body(box):
    """The attack."""
    servers = Servers(box, "races")
    servers.start()
    for processes in (2, 4):
        name = f"renames{processes}"
        root = f"{servers.mounts['a']}/{name}"
        os.mkdir(root)
        for token in range(TOKENS):
            open(f"{root}/t{token}.0", "x", encoding="utf-8").close()
        race(box, servers, name, runner, (), processes)
        left = sorted(os.listdir(f"{servers.mounts['b']}/{name}"))
        if len(left) != TOKENS:
            box.fail(f"{name}: {TOKENS} names were moved, and these are left: {left}")
    for kind in ("unlink", "rmdir", "claim"):
        root = f"{servers.mounts['a']}/{kind}"
        os.mkdir(root)
        for token in range(TOKENS):
            (os.mkdir if kind == "rmdir" else os.mknod)(f"{root}/t{token}")
        race(box, servers, kind, taker, (kind,), 2)
    servers.stop()


if __name__ == "__main__":
    b.attack("renames", body, trials=1, seconds=50)
