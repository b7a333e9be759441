#!/usr/bin/env python3
"""Processes that wait for servers that do not answer can be killed, and a forced unmount ends them all.

Usage: interrupts.py MOUNTPOINT SERVER_PID CLIENT_PID. The mount point is one of the client's process, the servers run
in the other; it is unmounted in the end. `dir` in it is a directory that another mount made.
"""

import os
import signal
import subprocess
import sys
import time

mount, server, client = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
PATIENCE = 20


def wait_until(what, condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"not within {PATIENCE} s: {what}")
        time.sleep(0.002)


def waits_for_answer(pid):
    try:
        with open(f"/proc/{pid}/wchan") as file:
            return "request_wait_answer" in file.read()
    except OSError:
        return False


def start(*command):
    """Starts a command and waits until it waits for the kernel's FUSE."""
    # A shell gives what it starts in the background SIGINT ignored: then it would end nothing.
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    wait_until(f"{command} waits", lambda: waits_for_answer(process.pid))
    return process


def dies_of(number, *command):
    process = start(*command)
    process.send_signal(number)
    wait_until(f"{command} ends by signal {number}", lambda: process.poll() is not None)
    assert process.returncode == -number, (command, process.returncode)


def engine_threads():
    count = 0
    for task in os.listdir(f"/proc/{client}/task"):
        try:
            with open(f"/proc/{client}/task/{task}/comm") as file:
                count += file.read().startswith(("weft-fuse", "weft-ring"))
        except OSError:
            pass
    return count


with open(f"{mount}/file", "w") as file:
    file.write("data")
# Of a directory that this mount makes it knows which names are not there: who looks for one waits for nobody.
os.mkdir(f"{mount}/own")
open(f"{mount}/own/old", "w").close()
os.stat(f"{mount}/dir")
os.kill(server, signal.SIGSTOP)
try:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        dies_of(number, "stat", f"{mount}/missing{number}")
    dies_of(signal.SIGKILL, "cat", f"{mount}/missing")
    dies_of(signal.SIGKILL, "ls", f"{mount}/dir/missing")

    # A signal that is caught does not disturb stat(2); one that kills, and comes later, is seen.
    handled = start(
        sys.executable,
        "-c",
        f"import os, signal; signal.signal(signal.SIGUSR1, lambda *_: None); os.stat({mount + '/other'!r})",
    )
    handled.send_signal(signal.SIGUSR1)
    wait_until("the signal is delivered or pending", lambda: waits_for_answer(handled.pid))
    assert handled.poll() is None
    handled.kill()
    wait_until("a process that was signalled before dies", lambda: handled.poll() is not None)

    # A change runs to its end, and a forced unmount ends that for the process.
    changing = start(sys.executable, "-c", f"import os; os.rename({mount + '/own/old'!r}, {mount + '/own/new'!r})")
    looking = start("stat", f"{mount}/late")
    assert engine_threads() > 0
    subprocess.run(["umount", "-f", "-l", mount], check=True)
    for process in (changing, looking):
        wait_until("a forced unmount ends everybody", lambda: process.poll() is not None)
        assert process.returncode > 0, process.returncode
    wait_until("the engine ends", lambda: engine_threads() == 0)
finally:
    os.kill(server, signal.SIGCONT)
wait_until("the mount's process ends", lambda: not os.path.exists(f"/proc/{client}"))
