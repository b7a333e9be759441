"""The file systems that are attacked: all in one process (`Up`), and one process per role in network namespaces (`Servers`)."""

import json
import os
import shutil
import signal
import subprocess

from box import attempt, alive, kill, mounted, poll, run

MGS, MDS, OSS1, OSS2 = "mgs", "mds", "oss1", "oss2"
SERVERS = (MGS, MDS, OSS1, OSS2)
ADDRESSES = {MGS: 1, MDS: 2, OSS1: 3, OSS2: 4, "a": 5, "b": 6}
TARGETS = {MGS: ["mgs"], MDS: ["mdt0"], OSS1: ["ost0", "ost1"], OSS2: ["ost2", "ost3"]}
# A server that was killed is in use within 3 s (docs/recovery.md, promise 6); this is a busy machine.
START_SECONDS = 60


def address(node):
    """Address of a node."""
    return f"10.77.3.{ADDRESSES[node]}"


def target_directories(data):
    """The directories of targets below one: those that have a label (docs/disk.md)."""
    found = []
    for directory, names, files in os.walk(data):
        if "label" in files:
            found.append(directory)
            names[:] = []
    return sorted(found)


def drop_mount(path):
    """Takes a mount away whose process was killed."""
    while mounted(path):
        run("umount", "-l", path)


def mount_pid(box, path):
    """The process that serves a mount."""
    # Its exit status says whether all is well, which a target that has just started may not be yet.
    done = attempt(box.weft, "status", "--json", path, seconds=60)
    try:
        return json.loads(done.stdout)[0]["status"]["pid"]
    except (ValueError, LookupError):
        raise RuntimeError(f"weft status says nothing of {path}: status {done.returncode}: {done.stdout[-200:]}{done.stderr[-200:]}") from None


class Up:
    """`weft up`: every server and a mount in one process."""

    def __init__(self, box, name, data=None, osts=2, arguments=()):
        self.box, self.name = box, name
        self.mount = box.path(name)
        self.data = data or box.path(name + ".data")
        self.osts, self.arguments = osts, list(arguments)
        self.pid = None
        self.said = ""
        os.makedirs(self.mount, exist_ok=True)

    def command(self):
        """The command that starts it, with all arguments."""
        return [self.box.weft, "up", self.mount, "--data", self.data, "--fsname", self.name, "--osts", str(self.osts),
                *self.arguments]

    def try_start(self, seconds=START_SECONDS, **named):
        """Starts it; what it said is in `said`. Whether it is mounted."""
        done = attempt(*self.command(), seconds=seconds, **named)
        self.said = f"status {done.returncode}: {done.stdout}{done.stderr}"
        # With status 1 it may be up without some of its targets.
        if done.returncode not in (0, 1) or not mounted(self.mount):
            return False
        self.pid = mount_pid(self.box, self.mount)
        return True

    def start(self, **named):
        """Starts it, or raises."""
        if not self.try_start(**named):
            raise RuntimeError(f"weft up does not start: {self.said[-600:]}")

    def kill(self):
        """The machine goes: kill -9, and the dead mount is taken away."""
        kill(self.pid)
        drop_mount(self.mount)
        self.pid = None

    def stop(self):
        """Stops it in order."""
        run(self.box.weft, "down", self.mount)
        if self.pid:
            poll(lambda: not alive(self.pid), 60, "the end of weft up")
        self.pid = None

    def targets(self):
        """Directories of its targets."""
        return target_directories(self.data)


class Node:
    """A machine: a network namespace with one link to the bridge."""

    def __init__(self, box, name):
        self.name = name
        self.holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        poll(lambda: os.readlink(f"/proc/{self.holder.pid}/ns/net") != os.readlink("/proc/self/ns/net"), 10, "a network")
        if box is not None:
            run("ip", "link", "add", f"v-{name}", "type", "veth", "peer", "name", "eth0", "netns", str(self.holder.pid))
            run("ip", "link", "set", f"v-{name}", "master", "br0", "up")
            run(*self.on("ip", "address", "add", f"{address(name)}/24", "dev", "eth0"))
            run(*self.on("ip", "link", "set", "eth0", "up"))
        run(*self.on("ip", "link", "set", "lo", "up"))

    def on(self, *command):
        """The command, on this machine."""
        return ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net", *map(str, command)]


class Servers:
    """An MGS, an MDS and two OSSes with two OSTs each, every one a process in a network namespace, and two mounts over tcp."""

    def __init__(self, box, name, directory=None, clients=("a", "b"), serve_arguments=()):
        self.serve_arguments = list(serve_arguments)
        self.box, self.name = box, name
        self.directory = directory or (lambda target: box.path(target))
        self.clients = list(clients)
        self.pids = {}
        self.mount_pids = {}
        run("ip", "link", "add", "br0", "type", "bridge")
        run("ip", "link", "set", "br0", "up")
        self.nodes = {node: Node(box, node) for node in [*SERVERS, *self.clients]}
        self.mounts = {client: box.path(f"mount-{client}") for client in self.clients}
        for path in self.mounts.values():
            os.makedirs(path, exist_ok=True)

    def format(self):
        """Formats all targets."""
        weft, mgs = self.box.weft, f"{address(MGS)}@tcp"
        run(weft, "format", "--mgs", "--fsname", self.name, self.directory("mgs"))
        run(weft, "format", "--mdt", "--fsname", self.name, "--index", "0", "--mgsnode", mgs, self.directory("mdt0"))
        for index in range(4):
            run(weft, "format", "--ost", "--fsname", self.name, "--index", index, "--mgsnode", mgs, self.directory(f"ost{index}"))

    def log(self, node):
        """The log of a server."""
        return self.box.path(f"{node}.log")

    def serve(self, node, **named):
        """Starts a server."""
        with open(self.log(node), "ab") as log:
            child = subprocess.Popen(
                self.nodes[node].on(self.box.weft, "serve", *map(self.directory, TARGETS[node]),
                                    "--listen", f"{address(node)}@tcp", "--server", node, *self.serve_arguments),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **named)
        self.pids[node] = child.pid

    def mount(self, client, options=(), node_of=None):
        """Mounts on a client's machine, or another one."""
        path = self.mounts[client]
        source = f"{address(MGS)}@tcp:/{self.name}"
        run(*(node_of or self.nodes[client]).on(self.box.weft, "mount", source, path, *options))
        if not mounted(path):
            raise RuntimeError(f"{path} is not mounted")
        self.mount_pids[client] = mount_pid(self.box, path)

    def start(self):
        """Formats and starts everything."""
        self.format()
        for node in SERVERS:
            self.serve(node)
        for client in self.clients:
            self.mount(client)

    def kill(self, node):
        """Kills a server."""
        kill(self.pids.pop(node))

    def kill_client(self, client):
        """A client's machine goes: its mount's process is killed, and the dead mount taken away."""
        kill(self.mount_pids.pop(client))
        drop_mount(self.mounts[client])

    def forget(self, client):
        """Has the servers give up a client that was killed (docs/operations.md, "Evicting a client"), so that nobody waits for it."""
        for node in (MDS, OSS1, OSS2):
            kind = "mdt" if node == MDS else "obdfilter"
            attempt(*self.nodes[node].on(self.box.lctl, "set_param", f"{kind}.*.evict_client=nid:{address(client)}@tcp"), seconds=20)

    def release(self):
        """Takes the machines and their network away."""
        for node in self.nodes.values():
            node.holder.kill()
            node.holder.wait()
        run("ip", "link", "del", "br0")
        # The kernel takes the links away some moments after the last process.
        poll(lambda: "v-" not in run("ip", "-br", "link"), 30, "the end of the network")

    def stop(self):
        """Unmounts and stops everything in order."""
        for client in list(self.mount_pids):
            run("umount", self.mounts[client])
            pid = self.mount_pids.pop(client)
            poll(lambda pid=pid: not alive(pid), 60, f"the end of the mount of {client}")
        for node in reversed(SERVERS):
            if node in self.pids:
                kill(self.pids.pop(node), signal.SIGTERM)


def is_listed(path, name):
    """Whether a directory lists a name."""
    return name in os.listdir(path)


def copy_sparse(source, target):
    """Copies a tree with its holes."""
    shutil.rmtree(target, ignore_errors=True)
    run("cp", "-a", "--sparse=always", source, target)


class Disk:
    """A file system in a file, on a loop device that goes with its last mount."""

    def __init__(self, box, name, mebibytes, kind="ext4"):
        self.image, self.path, self.kind = box.path(name + ".image"), box.path(name), kind
        os.makedirs(self.path, exist_ok=True)
        with open(self.image, "wb") as image:
            image.truncate(mebibytes << 20)
        if kind == "ext4":
            run("mkfs.ext4", "-q", "-F", "-O", "has_journal", self.image)
        else:
            run("mkfs.xfs", "-q", "-f", self.image)
        self.mount()

    def mount(self):
        """Mounts it; after a power cut this replays its journal."""
        run("mount", "-o", "loop", self.image, self.path)

    def unmount(self):
        """Unmounts it. The loop device must be gone before the image is mounted again, or old pages would come back."""
        # The kernel ends the io_uring of a killed process some moments after the process, and with it its files.
        poll(lambda: attempt("umount", self.path).returncode == 0, 10, f"the end of what holds {self.path}")
        poll(lambda: not run("losetup", "-j", self.image).strip(), 30, f"the end of the loop device of {self.image}")

    def cut_power(self):
        """What was not synced is lost from now on: the shutdown ioctl that ext4 and xfs have in common, without any flush."""
        import fcntl
        import struct
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            # XFS_IOC_GOINGDOWN and EXT4_IOC_SHUTDOWN: _IOR('X', 125, u32); 2 is "no flush of the log".
            fcntl.ioctl(descriptor, 0x8004587D, struct.pack("I", 2))
        finally:
            os.close(descriptor)
