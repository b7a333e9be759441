#!/usr/bin/env python3
"""`weft policy` on a real mount: exactly the files that `lfs find` finds are moved, whoever is killed meanwhile; their content and times stay; rates
and thresholds hold; a purge removes what still is one of those, and nothing that has taken its name.

Usage: tests/policy.py WEFT FSNAME MOUNT OTHER [OWN_DISK]; as root, where the MGS is reached; the file system has the OSTs 0 to 3, and MOUNT and
OTHER are two mounts of it. OWN_DISK: OST 3 has a disk to itself, so that its threshold can be tested. POLICY_FILES: files of the first part, of
which three tenths match. POLICY_PARTS: only these functions. Makes directories and pools of its own, and removes them.
"""

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time

WEFT, FS, MOUNT, OTHER = sys.argv[1:5]
OWN_DISK = len(sys.argv) > 5
FILES = int(os.environ.get("POLICY_FILES", "600"))
LFS, LCTL = (os.path.join(os.path.dirname(WEFT), name) for name in ("lfs", "lctl"))
ROOT = os.path.join(MOUNT, "policy-dir")
USER = 12345
NOW = time.time()
HOUR = 3600
rng = random.Random(7)


def run(*words, status=0, **more):
    done = subprocess.run(words, capture_output=True, text=True, timeout=3600, **more)
    if done.returncode != status:
        sys.exit(f"{words}: status {done.returncode}, not {status}: {done.stdout[-2000:]} {done.stderr[-2000:]}")
    return done


def expect(what, found, wanted):
    if found != wanted:
        if isinstance(found, set):
            found, wanted = f"{len(found)} with {sorted(found - wanted)[:5]}", f"{len(wanted)} with {sorted(wanted - found)[:5]}"
        sys.exit(f"{what}: {found!r}, not {wanted!r}")


def near(what, found, wanted, part=0.1):
    print(f"{what}: {found:.3f}, wanted {wanted:.3f}", flush=True)
    if not wanted * (1 - part) <= found <= wanted * (1 + part):
        sys.exit(f"{what}: {found} is not within {part:.0%} of {wanted}")


def find(*words):
    return set(run(LFS, "find", *words).stdout.splitlines())


def policy_file(text):
    path = f"{os.environ.get('TMPDIR', '/tmp')}/policy-{os.getpid()}.toml"
    with open(path, "w") as file:
        file.write(text)
    return path


def policy(text, where, *options, status=0, **more):
    """Runs a policy; what it reports of its rules."""
    done = run(WEFT, "policy", "run", policy_file(text), where, "--json", *options, status=status, **more)
    report = json.loads(done.stdout.splitlines()[-1])["rules"]
    print(report, flush=True)
    return report


def listed(text, where):
    return run(WEFT, "policy", "run", policy_file(text), where, "--dry-run").stdout.splitlines()


def content(name, size):
    block = hashlib.sha512(name.encode()).digest()
    return (block * (size // len(block) + 1))[:size]


def directory(name, pool):
    path = os.path.join(ROOT, name)
    os.makedirs(path)
    run(LFS, "setstripe", "-p", pool, "-c", "1", path)
    return path


def make(path, size, atime=NOW, mtime=NOW, uid=0):
    with open(path, "wb") as file:
        file.write(content(os.path.basename(path), size))
    os.chown(path, uid, uid)
    os.utime(path, (atime, mtime))


def stays(path, size, times):
    """Times first: reading changes one."""
    of = os.stat(path)
    expect(f"times of {path}", (of.st_atime_ns, of.st_mtime_ns, of.st_size), (*times, size))
    with open(path, "rb") as file:
        expect(f"content of {path}", hashlib.md5(file.read()).digest(), hashlib.md5(content(os.path.basename(path), size)).digest())


class Writer(threading.Thread):
    """Appends records to a file, and changes them where they are, until it is told."""

    def __init__(self, path):
        super().__init__()
        self.file = os.open(path, os.O_WRONLY)
        self.records, self.told = [], threading.Event()

    def run(self):
        while not self.told.is_set():
            number = len(self.records)
            self.records.append(number)
            os.pwrite(self.file, f"{number:4095}\n".encode(), number << 12)
            old = rng.randrange(number + 1)
            self.records[old] = number
            os.pwrite(self.file, f"{number:4095}\n".encode(), old << 12)
            if number % 16 == 0:
                os.fsync(self.file)
        os.close(self.file)

    def expected(self):
        return "".join(f"{number:4095}\n" for number in self.records)


MOVE = """
[[rule]]
name = "cold to disk"
below = "exact"
files = "-pool pflash -amin +60 -user 12345 ! -name 'keep*'"
action = "migrate"
to = "-p pdisk -c 1"
[rule.limits]
"""


def exact():
    """Moves exactly what matches, although it is killed."""
    top = directory("exact", "pflash")
    for n in range(FILES // 200 + 1):
        os.mkdir(f"{top}/d{n}")
    made, cold = {}, set()
    for n in range(FILES):
        name = f"{top}/d{n // 200}/f{n}"
        matches = n % 10 in (1, 4, 8)
        size = rng.choice((0, 1, 4096, 20_000, 70_000))
        old, uid = (3 * HOUR, USER) if matches else rng.choice(((3 * HOUR, 0), (0, USER), (HOUR / 2, USER)))
        make(name, size, NOW - old, NOW - old - 1000, uid)
        made[name] = (size, os.stat(name))
        if matches:
            cold.add(name)
    make(f"{top}/keep me", 9, NOW - 3 * HOUR, NOW, USER)
    make(f"{top}/written", 0, NOW - 3 * HOUR, NOW, USER)
    run(WEFT, "sync", MOUNT)
    words = (ROOT + "/exact", "-pool", "pflash", "-amin", "+60", "-user", str(USER), "!", "-name", "keep*")
    found = find(*words, "-type", "f")
    expect("lfs find", found, cold | {f"{top}/written"})
    paths = listed(MOVE, ROOT)
    expect("a dry run", (set(paths), len(paths)), (found, len(found)))
    expect("a dry run changes nothing", find(ROOT, "-pool", "pdisk"), set())
    writer = Writer(f"{OTHER}/policy-dir/exact/written")
    writer.start()
    moved = 0
    for part in range(5):
        # At an even pace, so that each of them is killed in between.
        text = MOVE + f"files_per_second = {max(8, len(found) // 40)}\nat_once = 3\n"
        mover = subprocess.Popen([WEFT, "policy", "run", policy_file(text), ROOT], stdout=subprocess.PIPE, text=True)
        end = time.time() + 60
        while len(find(ROOT, "-pool", "pdisk")) <= moved and time.time() < end:
            time.sleep(0.2)
        time.sleep(rng.random())
        if part == 2:
            # Told, it finishes what is under way, and says so.
            mover.terminate()
            said, _ = mover.communicate(timeout=10)
            expect("the end of one that is told", (mover.returncode, said.endswith("; it was stopped\n")), (1, True))
        mover.kill()
        mover.wait()
        now = find(ROOT, "-pool", "pdisk")
        print(f"killed after {len(now) - moved} more files", flush=True)
        if not now <= found or len(now) <= moved or len(now) >= len(found):
            sys.exit(f"after kill {part}: {len(now)} of {len(found)} are moved, {sorted(now - found)[:5]} should not be")
        moved = len(now)
    [report] = policy(MOVE, ROOT)
    # One may have been under way, and have been moved after all.
    if not len(found) - moved - 3 <= report["done"] <= len(found) - moved or report["failed"]:
        sys.exit(f"{moved} of {len(found)} were moved, and then {report}")
    writer.told.set()
    writer.join()
    expect("what is in the pool", find(ROOT, "-pool", "pdisk"), found)
    expect("what is left", find(*words), set())
    with open(f"{top}/written") as file:
        expect("what was written meanwhile", file.read() == writer.expected(), True)
    print(f"{len(writer.records)} records were written meanwhile", flush=True)
    for name, (size, of) in made.items():
        stays(name, size, (of.st_atime_ns, of.st_mtime_ns))
    [report] = policy(MOVE, ROOT)
    expect("nothing twice", (report["matched"], report["done"]), (0, 0))


def already_there():
    """A rule that says nothing of where files lie moves them once."""
    top = directory("already_there", "pflash")
    for n in range(20):
        make(f"{top}/f{n}", 5000)
    text = '[[rule]]\nname = "all"\nfiles = "-name f*"\naction = "migrate"\nto = "-p pdisk -c 4"\norder = "size"\n'
    [report] = policy(text, top)
    expect("the first time", (report["matched"], report["done"], report["there"]), (20, 20, 0))
    [report] = policy(text, top)
    # The pool has two OSTs: what is asked for cannot be had.
    expect("the second time", (report["matched"], report["done"], report["there"]), (20, 0, 20))


def rates():
    top = directory("rates", "pflash")
    for n in range(120):
        make(f"{top}/f{n}", 64 << 10)
    rule = '[[rule]]\nname = "r"\nfiles = "-pool POOL"\naction = "migrate"\nto = "TO -c 1"\n[limits]\nat_once = 4\n'
    text = rule.replace("POOL", "pflash").replace("TO", "-p pdisk") + "files_per_second = 15\n"
    [report] = policy(text, top)
    expect("files", (report["matched"], report["done"]), (120, 120))
    near("files per second", 119 / report["seconds"], 15)
    text = rule.replace("POOL", "pdisk").replace("TO", "-p pflash") + 'bytes_per_second = "1M"\n'
    [report] = policy(text, top)
    expect("files", (report["matched"], report["done"], report["bytes"]), (120, 120, 120 << 16))
    near("bytes per second", 119 * 65536 / report["seconds"], 1 << 20)


def rights():
    """Only what the user may do is done."""
    top = directory("rights", "pflash")
    os.chmod(top, 0o777)
    os.mkdir(f"{top}/hidden", 0o700)
    make(f"{top}/hidden/f", 10, uid=USER)
    for n in range(4):
        make(f"{top}/f{n}", 10, uid=USER if n < 3 else 0)
    text = '[[rule]]\nname = "r"\nfiles = "-type f"\naction = "migrate"\nto = "-p pdisk"\n'
    path = policy_file(text)
    done = subprocess.run([WEFT, "policy", "run", path, top], capture_output=True, text=True, user=USER, group=USER, extra_groups=[])
    expect("status", done.returncode, 1)
    print(done.stdout, done.stderr, flush=True)
    expect("what its owner moves", find(top, "-pool", "pdisk"), {f"{top}/f{n}" for n in range(3)})
    for line in (f"r: {top}/hidden: Permission denied", f"r: {top}/f3: "):
        expect(line, line in done.stderr, True)


PURGE = """
[[rule]]
name = "old"
files = "-name 'old*' -mtime +30"
action = "purge"
order = "mtime"
[limits]
files_per_second = 10
at_once = 1
"""


def purge():
    """Removes what still is one of those, and nothing that has its name."""
    top = directory("purge", "pflash")
    os.makedirs(f"{top}/old dir/sub")
    month = 31 * 24 * HOUR
    for n in range(30):
        make(f"{top}/old dir/old{n}", 100, NOW, NOW - 2 * month - n)
    make(f"{top}/old dir/new", 100, NOW, NOW - 2 * month)
    make(f"{top}/old young", 100, NOW, NOW - month / 2)
    os.symlink("new", f"{top}/old dir/old link")
    os.utime(f"{top}/old dir/old link", (NOW, NOW - 2 * month - 1), follow_symlinks=False)
    # They have their turn last, so there is time to change them.
    last = [f"{top}/sub{n}/old" for n in range(4)]
    for name in last:
        os.mkdir(os.path.dirname(name))
        make(name, 100, NOW, NOW - month)
    run(WEFT, "sync", MOUNT)
    found = find(top, "-name", "old*", "-mtime", "+30", "!", "-type", "d")
    paths = listed(PURGE, top)
    expect("a dry run", (set(paths), len(paths)), (found, 35))
    expect("the order", set(paths[-4:]), set(last))
    touched = f"{top}/old dir/old7"
    os.utime(touched)
    done = []
    purger = threading.Thread(target=lambda: done.extend(policy(PURGE, top)))
    purger.start()
    time.sleep(1.5)
    os.utime(last[0])
    os.rename(last[1], f"{top}/away")
    make(last[1], 100, NOW, NOW - 3 * month)
    os.rename(f"{top}/sub2", f"{top}/elsewhere")
    os.symlink("elsewhere", f"{top}/sub2")
    purger.join()
    [report] = done
    expect("counts", tuple(report[key] for key in ("matched", "done", "skipped", "failed")), (34, 31, 3, 0))
    expect("what is left", find(top, "!", "-type", "d", "-o", "-name", "old dir"), {
        touched, last[0], last[1], f"{top}/away", f"{top}/sub2", f"{top}/elsewhere/old",
        f"{top}/old dir", f"{top}/old dir/new", f"{top}/old young"})
    [report] = policy('[[rule]]\nname = "d"\nfiles = "-type d -empty -name s*"\naction = "purge"\n', top)
    expect("directories", (report["done"], os.path.exists(f"{top}/old dir/sub"), os.path.exists(f"{top}/sub0")), (2, False, True))


def used(pool):
    """Used and available KiB."""
    rows = [line.split() for line in run(LFS, "df", "-p", pool, MOUNT).stdout.splitlines() if line.startswith("filesystem_summary")]
    return int(rows[0][2]), int(rows[0][3])


def share(pool):
    taken, available = used(pool)
    return taken / (taken + available)


def threshold():
    """Watches, begins above, ends at the other mark, and takes what was accessed longest ago."""
    top = directory("threshold", "pown")
    for n in range(80):
        make(f"{top}/f{n}", 4 << 20, NOW - n * 60, NOW)
    run(WEFT, "sync", MOUNT)
    full = share("pown")
    above, until = full * 100 - 1, full * 100 - 11
    print(f"{full:.4f} full, until {until:.1f} %", flush=True)
    text = f"""
[[rule]]
name = "keep room"
files = "-true"
action = "migrate"
to = "-p pflash -c 1"
order = "atime"
when = {{ pool = "pown", above = "ABOVE", until = "{until:.1f}%" }}
"""
    [report] = policy(text.replace("ABOVE", "99.9%"), top)
    expect("not yet", (report["matched"], report["state"]), (0, "not_needed"))
    first = listed(text.replace("ABOVE", f"{above:.1f}%"), top)
    path = policy_file(text.replace("ABOVE", f"{above:.1f}%"))
    watcher = subprocess.Popen([WEFT, "policy", "watch", path, ROOT + "/threshold"], stdout=subprocess.PIPE, text=True)
    end = time.time() + 60
    line = watcher.stdout.readline()
    print(line, time.time() - end + 60, flush=True)
    moved = find(top, "-pool", "pflash")
    near("how full it is", share("pown") * 100, until, 0.03)
    oldest = {f"{top}/f{79 - n}" for n in range(len(moved))}
    expect("the oldest were moved", moved, oldest)
    expect("a dry run says which", abs(len(first) - len(moved)) <= 2 and set(first) <= {f"{top}/f{79 - n}" for n in range(len(first))}, True)
    # Some more are written, and it begins again by itself.
    for n in range(40):
        make(f"{top}/g{n}", 4 << 20, NOW, NOW)
    run(WEFT, "sync", MOUNT)
    print(watcher.stdout.readline(), flush=True)
    near("how full it is", share("pown") * 100, until, 0.03)
    watcher.terminate()
    left = text.replace("ABOVE", "2%").replace(f"{until:.1f}%", "1%").replace("-true", "-name nothing")
    [report] = policy(left, top)
    expect("nothing more", (report["state"], report["done"]), ("still_full", 0))
    expect("status of the watcher", watcher.wait(timeout=30), 0)


def full():
    """Where there is no room a rule ends, and the files stay where they are."""
    top = directory("full", "pflash")
    size = 48 << 20
    count = (sum(used("pown")) << 10) // size + 4
    for n in range(count):
        make(f"{top}/f{n}", size, NOW, NOW - 500 - n)
    times = {f"{top}/f{n}": os.stat(f"{top}/f{n}") for n in range(count)}
    text = '[[rule]]\nname = "r"\nfiles = "-pool pflash"\naction = "migrate"\nto = "-p pown"\norder = "mtime"\n[limits]\nat_once = 2\n'
    [report] = policy(text, top, status=1)
    expect("it ended", (report["matched"], 1 <= report["failed"] <= 2, report["state"]), (count, True, "stuck"))
    expect("why", report["troubles"][0]["why"], "No space left on device")
    moved = find(top, "-pool", "pown")
    expect("what was moved", len(moved), report["done"])
    expect("the oldest first", moved <= {f"{top}/f{n}" for n in range(count - len(moved) - 2, count)}, True)
    for name, of in times.items():
        stays(name, size, (of.st_atime_ns, of.st_mtime_ns))


def words():
    """What is wrong is said in a sentence, with its line."""
    path = policy_file(MOVE)
    said = run(WEFT, "policy", "check", path).stdout
    expect("a check", said.startswith('1. cold to disk: moves the files below DIR/exact that match "-pool pflash'), True)
    wrong = policy_file(MOVE.replace("-user", "-usr"))
    for command in (("check", wrong), ("run", wrong, ROOT), ("watch", wrong, ROOT)):
        done = run(WEFT, "policy", *command, status=2)
        expect("a sentence", done.stderr, f"weft: {wrong}, line 5: files: unknown test or action '-usr'\n")
    path = policy_file(MOVE)
    for command, complaint in (
        (("run", path, ROOT, "--rule", "x"), 'has no rule "x"'),
        (("watch", path, ROOT), "says neither every nor when"),
        (("run", "/nonexistent", ROOT), "cannot be read: No such file"),
    ):
        expect(complaint, complaint in run(WEFT, "policy", *command, status=2).stderr, True)
    text = MOVE.replace('below = "exact"', "")
    for where, complaint in (("/tmp", "not in a weft file system"), (f"{ROOT}/none", "No such file")):
        expect(where, complaint in policy(text, where, status=1)[0]["troubles"][0]["why"], True)
    outside = policy(MOVE.replace('"exact"', '"/tmp"'), ROOT, status=1)
    expect("outside", "does not lie below" in outside[0]["troubles"][0]["why"], True)
    os.symlink("/tmp", f"{ROOT}/link")
    outside = policy(MOVE.replace('"exact"', '"link"'), ROOT, status=1)
    expect("a link", outside[0]["troubles"], [{"path": f"{ROOT}/link", "why": "Not a directory"}])
    nowhere = policy(text.replace("-p pdisk", "-p nopool"), ROOT, status=1)
    expect("no pool", "there is no pool 'nopool'" in nowhere[0]["troubles"][0]["why"], True)


def main():
    pools = {"pflash": "0-1", "pdisk": "2-3", **({"pown": "3"} if OWN_DISK else {})}
    for pool, osts in pools.items():
        run(LCTL, "pool_new", f"{FS}.{pool}")
        run(LCTL, "pool_add", f"{FS}.{pool}", osts)
    os.mkdir(ROOT, 0o755)
    parts = [exact, words, already_there, rates, rights, purge] + ([threshold, full] if OWN_DISK else [])
    chosen = os.environ.get("POLICY_PARTS", "").split()
    for part in [part for part in parts if not chosen or part.__name__ in chosen]:
        start = time.time()
        part()
        shutil.rmtree(f"{ROOT}/{part.__name__}", ignore_errors=True)
        print(f"{part.__name__}: {time.time() - start:.1f} s", flush=True)
    shutil.rmtree(ROOT)
    for pool, osts in pools.items():
        run(LCTL, "pool_remove", f"{FS}.{pool}", osts)
        run(LCTL, "pool_destroy", f"{FS}.{pool}")
    os.remove(policy_file(""))


main()
