"""Changes of two mounts that wait for each other: the kernel has locked the same directory on both sides (docs/locks.md#kernel-names)."""

import errno
import os
import threading
import time

from .support import case, fork

NAMES = 8
# Names that nobody gives back are used for 10 s.
LATE = 2.0
# What another process may have done meanwhile.
EXPECTED = {errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY}


def replace(at, who, n):
    os.rename(f"{at}/{who}{n}", f"{at}/f{n}")


def move(at, who, n):
    os.rename(f"{at}/f{n}", f"{at}/f{(n + 1) % NAMES}")


def remove(at, who, n):
    os.unlink(f"{at}/f{n}")


def link(at, who, n):
    os.link(f"{at}/{who}{n}", f"{at}/l{n}")


def subdir(at, who, n):
    os.rename(f"{at}/d{n}", f"{at}/d{(n + 1) % NAMES}")


KINDS = [replace, move, remove, link, subdir]


def change(top, who, rounds, meet, told):
    """Both know all names of a new directory, so that each has to call the other one's back, and change them at once."""
    slowest, wrong = 0.0, []
    for round in range(rounds):
        at, kind = f"{top}/r{round}", KINDS[round % len(KINDS)]
        meet.wait()
        if who == "a":
            os.mkdir(at)
            for n in range(NAMES):
                os.mkdir(f"{at}/d{n}")
                for name in ("f", "a", "b"):
                    os.mknod(f"{at}/{name}{n}")
        meet.wait()
        for _ in range(2):
            for n in range(NAMES):
                for name in ("f", "a", "b", "d"):
                    os.stat(f"{at}/{name}{n}")
            meet.wait()
        for n in range(NAMES):
            begun = time.monotonic()
            try:
                kind(at, who, n if who == "a" else NAMES - 1 - n)
            except OSError as error:
                if error.errno not in EXPECTED:
                    wrong.append(f"round {round}, {kind.__name__} {n} of {who}: {error}")
            slowest = max(slowest, time.monotonic() - begun)
    told.put((slowest, wrong))


@case
def changes_that_cross(a, b, run):
    """Both mounts replace, move, remove and link the same names at once: no change takes 2 s, and none fails that would not on a local disk."""
    rounds, meet, told = run.rounds(20, 400), fork.Barrier(2), fork.Queue()
    both = [fork.Process(target=change, args=(top, who, rounds, meet, told)) for top, who in ((a, "a"), (b, "b"))]
    for process in both:
        process.start()
    said = [told.get() for _ in both]
    for process in both:
        process.join()
    wrong = sum((one[1] for one in said), [])
    assert not wrong, "; ".join(wrong[:5])
    slowest = max(one[0] for one in said)
    assert slowest < LATE, f"a change took {slowest:.3f} s"


def in_thread(meet, work):
    """Does `work` at the moment at which others do theirs; gives what is to be waited for."""
    def meet_and_work():
        meet.wait()
        try:
            work()
        except FileNotFoundError:
            pass  # The name, or the file, went first.
    thread = threading.Thread(target=meet_and_work)
    thread.start()
    return thread


@case
def linked_while_it_is_removed(a, b, run):
    """A file that is open has its size and its data, on both mounts, when its last name goes while it is linked, and its writer has just closed it."""
    data = b"x" * 37
    for n in range(run.rounds(60, 1000)):
        with open(f"{a}/f{n}", "wb") as file:
            file.write(data)
        readers = [os.open(f"{top}/f{n}", os.O_RDONLY) for top in (a, b)]
        meet = threading.Barrier(2)
        link = in_thread(meet, lambda: (os.link(f"{a}/f{n}", f"{a}/g{n}"), os.unlink(f"{a}/g{n}")))
        remove = in_thread(meet, lambda: os.unlink(f"{a}/f{n}"))
        link.join()
        remove.join()
        for reader, top in zip(readers, (a, b)):
            assert os.fstat(reader).st_size == len(data), f"round {n}: {os.fstat(reader)} at {top}"
            assert os.pread(reader, 100, 0) == data, f"round {n}: at {top}"
            os.close(reader)


@case
def two_names_of_a_link(a, b, run):
    """A rename between two names of one symbolic link does nothing, on either mount, whoever made and moved the names."""
    for n in range(run.rounds(20, 300)):
        os.symlink("nowhere", f"{a}/s{n}")
        os.link(f"{a}/s{n}", f"{a}/t{n}", follow_symlinks=False)
        for top, other in ((a, b), (b, a)):
            # The other mount takes the names back, so that the kernel of this one asks for both.
            for old, new in (("s", "u"), ("u", "s"), ("t", "u"), ("u", "t")):
                os.rename(f"{other}/{old}{n}", f"{other}/{new}{n}")
            os.rename(f"{top}/s{n}", f"{top}/t{n}")
        for top in (a, b):
            assert sorted(os.listdir(top)) == [f"s{n}", f"t{n}"], f"round {n}: {os.listdir(top)} at {top}"
        os.unlink(f"{b}/s{n}")
        os.unlink(f"{a}/t{n}")


@case
def link_flipped(a, b, run):
    """A symbolic link that one mount replaces leads the other one to the new place at once, and never to none."""
    for n in (0, 1):
        os.mkdir(f"{a}/d{n}")
        with open(f"{a}/d{n}/f", "w") as file:
            file.write(str(n))
    os.symlink("d0", f"{a}/now")
    for n in range(run.rounds(100, 2000)):
        os.symlink(f"d{n % 2}", f"{a}/next")
        os.rename(f"{a}/next", f"{a}/now")
        for top in (b, a):
            with open(f"{top}/now/f") as file:
                assert file.read() == str(n % 2), f"round {n}: at {top}"
            assert os.readlink(f"{top}/now") == f"d{n % 2}", f"round {n}: {os.readlink(top + '/now')} at {top}"
