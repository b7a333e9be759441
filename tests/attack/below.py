#!/usr/bin/env python3
"""What lies below a mount stays: file systems mounted there, working directories and open files, whatever drops names.

Names are dropped by `lru_size=clear`, by drop_caches, by changes of another mount in the same directory, and by the restart of
the MDS. Afterwards the tmpfs is still where it was mounted, the working directory has its path, and files are not "(deleted)".
"""

import os
import signal
import subprocess
import sys

import box as b
from cluster import MDS, Servers

LOOKER = """
import os, sys, signal
os.chdir(sys.argv[1])
held = [open(name) for name in ("file", "d/file")]
print("ready", flush=True)
sys.stdin.read()
"""


def clear_locks(box, servers):
    """Gives all locks back."""
    b.run(*servers.nodes["a"].on(box.lctl, "set_param", "ldlm.namespaces.*-mdc-*.lru_size=clear"), seconds=30)


def drop_caches(_box, _servers):
    """Has the kernel forget what nobody uses."""
    b.run("sh", "-c", "echo 2 > /proc/sys/vm/drop_caches")


def other_mount(_box, servers):
    """The other mount changes names and attributes in the same directories."""
    path = servers.mounts["b"] + "/p"
    for n in range(20):
        name = f"{path}/other{n}"
        os.mkdir(name)
        os.rename(name, name + "x")
        os.rmdir(name + "x")
        os.utime(path)
        os.chmod(path + "/work", 0o755 if n % 2 else 0o750)
        os.utime(path + "/md")
        with open(path + "/work/file", "a", encoding="utf-8") as file:
            file.write("x")


def restart_mds(_box, servers):
    """The MDS is killed and started again."""
    servers.kill(MDS)
    servers.serve(MDS)
    os.listdir(servers.mounts["a"] + "/p")


def many_names(_box, servers):
    """More names of the other mount than before, looked at here."""
    root = servers.mounts["b"] + "/p/many"
    os.mkdir(root)
    for n in range(300):
        open(f"{root}/{n}", "x", encoding="utf-8").close()
    os.listdir(servers.mounts["a"] + "/p/many")
    b.shutil.rmtree(root)


BLOWS = [clear_locks, drop_caches, other_mount, many_names, restart_mds]


def prepare(servers):
    """A tmpfs below, and a process that has a working directory and open files there."""
    path = servers.mounts["a"] + "/p"
    for name in ("", "/md", "/work", "/work/d"):
        os.makedirs(path + name, exist_ok=True)
    for name in ("/work/file", "/work/d/file"):
        with open(path + name, "w", encoding="utf-8") as file:
            file.write("held")
    b.run("mount", "-t", "tmpfs", "-o", "size=1m", "below", path + "/md")
    with open(path + "/md/inside", "w", encoding="utf-8") as file:
        file.write("of the tmpfs")
    looker = subprocess.Popen([sys.executable, "-c", LOOKER, path + "/work"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    looker.stdout.readline()
    return path, looker


def look(box, path, looker, what):
    """Everything is where it was."""
    problems = []
    if not b.mounted(path + "/md"):
        problems.append("the tmpfs has gone")
    elif not os.path.exists(path + "/md/inside"):
        problems.append("what was in the tmpfs is not found")
    cwd = os.readlink(f"/proc/{looker.pid}/cwd")
    if cwd != path + "/work":
        problems.append(f"the working directory is {cwd}")
    for link in os.listdir(f"/proc/{looker.pid}/fd"):
        name = os.readlink(f"/proc/{looker.pid}/fd/{link}")
        if "(deleted)" in name and servers_path(name, path):
            problems.append(f"an open file is {name}")
    box.tried()
    for problem in problems:
        box.fail(f"after {what}: {problem}")
    return not problems


def servers_path(name, path):
    """Whether an open file is one of the mount's, also if it has lost its place there."""
    return name.startswith(path) or name.startswith("/work") or "/file" in name


def body(box):
    """The attack."""
    servers = Servers(box, "below")
    servers.start()
    path, looker = prepare(servers)
    look(box, path, looker, "the beginning")
    rounds = 0
    while rounds < box.options.trials and not box.time_is_up():
        for blow in BLOWS:
            blow(box, servers)
            if not look(box, path, looker, blow.__name__):
                # Made anew, so that each way is judged for itself.
                looker.send_signal(signal.SIGKILL)
                looker.wait()
                if b.mounted(path + "/md"):
                    b.run("umount", "-l", path + "/md")
                path, looker = prepare(servers)
        rounds += 1
    box.note(f"{rounds} rounds of {', '.join(blow.__name__ for blow in BLOWS)}")
    looker.kill()
    looker.wait()
    if b.mounted(path + "/md"):
        b.run("umount", path + "/md")
    servers.stop()


if __name__ == "__main__":
    b.attack("below", body, trials=5, seconds=40)
