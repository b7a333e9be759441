#!/usr/bin/env python3
"""Kills ranks at random points while they write into their images; afterwards `weft rankfs gc` leaves nothing of them.

Usage: tests/rankfs.py WEFT DIRECTORY KILLS [UID]; as root. DIRECTORY is on the shared file system. With a UID the ranks are this user's, who
may not mount.
"""

import os
import random
import signal
import subprocess
import sys
import time

RANK = "import os\nfor n in range(10**9):\n  with open(f'f{n % 500}', 'w') as f:\n    f.write('x' * 5000)\n    n % 50 or os.fsync(f)\n"


def left(directory):
    """Loop devices and mounts of images of the directory, in the table of mounts of any process."""
    found = []
    for device in os.listdir("/sys/block"):
        try:
            with open(f"/sys/block/{device}/loop/backing_file") as file:
                if file.read().startswith(directory + "/"):
                    found.append(device)
        except OSError:
            continue
    return found


def main():
    weft, directory, kills = sys.argv[1], os.path.realpath(sys.argv[2]), int(sys.argv[3])
    user = {"user": int(sys.argv[4]), "group": int(sys.argv[4]), "extra_groups": []} if len(sys.argv) > 4 else {}
    seed = int(os.environ.get("SEED", time.time_ns() % 1_000_000))
    print("seed", seed)
    chance = random.Random(seed)
    found = 0
    for kill in range(kills):
        ranks = [
            subprocess.Popen(
                [weft, "rankfs", "run", "--dir", directory, "--size", "64M", "--job", f"k{kill}", "--rank", str(rank),
                 "--", "python3" if user else sys.executable, "-c", RANK],
                cwd="/", **user,
            )
            for rank in range(2)
        ]
        for rank in ranks:
            try:
                # The moment is drawn; it waits for nothing.
                rank.wait(timeout=chance.uniform(0, 0.4))
                raise AssertionError(f"a rank ended with {rank.returncode}")
            except subprocess.TimeoutExpired:
                rank.send_signal(chance.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)))
        statuses = [rank.wait() for rank in ranks]
        found += len(os.listdir(directory))
        answer = subprocess.run([weft, "rankfs", "gc", directory], capture_output=True, text=True)
        rest = (os.listdir(directory), left(directory))
        assert answer.returncode == 0 and rest == ([], []), (kill, statuses, answer, rest)
    print(f"{found} images were left over by {2 * kills} ranks, and removed")
    assert found, "nothing was ever left over: the kills come too late or too early"


main()
