"""When I/O returns after a link was pulled under load: resuming.py WEFT WORK ID [SECONDS...].

In the cluster of faults.py four writers on one client write blocks through to the disks of oss1's two OSTs, and note the time
of each that is done. Once the rate is known, a link is down for so many seconds (default 10 and 60): that of the OSS, that of the
client, or what passes between the two is dropped. Printed are the times of the first I/O and of the full rate, which is the
beginning of the first second with at least 80 % of the rate before; both counted from when the link was back, and from
when it broke. Row N12: at most 30 s and 60 s after it was back, no errors, no evictions. At the end every block is read again.
"""

import multiprocessing
import os
import statistics
import subprocess
import sys
import time

import faults
from faults import poll

fork = multiprocessing.get_context("fork")

WRITERS = 4
BLOCK = 256 << 10
BLOCKS = 64
# Seconds of load whose mean is the rate before.
BEFORE_SECONDS = 5.0
FULL = 0.8
FIRST_LIMIT, FULL_LIMIT = 30.0, 60.0
PATIENCE = 120
HEAD = 16


def block(number, version):
    """What a block holds."""
    return (number.to_bytes(8, "little") + version.to_bytes(8, "little")) * (BLOCK // HEAD)


class Writer:
    """One process that writes through, and notes when each block was done."""

    def __init__(self, path, times, done):
        self.path, self.times, self.done = path, times, done
        self.end = fork.RawValue("b", 0)
        self.count = fork.RawValue("Q", 0)
        self.error = fork.RawArray("c", 200)
        self.process = fork.Process(target=self.run)

    def run(self):
        """Writes until it is told to end."""
        fd = os.open(self.path, os.O_RDWR | os.O_DSYNC)
        try:
            while not self.end.value:
                number, version = self.count.value % BLOCKS, self.count.value // BLOCKS + 1
                os.pwrite(fd, block(number, version), number * BLOCK)
                self.count.value += 1
                with self.done.get_lock():
                    self.times[self.done.value % len(self.times)] = time.monotonic()
                    self.done.value += 1
        except OSError as failed:
            self.error.value = str(failed).encode()[:199]

    def verify(self):
        """Every block is what was written last."""
        with open(self.path, "rb") as file:
            for number in range(min(BLOCKS, self.count.value)):
                version = (self.count.value - 1 - number) // BLOCKS + 1
                file.seek(number * BLOCK)
                if file.read(BLOCK) != block(number, version):
                    raise ValueError(f"{self.path}: block {number} is not what was written last")


class Load:
    """All writers, and the times of all that they have done."""

    def __init__(self, top):
        self.times, self.done = fork.RawArray("d", 1 << 20), fork.Value("Q", 0)
        self.writers = []
        for n in range(WRITERS):
            path = f"{top}/writer{n}"
            lfs = os.path.join(os.path.dirname(os.path.abspath(sys.argv[1])), "lfs")
            command = [lfs, "setstripe", "-o", "0,1", "-S", "64k", path]
            # The MDT hears of OSTs one after the other.
            poll(lambda: subprocess.run(command, stdin=subprocess.DEVNULL).returncode == 0, 30, "a file on two OSTs")
            self.writers.append(Writer(path, self.times, self.done))
        for writer in self.writers:
            writer.process.start()

    def since(self, start):
        """Times of what was done after `start`."""
        with self.done.get_lock():
            return [at for at in self.times[:min(self.done.value, len(self.times))] if at > start]

    def errors(self):
        """What writers could not do."""
        return [writer.error.value.decode() for writer in self.writers if writer.error.value]

    def stop(self):
        """Ends all; they have to, since nothing holds them up any more."""
        for writer in self.writers:
            writer.end.value = 1
        for writer in self.writers:
            writer.process.join(PATIENCE)
            if writer.process.is_alive():
                writer.process.kill()
                raise TimeoutError(f"{writer.path}: the writer hangs")


def full_from(times, rate):
    """Beginning of the first second with enough of the rate: it begins with something that was done. None if there is none yet."""
    need, last = max(1, int(FULL * rate)), time.monotonic()
    for n, start in enumerate(times):
        if start + 1 > last:
            return None
        if n + need <= len(times) and times[n + need - 1] < start + 1:
            return start
    return None


def pull(cluster, name, seconds):
    """The link is down for a while. Returns when it broke, and when it was back."""
    broke = time.monotonic()
    if name == "oss1 - client dropped":
        cluster.net.cut("cla", "oss1")
        time.sleep(seconds)
        cluster.net.mend("cla")
    else:
        node = {"link of oss1 down": "oss1", "link of the client down": "cla"}[name]
        cluster.net.link(node, "down")
        time.sleep(seconds)
        cluster.net.link(node, "up")
    return broke, time.monotonic()


def one(cluster, load, name, seconds):
    """One row. Returns what is wrong."""
    begin = time.monotonic()
    poll(lambda: load.since(begin) and time.monotonic() > begin + BEFORE_SECONDS, PATIENCE, "the load runs")
    rate = len(load.since(begin)) / BEFORE_SECONDS
    broke, back = pull(cluster, name, seconds)
    during = [at for at in load.since(broke + 1.0) if at < back]
    poll(lambda: load.since(back), PATIENCE, "the first I/O")
    poll(lambda: full_from(sorted(load.since(back)), rate) is not None, PATIENCE, "the full rate")
    times = sorted(load.since(back))
    first, full = times[0], full_from(times, rate)
    seconds_after = [sum(1 for at in times if back + n <= at < back + n + 1) for n in range(4)]
    evicted, errors = cluster.evictions(), load.errors()
    wrong = [what for what, is_so in (("errors", errors), ("evictions", evicted), ("first I/O", first - back > FIRST_LIMIT),
                                      ("full I/O", full - back > FULL_LIMIT)) if is_so]
    print(f"{name:<25} {seconds:4.0f} s  {rate:6.0f}/s  {first - back:6.2f} s {full - back:6.2f} s   "
          f"{first - broke:7.2f} s {full - broke:7.2f} s   {len(errors):3} {len(evicted):4}   "
          f"{'FAIL: ' + ', '.join(wrong) if wrong else 'ok'}   done meanwhile {len(during)}, then in each second {seconds_after}",
          flush=True)
    for note in errors + evicted:
        print(f"    {note}")
    return wrong


def main():
    """All rows."""
    weft, work, ident = sys.argv[1:4]
    times = [float(text) for text in sys.argv[4:]] or [10.0, 60.0]
    net = faults.Net(ident)
    cluster = faults.Cluster(os.path.abspath(weft), work, net)
    wrong, load = [], None
    try:
        net.make()
        cluster.format()
        for node in faults.TARGETS:
            cluster.serve(node)
        cluster.mount("cla")
        load = Load(cluster.top("cla"))
        print("                                  rate     after it was back    after it broke         errors\n"
              "what                        for   before   first    full I/O    first    full I/O     evictions")
        for seconds in times:
            for name in ("link of oss1 down", "link of the client down", "oss1 - client dropped"):
                wrong += one(cluster, load, name, seconds)
        load.stop()
        for writer in load.writers:
            writer.verify()
        print(f"{statistics.fsum(writer.count.value for writer in load.writers):.0f} blocks of {BLOCK >> 10} KiB were written, all that is "
              "left of them was read again")
    finally:
        for writer in load.writers if load else ():
            writer.end.value = 1
        cluster.stop()
        net.remove()
        faults.keep_logs(cluster)
    return not wrong


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
