"""What the cases share: how they are found, two processes at once, and what is expected of an operation."""

import ctypes
import errno
import multiprocessing
import os
import sys

fork = multiprocessing.get_context("fork")

# Name -> function, in the order in which they are written.
CASES = {}
# Names of cases that need root.
ROOT_ONLY = set()


class Skip(Exception):
    """The case cannot run here; says why."""


class Run:
    """What one run of a case gets besides its two directories."""

    def __init__(self, long, seed):
        self.long = long
        self.seed = seed

    def rounds(self, short, long):
        """How often to do something: in CI, and at night."""
        return long if self.long else short


def case(function):
    """Makes a function (a, b, run) a case. `a` and `b` are one empty directory, seen by two mounts."""
    assert function.__doc__, f"{function.__name__} does not say what it checks"
    assert function.__name__ not in CASES, f"two cases {function.__name__}"
    CASES[function.__name__] = function
    return function


def as_root(function):
    """Marks a case that needs root."""
    ROOT_ONLY.add(function.__name__)
    return function


def both_ways(function):
    """Runs a case from each side: what is done on one mount is looked at from the other."""
    def twice(a, b, run):
        for name, one, two in (("ab", a, b), ("ba", b, a)):
            os.mkdir(os.path.join(one, name))
            try:
                function(os.path.join(one, name), os.path.join(two, name), run)
            except AssertionError as failed:
                raise AssertionError(f"{name}: {failed}").with_traceback(failed.__traceback__) from None
    twice.__name__ = function.__name__
    twice.__doc__ = function.__doc__
    return twice


# What an operation says.


def name_of(number):
    """The name of an errno; of the two that EOPNOTSUPP has, that one."""
    return "EOPNOTSUPP" if number == errno.EOPNOTSUPP else errno.errorcode.get(number, str(number))


def result(function, *args, **named):
    """The name of the errno, or the value."""
    try:
        return function(*args, **named)
    except OSError as failed:
        return name_of(failed.errno)


def same(got, want, what):
    """Fails if two values differ."""
    if got != want:
        raise AssertionError(f"{what}: {short(got)}, not {short(want)}")


def short(value):
    """A value for a message."""
    text = repr(value)
    return text if len(text) <= 200 else text[:120] + f"...({len(text)})..." + text[-60:]


def differs(got, want):
    """Where two strings of bytes differ, for a message; None if they are equal."""
    if got == want:
        return None
    if len(got) != len(want):
        return f"{len(got)} bytes, not {len(want)}"
    at = next(n for n in range(len(got)) if got[n] != want[n])
    last = next(n for n in range(len(got) - 1, -1, -1) if got[n] != want[n])
    return f"byte {at} is {got[at]:#x}, not {want[at]:#x} (of {len(want)}, the last wrong one is {last})"


def same_bytes(got, want, what):
    """Fails if two strings of bytes differ."""
    why = differs(got, want)
    if why:
        raise AssertionError(f"{what}: {why}")


# Files.


def path(*parts):
    """A path below a directory of a case."""
    return os.path.join(*parts)


def put(name, data=b"", flags=os.O_CREAT | os.O_TRUNC, mode=0o644):
    """Makes a file with these bytes. (A pipe that has the name is not waited for.)"""
    fd = os.open(name, os.O_WRONLY | os.O_NONBLOCK | flags, mode)
    try:
        written = 0
        while written < len(data):
            written += os.write(fd, data[written:])
    finally:
        os.close(fd)


def get(name):
    """All bytes of a file."""
    with open(os.open(name, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as file:
        return file.read()


def names(directory):
    """The sorted names in a directory."""
    return sorted(os.listdir(directory))


class Open:
    """Descriptors that are closed at the end of a `with`: Open().fd(path, flags)."""

    def __init__(self):
        self.open = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for fd in self.open:
            try:
                os.close(fd)
            except OSError as failed:
                assert failed.errno == errno.EBADF

    def fd(self, name, flags=os.O_RDWR, mode=0o644):
        """Opens a file."""
        fd = os.open(name, flags, mode)
        self.open.append(fd)
        return fd


# Processes.


def child(function, pipe, barrier):
    """Runs in a process of its own and tells what became of it."""
    try:
        if barrier:
            barrier.wait()
        pipe.send(("value", function()))
    except OSError as failed:
        pipe.send(("errno", name_of(failed.errno)))
    except BaseException as failed:
        pipe.send(("failed", f"{type(failed).__name__}: {failed}"))
    pipe.close()
    sys.stdout.flush()
    os._exit(0)


def at_once(*functions):
    """Runs each function in a process of its own, all from the same moment on; returns what they gave: the value,
    or the name of the errno. A failed assertion in one of them fails the case."""
    barrier = fork.Barrier(len(functions))
    pipes, processes = [], []
    for function in functions:
        ours, theirs = fork.Pipe(duplex=False)
        process = fork.Process(target=child, args=(function, theirs, barrier))
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    answers = []
    for pipe in pipes:
        try:
            answers.append(pipe.recv())
        except EOFError:
            answers.append(("failed", "the process died"))
    for process in processes:
        process.join()
    for kind, value in answers:
        if kind == "failed":
            raise AssertionError(value)
    return [value for _, value in answers]


def elsewhere(function):
    """Runs a function in a process of its own and returns its value, or the name of the errno."""
    return at_once(function)[0]


def as_user(uid, function):
    """Runs a function as another user (of the group of the same number, and no other); root only."""
    def run():
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        return result(function)
    return elsewhere(run)


class Peer:
    """A process that does one operation after the other for its master: the token goes through a pipe."""

    def __init__(self, handler):
        """`handler(request)` runs in the process, and what it returns is the answer; an OSError is its name."""
        self.pipe, theirs = fork.Pipe()

        def serve():
            self.pipe.close()
            while True:
                try:
                    request = theirs.recv()
                except EOFError:
                    request = None
                if request is None:
                    os._exit(0)
                theirs.send(result(handler, request))
        self.process = fork.Process(target=serve, daemon=True)
        self.process.start()
        theirs.close()

    def send(self, request):
        """Starts an operation."""
        self.pipe.send(request)

    def answer(self):
        """Waits for its end."""
        return self.pipe.recv()

    def ask(self, request):
        """Does an operation."""
        self.pipe.send(request)
        return self.pipe.recv()

    def close(self):
        """Ends the process. (The end of the pipe alone would not: later processes have it open, too.)"""
        self.pipe.send(None)
        self.pipe.close()
        self.process.join()


# What Python does not offer.

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100
RENAME_NOREPLACE = 1
RENAME_EXCHANGE = 2
FALLOC_KEEP_SIZE = 1
FALLOC_PUNCH_HOLE = 2
FALLOC_ZERO_RANGE = 16


def checked(value):
    """Raises what the C library says."""
    if value < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return value


def renameat2(old, new, flags):
    """rename with flags."""
    checked(libc.renameat2(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), flags))


def link_open_file(fd, new):
    """Gives an open file a name."""
    at_symlink_follow = 0x400
    checked(libc.linkat(AT_FDCWD, b"/proc/self/fd/%d" % fd, AT_FDCWD, os.fsencode(new), at_symlink_follow))


def fallocate(fd, mode, offset, length):
    """fallocate(2) with a mode."""
    checked(libc.fallocate(fd, mode, ctypes.c_int64(offset), ctypes.c_int64(length)))
