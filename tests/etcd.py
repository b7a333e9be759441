"""A real etcd cluster of three members, each on a node of its own in the network of a test, which show and want certificates."""

import base64
import json
import os
import shutil
import subprocess
import time

MEMBERS = ("etcd1", "etcd2", "etcd3")
CLIENT_PORT, PEER_PORT = 2379, 2380


class Etcd:
    """The members; `address` gives the address of a node, `within` the begin of a command that runs on it."""

    def __init__(self, work, address, within):
        # Not silently left out: what is tested with it would not be tested.
        if not shutil.which("etcd"):
            raise RuntimeError("etcd is not installed; tools/deps.sh test installs it")
        self.work, self.address, self.within = work, address, within
        self.processes = {}

    def options(self):
        """For weft serve."""
        return ["--owners", "etcd:" + ",".join(self.url(member) for member in MEMBERS), "--owners-ca", f"{self.work}/ca.crt",
                "--owners-cert", f"{self.work}/weft.crt", "--owners-key", f"{self.work}/weft.key"]

    def certify(self):
        """An authority, and certificates of it for etcd's members and for servers of weft."""
        def openssl(*arguments):
            subprocess.run(["openssl", *arguments], cwd=self.work, check=True, stdin=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout"]
        openssl("req", "-x509", *key, "ca.key", "-out", "ca.crt", "-days", "2", "-subj", "/CN=authority")
        with open(f"{self.work}/names", "w", encoding="ascii") as names:
            names.write("subjectAltName=" + ",".join(f"IP:{self.address(member)}" for member in MEMBERS))
        for name in ("etcd", "weft"):
            openssl("req", *key, f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
            openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
                    "-extfile", "names", "-out", f"{name}.crt")

    def start(self, member):
        """Starts a member, with what it had if it ran before."""
        peers = {m: f"http://{self.address(m)}:{PEER_PORT}" for m in MEMBERS}
        url = self.url(member)
        command = [*self.within(member), "etcd", "--name", member, "--data-dir", f"{self.work}/{member}",
                   "--listen-client-urls", url, "--advertise-client-urls", url,
                   "--listen-peer-urls", peers[member], "--initial-advertise-peer-urls", peers[member],
                   "--initial-cluster", ",".join(f"{m}={peer}" for m, peer in peers.items()),
                   "--cert-file", f"{self.work}/etcd.crt", "--key-file", f"{self.work}/etcd.key",
                   "--trusted-ca-file", f"{self.work}/ca.crt", "--client-cert-auth",
                   "--auto-compaction-mode", "periodic", "--auto-compaction-retention", "5m"]
        with open(f"{self.work}/{member}.log", "ab") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.processes[member] = process
        with open(f"{self.work}/pids", "a", encoding="ascii") as pids:
            pids.write(f"{process.pid}\n")

    def kill(self, member):
        """kill -9."""
        self.processes[member].kill()
        self.processes[member].wait()

    def post(self, member, path, question):
        """Asks a member; None if it does not answer."""
        program = ("import ssl, sys, urllib.request as u\n"
                   "url, work = sys.argv[1:]\n"
                   "tls = ssl.create_default_context(cafile=work + '/ca.crt')\n"
                   "tls.load_cert_chain(work + '/weft.crt', work + '/weft.key')\n"
                   "answer = u.urlopen(u.Request(url, data=sys.stdin.buffer.read()), timeout=2, context=tls)\n"
                   "sys.stdout.buffer.write(answer.read())")
        command = [*self.within(member), "python3", "-c", program, self.url(member) + path, self.work]
        said = subprocess.run(command, input=json.dumps(question).encode(), stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, check=False)
        return json.loads(said.stdout) if said.returncode == 0 else None

    def url(self, member):
        """Where a member answers."""
        return f"https://{self.address(member)}:{CLIENT_PORT}"

    def leader(self):
        """The member that leads; None if there is none."""
        for member in MEMBERS:
            if self.processes[member].poll() is None and (said := self.post(member, "/v3/maintenance/status", {})):
                if said.get("leader") and said["leader"] == said["header"]["member_id"]:
                    return member
        return None

    def values(self, prefix):
        """All keys that begin so, with what they hold."""
        text = lambda data: base64.b64encode(data.encode()).decode()
        question = {"key": text(prefix), "range_end": text(prefix[:-1] + chr(ord(prefix[-1]) + 1))}
        for member in MEMBERS:
            if self.processes[member].poll() is None and (said := self.post(member, "/v3/kv/range", question)):
                decode = lambda data: base64.b64decode(data).decode()
                return {decode(kv["key"]): decode(kv["value"]) for kv in said.get("kvs", [])}
        return {}

    def ready(self, seconds=20):
        """Starts all members, and waits until one leads."""
        self.certify()
        for member in MEMBERS:
            self.start(member)
        end = time.monotonic() + seconds
        while self.leader() is None:
            if time.monotonic() > end:
                raise TimeoutError("etcd has no leader")
            time.sleep(0.05)

    def stop(self):
        """Ends all members."""
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()
