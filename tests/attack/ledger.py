#!/usr/bin/env python3
"""The ledger under kills: everything that was synced has to be there after kill -9.

Half of the trials kill `weft up`, servers and mount at once, right behind the sync of one operation of each kind, when nothing
else is under way whose commit would cover it. A quarter kill it in the middle of what four writers do. The others kill processes
of a file system with one process per role: one server, several, or all servers with the client. As long as the client lives,
its writers must not even notice (docs/recovery.md, promises 1 to 3 and 5).
"""

import multiprocessing

import box as b
from box import run
from cluster import MDS, MGS, OSS1, OSS2, SERVERS, Servers, Up
from promises import KINDS, Writer

WRITERS = 4
# How long writers work before the blow.
WORK_SECONDS = 2.0
KILLS = [[MDS], [OSS1], [OSS2], [MGS], [MDS, OSS1], [OSS1, OSS2], [MGS, MDS], list(SERVERS)]


class Crew:
    """Writers, until their mount goes or they are told to end.

    Each is a process: one that is started from a process with files open on a mount waits for the servers before it runs, because it
    closes those files, and it may be the server that is waited for."""

    def __init__(self, box, root, count=WRITERS, ledger=None):
        self.box, self.stopped = box, multiprocessing.Event()
        self.errors, self.done = [], {}
        self.crew = []
        for _ in range(count):
            ours, theirs = multiprocessing.Pipe()
            writer = Writer(root, f"{box.random.randrange(1 << 30):x}", b.random.Random(box.random.random()), ledger)
            writer.begin()
            process = multiprocessing.Process(target=self.serve, args=(writer, theirs), daemon=True)
            process.start()
            self.crew.append(ours)

    def serve(self, writer, pipe):
        """The process of one writer: works until it is told to stop, then compares when it is asked."""
        pipe.recv()
        error = None
        while not self.stopped.is_set():
            try:
                writer.step()
            except OSError as caught:
                error = f"{writer.doubt and writer.doubt[0]}: {caught}"
                break
        pipe.send((error, writer.done))
        while pipe.recv() == "check":
            found = []
            writer.check(found.append)
            pipe.send(found)

    def start(self):
        """Lets them work."""
        for pipe in self.crew:
            pipe.send("work")

    def answers(self, seconds, what):
        """An answer of each; None if one does not come."""
        end = b.time.monotonic() + seconds
        found = []
        for pipe in self.crew:
            if not pipe.poll(max(0, end - b.time.monotonic())):
                self.box.fail(f"{what}: a writer waits for more than {seconds} s")
                return None
            try:
                found.append(pipe.recv())
            except EOFError:
                self.box.fail(f"{what}: the process of a writer ended")
                return None
        return found

    def stop(self, seconds=120):
        """Waits for them; who does not come back is a failure."""
        self.stopped.set()
        found = self.answers(seconds, "the end of the work")
        for error, done in found or []:
            if error:
                self.errors.append(error)
            add(self.done, done)
        return found is not None

    def check(self, what):
        """Compares all with the ledger, and lets the processes go."""
        for pipe in self.crew:
            pipe.send("check")
        for problems in self.answers(120, what) or []:
            for problem in problems:
                self.box.fail(f"{what}: {problem}")
        for pipe in self.crew:
            pipe.send("end")

    def acknowledged(self):
        """How many operations were acknowledged, by kind."""
        return self.done


def add(sums, kinds):
    """Sums of counts."""
    for kind, count in kinds.items():
        sums[kind] = sums.get(kind, 0) + count


def ready(box, up, number, ledger):
    """A writer with some of everything, which is durable whatever fsync does."""
    writer = Writer(up.mount, number, box.random, ledger)
    writer.begin()
    for kind in ["create"] * 12 + ["mkdir", "symlink", "fifo", "mkdir", "setxattr"]:
        writer.do(kind)
    run(box.weft, "sync", up.mount)
    return writer


def kills_behind_syncs(box, trials, ledger, sums, until):
    """One operation and its sync, and kill -9 at once; each kind in its turn."""
    up = Up(box, "ledone")
    up.start()
    writer = ready(box, up, 0, ledger)
    done = 0
    while done < trials and b.time.monotonic() < until:
        kind = KINDS[(box.options.seed + done) % len(KINDS)]
        before = writer.done.get(kind, 0)
        for _ in range(5):
            writer.do(kind)
            if writer.done.get(kind, 0) > before:
                break
        up.kill()
        up.start()
        lost = []
        writer.check(lost.append)
        for text in lost:
            box.fail(f"kill right behind the sync: {text}")
        if lost:
            # What was lost once is not lost anew each time.
            add(sums, writer.done)
            writer = ready(box, up, done + 1, ledger)
        box.tried()
        done += 1
    add(sums, writer.done)
    up.stop()
    return done


def kills_of_up(box, trials, ledger, sums, until):
    """Everything in one process, killed again and again."""
    up = Up(box, "ledup")
    up.start()
    done = 0
    while done < trials and b.time.monotonic() < until:
        crew = Crew(box, up.mount, ledger=ledger)
        crew.start()
        b.time.sleep(box.random.uniform(0.2, WORK_SECONDS))
        up.kill()
        if not crew.stop():
            return done
        up.start()
        crew.check(f"kill {done} of weft up")
        add(sums, crew.acknowledged())
        box.tried()
        done += 1
    up.stop()
    return done


def kills_of_servers(box, trials, ledger, sums):
    """One process per role."""
    servers = Servers(box, "ledsrv", clients=("a",))
    servers.start()
    done = 0
    while done < trials and not box.time_is_up():
        crew = Crew(box, servers.mounts["a"], ledger=ledger)
        crew.start()
        b.time.sleep(box.random.uniform(0.2, WORK_SECONDS))
        victims = KILLS[done % len(KILLS)]
        with_client = victims == list(SERVERS)
        for node in victims:
            servers.kill(node)
        if with_client:
            servers.kill_client("a")
            if not crew.stop():
                return done
        b.time.sleep(box.random.choice([0, 0, 1]))
        for node in victims:
            servers.serve(node)
        if with_client:
            servers.mount("a")
        else:
            b.time.sleep(1)
            if not crew.stop():
                return done
            for error in crew.errors:
                box.fail(f"kill {done} of {victims}: a writer saw an error: {error}")
        crew.check(f"kill {done} of {victims}{' and the client' if with_client else ''}")
        add(sums, crew.acknowledged())
        box.tried()
        done += 1
    return done


def body(box):
    """The attack."""
    sums = {}
    trials, seconds = box.options.trials, box.options.seconds
    with open(box.path("ledger"), "w", encoding="utf-8", buffering=1) as ledger:
        alone = kills_behind_syncs(box, trials // 2, ledger, sums, box.began + seconds * 0.4)
        up = kills_of_up(box, trials // 4, ledger, sums, box.began + seconds * 0.7)
        servers = kills_of_servers(box, trials - trials // 2 - trials // 4, ledger, sums)
    box.note(f"kills: {alone} of weft up right behind one sync, {up} in the midst, {servers} of separate processes; "
             f"{sum(sums.values())} operations of {len(sums)} kinds acknowledged")


if __name__ == "__main__":
    b.attack("ledger", body, trials=70, seconds=150)
