"""Two operations on the same names at the same moment, one on each mount, in all pairs.

What is right is not written down here: a local file system does the two operations one after the other, in both
orders, and what the mounts give has to be what it gave in one of them: both results, and the tree that is left.
"""

import itertools
import os
import random
import shutil
import stat
import tempfile

from .support import Peer, case, names, path, put, renameat2, result, RENAME_EXCHANGE, RENAME_NOREPLACE


def op_create(top):
    put(path(top, "x"), b"", os.O_CREAT | os.O_EXCL)


def op_open(top, opened=lambda: None):
    with open(os.open(path(top, "x"), os.O_WRONLY | os.O_NONBLOCK | os.O_CREAT, 0o644), "wb", buffering=0) as file:
        opened()
        file.write(b"w")


def op_truncate(top):
    put(path(top, "x"), b"", os.O_TRUNC)


def op_mkdir(top):
    os.mkdir(path(top, "x"))


def op_mkfifo(top):
    os.mkfifo(path(top, "x"))


def op_symlink(top):
    os.symlink("nowhere", path(top, "x"))


def op_link_to(top):
    os.link(path(top, "other"), path(top, "x"))


def op_link_from(top):
    os.link(path(top, "x"), path(top, "l"), follow_symlinks=False)


def op_unlink(top):
    os.unlink(path(top, "x"))


def op_rmdir(top):
    os.rmdir(path(top, "x"))


def op_rename_to(top):
    os.rename(path(top, "other"), path(top, "x"))


def op_rename_dir_to(top):
    os.rename(path(top, "dir"), path(top, "x"))


def op_rename_from(top):
    os.rename(path(top, "x"), path(top, "y"))


def op_rename_into(top):
    os.rename(path(top, "x"), path(top, "dir", "x"))


def op_rename_over(top):
    os.rename(path(top, "x"), path(top, "other"))


def op_exchange(top):
    renameat2(path(top, "x"), path(top, "other"), RENAME_EXCHANGE)


def op_noreplace(top):
    renameat2(path(top, "other"), path(top, "x"), RENAME_NOREPLACE)


def op_create_in(top):
    put(path(top, "x", "inside"), b"", os.O_CREAT | os.O_EXCL)


def op_chmod(top):
    os.chmod(path(top, "x"), 0o700)


def op_stat(top):
    return stat.filemode(os.lstat(path(top, "x")).st_mode)


def op_readdir(top):
    return tuple(names(top))


OPERATIONS = {name[3:]: function for name, function in sorted(globals().items()) if name.startswith("op_")}


def nothing(_):
    pass


def a_file(top):
    put(path(top, "x"), b"first")


def a_directory(top):
    os.mkdir(path(top, "x"))


def a_full_directory(top):
    os.mkdir(path(top, "x"))
    put(path(top, "x", "kept"))


def a_linked_file(top):
    put(path(top, "x"), b"first")
    os.link(path(top, "x"), path(top, "second"))


STATES = {function.__name__: function for function in (nothing, a_file, a_directory, a_full_directory, a_linked_file)}


def prepare(top, state):
    """The tree that the operations find."""
    os.mkdir(path(top, "dir"))
    put(path(top, "other"), b"other")
    STATES[state](top)


def tree(top):
    """What is there: for each name its kind, mode, size and links, and which names are one file."""
    found, first = {}, {}
    for directory, subs, files in sorted(os.walk(top)):
        for name in sorted(subs + files):
            full = path(directory, name)
            info = os.lstat(full)
            below = os.path.relpath(full, top)
            if stat.S_ISDIR(info.st_mode):
                found[below] = (stat.filemode(info.st_mode),)
            else:
                one = first.setdefault(info.st_ino, below)
                found[below] = (stat.filemode(info.st_mode), info.st_size, info.st_nlink, one)
    return found


class Local:
    """What a local file system does."""

    def __init__(self):
        self.known = {}

    def outcomes(self, one, two, state):
        """What (result of one, result of two, tree) may be."""
        if (one, two, state) not in self.known:
            first, second, left = self.outcome([two, one], state)
            self.known[one, two, state] = [self.outcome([one, two], state), (second, first, left)]
            # To open a file and to write to it are two operations: the other one may come between them.
            if one == "open":
                self.known[one, two, state].append(self.outcome_between(two, state))
            if two == "open":
                first, second, left = self.outcome_between(one, state)
                self.known[one, two, state].append((second, first, left))
        return self.known[one, two, state]

    def outcome_between(self, name, state):
        """(result of open, result of the operation, tree) of an operation between an open and its write."""
        def opened_first(top):
            between = []
            said = result(op_open, top, lambda: between.append(result(OPERATIONS[name], top)))
            # The file was not opened: nothing is between.
            return said, *(between or [result(OPERATIONS[name], top)])

        return self.in_tree(state, opened_first)

    def alone(self, one, state):
        """(result, tree) of one operation."""
        if (one, state) not in self.known:
            self.known[one, state] = self.outcome([one], state)
        return self.known[one, state]

    def outcome(self, operations, state):
        """(result of each operation, tree) of operations that are done one after the other."""
        return self.in_tree(state, lambda top: tuple(result(OPERATIONS[name], top) for name in operations))

    def in_tree(self, state, operate):
        """What `operate` gives, and the tree that it leaves."""
        top = tempfile.mkdtemp(prefix="coherence.", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        try:
            prepare(top, state)
            said = operate(top)
            return (*said, tree(top))
        finally:
            shutil.rmtree(top)


# A kernel looks up one name after the other. Where an operation has two, these results come from names as they were
# at two moments, with the tree that the other operation alone leaves.
MOVES = {"rename_to", "rename_dir_to", "rename_from", "rename_into", "rename_over", "exchange", "noreplace"}


def by_two_lookups(one, other):
    """Results that `one` may have beside `other`, but for those of doing one after the other."""
    if one in MOVES and other in MOVES:
        # Both names are one file by then (None): the kernel has nothing to do, and asks no file system. Or the
        # directory that is to take x was found, and has become x (EINVAL): a local file system says so, too.
        return {None, "EEXIST"} if one == "noreplace" else {None, "EINVAL"} if one == "rename_into" else {None}
    # The file was found, and replaced before it got its link; or it was found by its old name, and has moved to the
    # new one: a local file system says so, too.
    if one == "link_from" and other in MOVES:
        return {"ENOENT"}
    if one == "link_to" and other in MOVES:
        return {"EEXIST", "ENOENT"} if other == "rename_over" else {"EEXIST"}
    return set()


def agrees(got, local, one, two, state):
    """Whether an outcome is one that a local file system gives. A listing is no single moment: it may have both names of a rename, or
    none."""
    allowed = local.outcomes(one, two, state)
    if got in allowed:
        return True
    for slot, (name, other) in enumerate(((one, two), (two, one))):
        if got[slot] in by_two_lookups(name, other) and (got[1 - slot], got[2]) == local.alone(other, state):
            return True
    if "readdir" not in (one, two):
        return False
    listed = [slot for slot, name in enumerate((one, two)) if name == "readdir"]
    for want in allowed:
        if got[2] == want[2] and all(got[slot] == want[slot] for slot in (0, 1) if slot not in listed):
            always = set(allowed[0][listed[0]]) & set(allowed[1][listed[0]])
            ever = set(allowed[0][listed[0]]) | set(allowed[1][listed[0]])
            if all(len(set(got[slot])) == len(got[slot]) and always <= set(got[slot]) <= ever for slot in listed):
                return True
    return False


# How much of all pairs, states and rounds a short run does.
SHORT_SHARE = 0.3


def race(a, b, run, pairs, rounds):
    """Does each pair in each state some times."""
    local = Local()
    peers = [Peer(lambda request, top=top: OPERATIONS[request[0]](path(top, request[1]))) for top in (a, b)]
    failures, count = [], 0
    rng = random.Random(run.seed)
    for (one, two), state, _ in itertools.product(pairs, STATES, range(rounds)):
        if not run.long and rng.random() > SHORT_SHARE:
            continue
        count += 1
        name = f"r{count}"
        os.mkdir(path(a, name))
        prepare(path(a, name), state)
        # What the mounts remember of the names belongs to the test.
        tree(path(b, name))
        result(os.lstat, path(b, name, "x"))
        order = rng.sample(peers, 2)
        for peer in order:
            peer.send(((one, two)[peers.index(peer)], name))
        said = [peer.answer() for peer in peers]
        left = tree(path(a, name))
        got = (said[0], said[1], left)
        if left != tree(path(b, name)):
            failures.append(f"{one} | {two} with {state}: the mounts disagree: {left} {tree(path(b, name))}")
        elif not agrees(got, local, one, two, state):
            failures.append(f"{one} | {two} with {state}: {got}, but one after the other gives "
                            + " or ".join(map(str, local.outcomes(one, two, state))))
        shutil.rmtree(path(a, name))
    for peer in peers:
        peer.close()
    assert not failures, f"{len(failures)} of {count}:\n" + "\n".join(failures[:10])


def make_cases():
    """A case for each operation of the first mount: against every one on the second."""
    for one in OPERATIONS:
        def pairs_of(a, b, run, one=one):
            race(a, b, run, [(one, two) for two in OPERATIONS], run.rounds(2, 50))
        pairs_of.__name__ = f"pairs_{one}"
        pairs_of.__doc__ = f"{one} on one mount against every operation on the other, in every state of the names."
        case(pairs_of)


make_cases()
