"""SQLite on a weft mount: rollback journal and write-ahead log, a second process, integrity_check."""

import os
import sqlite3
import subprocess
import sys

base = sys.argv[1]


def fill(path, mode, rows):
    db = sqlite3.connect(path, timeout=30)
    assert db.execute(f"pragma journal_mode={mode}").fetchone()[0].lower() == mode
    db.execute("pragma synchronous=full")
    db.execute("create table if not exists t (k integer primary key, v blob)")
    for start in range(0, rows, 100):
        with db:
            for k in range(start, start + 100):
                db.execute("insert or replace into t values (?, ?)", (k, bytes([k % 251]) * (k % 700)))
    db.close()


if len(sys.argv) > 3:
    fill(base, sys.argv[2], int(sys.argv[3]))
    sys.exit(0)

for mode in ("delete", "truncate", "wal"):
    path = f"{base}.{mode}"
    other = subprocess.Popen([sys.executable, __file__, path, mode, "1000"])
    fill(path, mode, 1000)
    assert other.wait() == 0, f"the second process failed with journal_mode={mode}"
    db = sqlite3.connect(path)
    assert db.execute("pragma integrity_check").fetchone()[0] == "ok"
    assert db.execute("select count(*) from t").fetchone()[0] == 1000
    for k, v in db.execute("select k, v from t"):
        assert v == bytes([k % 251]) * (k % 700)
    db.close()
    os.unlink(path)
print("ok")
