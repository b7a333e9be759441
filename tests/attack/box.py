"""What all attacks share: the box they run in, the count of what they tried, and the file systems they attack.

An attack runs in mount, network and process namespaces of its own, with directories of its own in the place of /etc/weft and
/var/log/weft. Whatever ends it, a signal or an error, its processes, mounts, networks and loop devices end with the
namespaces, and the process outside removes the directory. So attacks leave nothing behind and see nothing of others.

Attacks know weft from its documentation only.
"""

import argparse
import ctypes
import faulthandler
import fcntl
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BASE = os.environ.get("SCRATCH", "/var/tmp")
PREFIX = "weft-attack."
# Directories that weft writes outside of those which it is given.
OWN = {"/etc/weft": "etc", "/var/log/weft": "log", "/run/weft": "run"}
# No command may take longer than this without being a failure of its own.
COMMAND_SECONDS = 90
# Lines of failures that are printed.
SHOWN = 25
PR_SET_PDEATHSIG = 1

libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent():
    """Has the kernel end this process when the one that started it ends."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


# ---- Outside: the namespaces, and what is removed afterwards -----------------------------------------------------


def is_locked(directory):
    """Whether the attack to which a directory belongs still runs."""
    try:
        descriptor = os.open(os.path.join(directory, ".lock"), os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)


def remove_memory_groups(name):
    """Removes the memory groups that begin with a name and have no process."""
    for parent in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup"):
        if os.path.isdir(parent):
            for entry in os.listdir(parent):
                if entry.startswith(name):
                    try:
                        os.rmdir(os.path.join(parent, entry))
                    except OSError as error:
                        print(f"{parent}/{entry} stays: {error}", file=sys.stderr)


def sweep():
    """Removes what attacks left that were killed together with the process outside."""
    for entry in os.listdir(BASE):
        directory = os.path.join(BASE, entry)
        # One that has just been made has no lock yet.
        if entry.startswith(PREFIX) and time.time() - os.stat(directory).st_mtime > 60 and not is_locked(directory):
            shutil.rmtree(directory, ignore_errors=True)


def outside():
    """Runs this program again in the box, and cleans up."""
    if os.geteuid() != 0:
        sys.exit("an attack makes namespaces and mounts: run it as root")
    sweep()
    work = tempfile.mkdtemp(prefix=PREFIX, dir=BASE)
    os.chmod(work, 0o755)
    lock = os.open(os.path.join(work, ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    made = [path for path in OWN if not os.path.isdir(path)]
    for path in made:
        os.makedirs(path)
    environment = dict(os.environ, WEFT_ATTACK_WORK=work, PYTHONDONTWRITEBYTECODE="1")
    command = ["unshare", "--mount", "--propagation", "private", "--net", "--pid", "--fork", "--kill-child", "--mount-proc",
               sys.executable, *sys.argv]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    child = None
    try:
        child = subprocess.Popen(command, env=environment, preexec_fn=die_with_parent)
        status = child.wait()
    except KeyboardInterrupt:
        status = 130
    finally:
        if child and child.poll() is None:
            child.kill()
            child.wait()
        # The last mounts go some moments after the last process.
        for _ in range(300):
            shutil.rmtree(work, ignore_errors=True)
            if not os.path.exists(work):
                break
            time.sleep(0.1)
        remove_memory_groups(os.path.basename(work))
        for path in made:
            try:
                os.rmdir(path)
            except OSError:
                pass
    sys.exit(status if status >= 0 else 128 - status)


def first_process():
    """Process 1 of the box: waits for whoever loses its parent, until the attack itself has ended."""
    attack = os.fork()
    if attack == 0:
        return
    while True:
        pid, status = os.wait()
        if pid == attack:
            sys.stdout.flush()
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


# ---- Inside ------------------------------------------------------------------------------------------------------


class Box:
    """An attack that runs: its directory, its random numbers, its end."""

    def __init__(self, name, options):
        self.name = name
        self.options = options
        self.work = os.environ["WEFT_ATTACK_WORK"]
        self.random = random.Random(options.seed)
        self.weft = options.weft
        self.lfs = os.path.join(os.path.dirname(self.weft), "lfs")
        self.lctl = os.path.join(os.path.dirname(self.weft), "lctl")
        self.tries = 0
        self.failures = []
        self.notes = []
        self.lock = threading.Lock()
        self.began = time.monotonic()
        self.deadline = self.began + options.seconds
        for path, own in OWN.items():
            os.makedirs(os.path.join(self.work, own), exist_ok=True)
            run("mount", "--bind", os.path.join(self.work, own), path)
        run("ip", "link", "set", "lo", "up")

    def path(self, *names):
        """A path in the attack's own directory."""
        return os.path.join(self.work, *names)

    def time_is_up(self):
        """Whether the time that was given is used up."""
        return time.monotonic() >= self.deadline

    def tried(self, count=1):
        """Counts tries."""
        with self.lock:
            self.tries += count

    def fail(self, text):
        """Counts a failure; it is printed at the end."""
        with self.lock:
            self.failures.append(text)
            if len(self.failures) <= SHOWN:
                print(f"FAIL  {self.name}: {text}", flush=True)

    def note(self, text):
        """Something to be told with the count."""
        self.notes.append(text)

    def say(self, text):
        """A line for who watches."""
        print(f"      {self.name} {time.monotonic() - self.began:6.1f} s: {text}", flush=True)

    def finish(self):
        """Prints the one line that counts, leaves it for the summary, and ends everything."""
        what = "; ".join(self.notes)
        print(f"{self.name}: {self.tries} tries, {len(self.failures)} failures, {what}"
              f" (seed {self.options.seed}, {time.monotonic() - self.began:.0f} s)", flush=True)
        if os.environ.get("ATTACK_RESULTS"):
            with open(os.environ["ATTACK_RESULTS"], "a", encoding="utf-8") as results:
                row = [self.name, self.tries, len(self.failures), what, self.failures[:3], self.options.seed]
                results.write(json.dumps(row) + "\n")
        sys.stdout.flush()
        end_all()
        # Threads may wait in a mount for ever.
        os._exit(1 if self.failures or not self.tries else 0)


def end_all():
    """Ends every process of the box but the first and this one: threads that wait in a mount come back with its server's death."""
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) not in (1, os.getpid()):
            try:
                os.kill(int(entry), signal.SIGKILL)
            except ProcessLookupError:
                pass


def watch(box, seconds):
    """An attack that does not end is a failure, and ends."""
    def wait():
        time.sleep(seconds)
        faulthandler.dump_traceback(all_threads=True)
        box.fail(f"the attack itself has not ended after {seconds} s: something waits for ever")
        box.finish()
    threading.Thread(target=wait, daemon=True).start()


def attack(name, body, trials, seconds, arguments=None):
    """The main program of an attack: `body(box)` counts into the box. Trials and seconds are what is done by default."""
    parser = argparse.ArgumentParser(prog=f"{name}.py", description=sys.modules["__main__"].__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=trials, help=f"how often at most ({trials})")
    parser.add_argument("--seconds", type=int, default=seconds, help=f"no new trial is begun after so long ({seconds})")
    parser.add_argument("--seed", type=int, default=None, help="of all that is drawn; printed with the result")
    parser.add_argument("--weft", default=os.environ.get("WEFT", os.path.join(TOP, "bin/weft")))
    if arguments:
        arguments(parser)
    options = parser.parse_args()
    options.weft = os.path.abspath(options.weft)
    if options.seed is None:
        options.seed = int(os.environ.get("ATTACK_SEED", 0)) or random.randrange(1, 1 << 31)
        sys.argv += ["--seed", str(options.seed)]
    if "WEFT_ATTACK_WORK" not in os.environ:
        if not os.access(options.weft, os.X_OK):
            sys.exit(f"{options.weft} is missing: make build, or --weft FILE")
        outside()
    first_process()
    box = Box(name, options)
    watch(box, options.seconds + 240)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    print(f"{name}: seed {options.seed}, at most {options.trials} trials in {options.seconds} s", flush=True)
    try:
        body(box)
    except BaseException as error:  # whatever it is, it has to be counted and to end the box
        import traceback
        traceback.print_exc()
        box.fail(f"the attack ended early: {type(error).__name__}: {error}")
    box.finish()


# ---- Processes ---------------------------------------------------------------------------------------------------


def run(*command, **named):
    """Runs a command that has to succeed; its output is in the error if it does not."""
    done = attempt(*command, **named)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: status {done.returncode}: {(done.stderr + done.stdout).strip()[-600:]}")
    return done.stdout


def attempt(*command, seconds=COMMAND_SECONDS, **named):
    """Runs a command. One that takes too long is ended, and has the status 124."""
    named.setdefault("stdin", subprocess.DEVNULL)
    # Not through pipes: a process that stays behind would keep them open.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = subprocess.Popen([str(part) for part in command], stdout=out, stderr=err, start_new_session=True, **named)
        try:
            status = child.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            status = 124
            child.kill()
            try:
                child.wait(timeout=5)
            except subprocess.TimeoutExpired:
                pass
        out.seek(0)
        err.seek(0)
        texts = [stream.read().decode(errors="replace") for stream in (out, err)]
    return subprocess.CompletedProcess(command, status, texts[0], texts[1])


def poll(condition, seconds, what, pause=0.02):
    """Waits until something is so."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(pause)


def alive(pid):
    """Whether anything is left of a process: one whose threads have not all ended still has its sockets."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == 0
    except ChildProcessError:
        # Not this one's child: process 1 waits for it.
        return os.path.exists(f"/proc/{pid}")


def kill(pid, number=signal.SIGKILL):
    """Kills a process, and waits for its end."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
    if number in (signal.SIGKILL, signal.SIGTERM):
        poll(lambda: not alive(pid), 60, f"the end of process {pid}")


def mounted(path):
    """Whether something is mounted at a path; asks nobody who may not answer."""
    with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as mounts:
        return any(line.split(" ")[1] == path for line in mounts)


class Bounded:
    """Calls a function in a thread of its own, and does not wait for ever: `Bounded(f, 10)()`; late is an error."""

    def __init__(self, function, seconds, what="it"):
        self.function, self.seconds, self.what = function, seconds, what

    def __call__(self, *arguments):
        result = []

        def call():
            try:
                result.append((self.function(*arguments), None))
            except BaseException as error:  # given to the caller
                result.append((None, error))
        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        thread.join(self.seconds)
        if not result:
            raise TimeoutError(f"{self.what} does not come back within {self.seconds} s")
        value, error = result[0]
        if error:
            raise error
        return value
