"""SQLite on a weft mount: rollback journal and write-ahead log, two processes, integrity_check.

`sqlite.py DATABASE [SAME_DATABASE_ON_ANOTHER_MOUNT]`: with a second path the second process works through that mount.

The write-ahead log's index is memory that all its processes share through a mapping, so SQLite forbids it on network file
systems. Here a page that is mapped to be changed belongs to one mount at a time.
"""

import os
import sqlite3
import subprocess
import sys

ROWS = 1000
PASSES = 4


def fill(path, mode, mark):
    """Puts every row, a hundred to a transaction, and adds to a counter with each, as two tellers of a bank do."""
    db = sqlite3.connect(path, timeout=60, isolation_level=None)
    assert db.execute(f"pragma journal_mode={mode}").fetchone()[0].lower() == mode
    db.execute("pragma synchronous=full")
    for start in list(range(0, ROWS, 100)) * PASSES:
        db.execute("begin immediate")
        for k in range(start, start + 100):
            db.execute("insert or replace into t values (?, ?)", (k, bytes([k % 251]) * (k % 700)))
        db.execute("update counter set n = n + 1")
        db.execute("insert into log values (?, ?)", (mark, start))
        db.execute("commit")
    db.close()


def main():
    one = sys.argv[1]
    two = sys.argv[2] if len(sys.argv) > 2 else one
    for mode in ("delete", "truncate", "wal"):
        path = f"{one}.{mode}"
        db = sqlite3.connect(path)
        db.execute(f"pragma journal_mode={mode}")
        db.execute("create table t (k integer primary key, v blob)")
        db.execute("create table counter (n integer)")
        db.execute("create table log (mark text, start integer)")
        db.execute("insert into counter values (0)")
        db.commit()
        db.close()
        there = f"{two}.{mode}"
        other = subprocess.Popen([sys.executable, __file__, "fill", there, mode, "b"], stdout=subprocess.PIPE)
        other.stdout.readline()
        fill(path, mode, "a")
        assert other.wait() == 0, f"the second process failed with journal_mode={mode}"
        for name in (path, there):
            check(name, mode)
        os.unlink(path)
    print("ok")


def check(name, mode):
    """The database is sound, and no transaction is lost."""
    db = sqlite3.connect(name)
    assert db.execute("pragma integrity_check").fetchone()[0] == "ok", f"{name}: integrity_check with {mode}"
    assert db.execute("select count(*) from t").fetchone()[0] == ROWS
    for k, v in db.execute("select k, v from t"):
        assert v == bytes([k % 251]) * (k % 700)
    transactions = 2 * PASSES * ROWS // 100
    assert db.execute("select n from counter").fetchone()[0] == transactions, f"{name}: transactions with {mode}"
    assert db.execute("select count(*) from log").fetchone()[0] == transactions
    db.close()


if sys.argv[1] == "fill":
    print("begins", flush=True)
    fill(*sys.argv[2:5])
else:
    main()
