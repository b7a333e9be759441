"""Names: what one mount creates, removes, links and renames, the other sees at once."""

import errno
import os
import stat
import subprocess
import time

from .support import (RENAME_EXCHANGE, RENAME_NOREPLACE, Open, as_root, at_once, both_ways, case, elsewhere, get,
                      link_open_file, names, path, put, renameat2, result, same, Skip)


def warm(directory, *files):
    """Lets a mount know whatever it may remember of these names."""
    for _ in range(2):
        names(directory)
        for name in files:
            result(os.stat, path(directory, name))


@case
@both_ways
def create_seen(a, b, run):
    """A file is there for the other mount as soon as open() returned, by name and in the listing."""
    for n in range(run.rounds(50, 1000)):
        name = f"f{n}"
        warm(b, name)
        with Open() as files:
            files.fd(path(a, name), os.O_WRONLY | os.O_CREAT)
            assert stat.S_ISREG(os.stat(path(b, name)).st_mode)
            same(name in names(b), True, "listing has it")
        same(os.stat(path(a, name)).st_ino, os.stat(path(b, name)).st_ino, "inode number")


@case
@both_ways
def negative_entries(a, b, run):
    """A name that was looked for in vain is found once the other mount has made it, whatever kind it is."""
    make = [lambda name: put(name), os.mkdir, lambda name: os.symlink("x", name), os.mkfifo,
            lambda name: os.link(path(a, "source"), name), lambda name: os.rename(path(a, "movable"), name)]
    put(path(a, "source"))
    for n in range(run.rounds(10, 200)):
        for kind, function in enumerate(make):
            name = f"n{n}.{kind}"
            if kind == 5:
                put(path(a, "movable"))
            for _ in range(3):
                same(result(os.lstat, path(b, name)), "ENOENT", "before")
            function(path(a, name))
            os.lstat(path(b, name))


@case
@both_ways
def unlink_seen(a, b, run):
    """A name that the other mount knows well is gone as soon as unlink() returned."""
    for n in range(run.rounds(50, 1000)):
        put(path(b, "f"), b"x" * n)
        warm(b, "f")
        get(path(b, "f"))
        os.unlink(path(a, "f"))
        same(result(os.stat, path(b, "f")), "ENOENT", "stat")
        same(result(os.open, path(b, "f"), os.O_RDONLY), "ENOENT", "open")
        same(names(b), [], "listing")


@case
@both_ways
def mkdir_rmdir_seen(a, b, run):
    """Directories made on one mount are removed on the other, again and again (sanityn 43a)."""
    for _ in range(run.rounds(100, 1000)):
        os.mkdir(path(a, "d"))
        same(names(path(b, "d")), [], "new directory")
        os.rmdir(path(b, "d"))
        same(result(os.stat, path(a, "d")), "ENOENT", "removed directory")


@case
@both_ways
def removed_directory_held(a, b, run):
    """A directory that is open stays usable when it is removed, whoever made it and whoever removes it."""
    def look(held):
        os.fchmod(held, 0o700)
        os.utime(held, (1, 1))
        same(os.fstat(held).st_nlink, 0, "links")
        same(os.listdir(held), [], "listing")
        os.listxattr(held)
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        same(result(os.open, "new", flags, 0o644, dir_fd=held), "ENOENT", "create")
        same(result(os.mkdir, "new", dir_fd=held), "ENOENT", "mkdir")
        same(result(os.open, "new", os.O_RDONLY, dir_fd=held), "ENOENT", "open")

    for n in range(run.rounds(5, 100)):
        for maker in (a, b):
            for remover in (a, b):
                os.mkdir(path(maker, "d"))
                with Open() as files:
                    held = files.fd(path(a, "d"), os.O_RDONLY | os.O_DIRECTORY)
                    if n % 2:
                        os.mkdir(path(remover, "other"))
                        os.rename(path(remover, "other"), path(remover, "d"))
                        look(held)
                        os.rmdir(path(remover, "d"))
                    else:
                        os.rmdir(path(remover, "d"))
                        look(held)


@case
@both_ways
def trees_removed_by_both(a, b, run):
    """rm -rf of a tree on both mounts at the same time hears of no error, whoever made the tree."""
    def remove(top):
        done = subprocess.run(["rm", "-rf", path(top, "t")], capture_output=True, text=True, check=False)
        return done.stderr

    for _ in range(run.rounds(4, 40)):
        for n in range(12):
            os.makedirs(path(a, "t", f"d{n}", "e"))
            for name in range(25):
                put(path(a, "t", f"d{n}", f"f{name}"))
                put(path(a, "t", f"d{n}", "e", f"g{name}"))
        same(at_once(lambda: remove(a), lambda: remove(b)), ["", ""], "errors")
        same(result(os.stat, path(a, "t")), "ENOENT", "the tree")


@case
@both_ways
def removed_file_read(a, b, run):
    """A file that is open to read on the mount that made it is read to its end, whoever removes or replaces it."""
    for n in range(run.rounds(10, 200)):
        for remover in (a, b):
            put(path(a, "f"), bytes([n]) * 5000)
            with Open() as files:
                held = files.fd(path(a, "f"), os.O_RDONLY)
                if n % 2:
                    put(path(remover, "other"), b"other")
                    os.rename(path(remover, "other"), path(remover, "f"))
                else:
                    os.unlink(path(remover, "f"))
                same(os.fstat(held).st_nlink, 0, "links")
                same(os.pread(held, 6000, 0) == bytes([n]) * 5000, True, "data")
            result(os.unlink, path(a, "f"))


@case
@as_root
@both_ways
def removed_files_are_not_missed(a, b, run):
    """Whoever has everything made durable is not told of a loss when others write files and remove them."""
    os.mkdir(path(a, "d"))

    def churn():
        for _ in range(run.rounds(600, 6000)):
            put(path(a, "d", "f"), b"x" * 100)
            # Long enough for what was written to be on its way.
            time.sleep(0.001)
            os.unlink(path(a, "d", "f"))

    def sync():
        for _ in range(run.rounds(200, 2000)):
            os.setxattr(a, "weft.sync", b"")

    same(at_once(churn, sync), [None, None], "both")


@case
@both_ways
def rmdir_not_empty(a, b, run):
    """rmdir() sees a file that the other mount has just made, and its removal too."""
    for n in range(run.rounds(30, 500)):
        os.mkdir(path(a, f"d{n}"))
        warm(path(a, f"d{n}"))
        put(path(b, f"d{n}", "f"))
        same(result(os.rmdir, path(a, f"d{n}")), "ENOTEMPTY", "rmdir of a full directory")
        os.unlink(path(b, f"d{n}", "f"))
        os.rmdir(path(a, f"d{n}"))


@case
@both_ways
def rename_seen(a, b, run):
    """After a rename the other mount finds the new name and not the old one, with the same inode (sanityn 31t)."""
    put(path(a, "x0"), b"data")
    inode = os.stat(path(a, "x0")).st_ino
    for n in range(run.rounds(50, 1000)):
        old, new = f"x{n}", f"x{n + 1}"
        warm(b, old, new)
        with Open() as files:
            files.fd(path(b, old), os.O_RDONLY)
            os.rename(path(a, old), path(a, new))
            same(result(os.stat, path(b, old)), "ENOENT", "old name")
            same(os.stat(path(b, new)).st_ino, inode, "inode of the new name")
            put(path(a, old))
            assert os.stat(path(b, old)).st_ino != inode, "the old name is another file now"
            os.unlink(path(a, old))
        same(get(path(b, new)), b"data", "bytes")


@case
@both_ways
def rename_over_seen(a, b, run):
    """A file that replaces another by rename is what the other mount opens from then on."""
    put(path(a, "target"), b"0")
    for n in range(1, run.rounds(50, 1000)):
        warm(b, "target")
        get(path(b, "target"))
        with Open() as files:
            held = files.fd(path(b, "target"), os.O_RDONLY)
            put(path(a, "new"), b"%d" % n)
            os.rename(path(a, "new"), path(a, "target"))
            same(get(path(b, "target")), b"%d" % n, "the new file")
            same(os.pread(held, 10, 0), b"%d" % (n - 1), "the old file, still open")
            same(os.fstat(held).st_nlink, 0, "links of the old file")


@case
@both_ways
def rename_against_lookup(a, b, run):
    """While a name is replaced by rename again and again, the other mount always finds it, whole, and never an older
    one than it saw before (sanityn 31r)."""
    rounds = run.rounds(300, 5000)
    put(path(a, "target"), b"%08d" % 0)

    def replace():
        for n in range(1, rounds + 1):
            put(path(a, "new"), b"%08d" % n)
            os.rename(path(a, "new"), path(a, "target"))
        os.unlink(path(a, "target"))

    def look():
        last = seen = 0
        while True:
            text = result(get, path(b, "target"))
            if text == "ENOENT":
                return seen
            same(len(text), 8, f"length of what was read, {text!r}")
            assert int(text) >= last, f"{text} after {last}"
            last, seen = int(text), seen + 1
    assert at_once(replace, look)[1] > 0, "the name was found sometimes"


@case
@both_ways
def rename_directory_seen(a, b, run):
    """Paths through a renamed directory work under its new name only, and working directories stay in it
    (sanityn 31s)."""
    os.makedirs(path(a, "d0", "sub"))
    put(path(a, "d0", "sub", "f"), b"x")
    inside = os.open(path(b, "d0", "sub"), os.O_RDONLY | os.O_DIRECTORY)
    for n in range(run.rounds(20, 300)):
        same(get(path(b, f"d{n}", "sub", "f")), b"x", "before")
        os.rename(path(a, f"d{n}"), path(a, f"d{n + 1}"))
        same(result(os.stat, path(b, f"d{n}", "sub", "f")), "ENOENT", "through the old name")
        same(get(path(b, f"d{n + 1}", "sub", "f")), b"x", "through the new name")
        same(os.stat("f", dir_fd=inside).st_size, 1, "from inside")
        os.mkdir(path(a, f"d{n}"))
        same(names(path(b, f"d{n}")), [], "the old name is another directory now")
        os.rmdir(path(a, f"d{n}"))
    os.close(inside)


@case
@both_ways
def rename_between_directories(a, b, run):
    """A directory that moved to another parent has that parent as `..`, and both parents' link counts follow."""
    os.mkdir(path(a, "one"))
    os.mkdir(path(a, "two"))
    os.mkdir(path(a, "one", "d"))
    for n in range(run.rounds(20, 300)):
        old, new = ("one", "two") if n % 2 == 0 else ("two", "one")
        warm(b, "one", "two", path(old, "d"), path(old, "d", ".."))
        os.rename(path(a, old, "d"), path(a, new, "d"))
        same(os.stat(path(b, new, "d", "..")).st_ino, os.stat(path(b, new)).st_ino, "inode of ..")
        same([names(path(b, old)), names(path(b, new))], [[], ["d"]], "listings")
        links = [os.stat(path(b, which)).st_nlink for which in (old, new)]
        assert links in ([2, 3], [1, 1]), f"link counts {links}"


@case
@both_ways
def rename_exchange(a, b, run):
    """RENAME_EXCHANGE swaps two names for the other mount too; RENAME_NOREPLACE sees what the other has made."""
    put(path(a, "file"), b"1")
    os.mkdir(path(a, "other"))
    for n in range(run.rounds(20, 300)):
        warm(b, "file", "other")
        renameat2(path(a, "file"), path(a, "other"), RENAME_EXCHANGE)
        kinds = [stat.S_ISDIR(os.stat(path(b, name)).st_mode) for name in ("file", "other")]
        same(kinds, [n % 2 == 0, n % 2 == 1], "which is the directory")
        same(result(os.stat, path(a, "late")), "ENOENT", "not there yet")
        put(path(b, "late"))
        same(result(renameat2, path(a, "file"), path(a, "late"), RENAME_NOREPLACE), "EEXIST", "no replacing")
        os.unlink(path(b, "late"))


@case
@both_ways
def symlink_replace(a, b, run):
    """A symbolic link that is removed and made anew, or replaced by rename, leads to the new place at once."""
    for n in range(10):
        put(path(a, f"t{n}"), b"%d" % n)
    os.symlink("t0", path(a, "link"))
    for n in range(1, run.rounds(50, 1000)):
        same(os.readlink(path(b, "link")), f"t{(n - 1) % 10}", "before")
        if n % 2:
            os.unlink(path(a, "link"))
            os.symlink(f"t{n % 10}", path(a, "link"))
        else:
            os.symlink(f"t{n % 10}", path(a, "temporary"))
            os.rename(path(a, "temporary"), path(a, "link"))
        same(os.readlink(path(b, "link")), f"t{n % 10}", "readlink")
        same(get(path(b, "link")), b"%d" % (n % 10), "through the link")


@case
@both_ways
def hard_link_counts(a, b, run):
    """The number of links is right on both mounts after each link and unlink, by name and on an open file."""
    put(path(a, "l0"), b"x")
    with Open() as files:
        held = files.fd(path(b, "l0"))
        for n in range(1, run.rounds(30, 500)):
            os.link(path(a, "l0"), path(a, f"l{n}"))
            same(os.stat(path(b, "l0")).st_nlink, n + 1, "after link, by name")
            same(os.fstat(held).st_nlink, n + 1, "after link, open file")
        for m in range(n, 0, -1):
            os.unlink(path(b, f"l{m}"))
            same(os.stat(path(a, "l0")).st_nlink, m, "after unlink, by name")
            same(os.fstat(held).st_nlink, m, "after unlink, open file")


@case
def hard_link_race(a, b, run):
    """Links made and removed on both mounts at once: the count is exact in the end."""
    count = run.rounds(60, 1000)
    put(path(a, "file"))

    def worker(top, mark):
        def work():
            for n in range(count):
                os.link(path(top, "file"), path(top, f"{mark}{n}"))
                if n % 3 == 0:
                    os.unlink(path(top, f"{mark}{n}"))
        return work
    at_once(worker(a, "a"), worker(b, "b"), worker(a, "c"), worker(b, "d"))
    kept = len(names(a)) - 1
    same(kept, 4 * (count - len(range(0, count, 3))), "names")
    same([os.stat(path(top, "file")).st_nlink for top in (a, b)], [kept + 1] * 2, "links")


@case
@both_ways
def open_unlink(a, b, run):
    """A file that the other mount removes while it is open here can still be read and written, has no link, and
    is not the file that takes its name (sanityn 6, 36)."""
    for n in range(run.rounds(20, 300)):
        put(path(a, "f"), b"before")
        with Open() as files:
            held = files.fd(path(b, "f"))
            os.unlink(path(a, "f"))
            same(os.fstat(held).st_nlink, 0, "links")
            put(path(a, "f"), b"another")
            same(os.pread(held, 100, 0), b"before", "bytes of the removed file")
            os.pwrite(held, b"after " * 20000, 6)
            os.fsync(held)
            same(os.fstat(held).st_size, 120006, "size of the removed file")
            same(os.pread(held, 10, 120000), b"after ", "its new bytes")
            os.ftruncate(held, 3)
            same(os.pread(held, 100, 0), b"bef", "after truncate")
        same(get(path(b, "f")), b"another", "the new file")


@case
def open_unlink_both(a, b, run):
    """A removed file lives until the last of both mounts' handles is closed, in whatever order."""
    for n in range(run.rounds(10, 100)):
        put(path(a, "f"), b"x" * 5000)
        with Open() as files:
            one, two = files.fd(path(a, "f")), files.fd(path(b, "f"))
            os.unlink(path((a, b)[n % 2], "f"))
            first, last = (one, two) if n % 4 < 2 else (two, one)
            os.pwrite(first, b"y", 100)
            os.close(first)
            same(os.pread(last, 200, 0), b"x" * 100 + b"y" + b"x" * 99, "bytes")
            os.pwrite(last, b"z", 9999)
            same(os.fstat(last).st_size, 10000, "size")


@case
@both_ways
def rename_over_open(a, b, run):
    """A file that is replaced by rename on the other mount while it is open here stays what it is."""
    for _ in range(run.rounds(20, 300)):
        put(path(a, "f"), b"old" * 1000)
        put(path(a, "g"), b"new")
        with Open() as files:
            held = files.fd(path(b, "f"))
            os.rename(path(a, "g"), path(a, "f"))
            same(os.pread(held, 5000, 0), b"old" * 1000, "old bytes")
            os.pwrite(held, b"more", 3000)
            same(os.fstat(held).st_size, 3004, "old size")
        same(get(path(b, "f")), b"new", "new bytes")


@case
@both_ways
def open_special_removed(a, b, run):
    """Pipes and symbolic links, too, stay usable for who has them open when the other mount removes them
    (sanityn 8)."""
    os.mkfifo(path(a, "pipe"))
    os.symlink("nowhere", path(a, "link"))
    with Open() as files:
        held = files.fd(path(b, "pipe"), os.O_RDWR | os.O_NONBLOCK)
        link = files.fd(path(b, "link"), os.O_PATH | os.O_NOFOLLOW)
        os.unlink(path(a, "pipe"))
        os.unlink(path(a, "link"))
        os.write(held, b"through")
        same(os.read(held, 100), b"through", "pipe")
        same(os.fstat(held).st_nlink, 0, "links of the pipe")
        assert stat.S_ISLNK(os.fstat(link).st_mode)


@case
@both_ways
def open_directory_removed(a, b, run):
    """A directory that the other mount removes while it is open here lists nothing and takes no new name
    (sanityn 7, 70a)."""
    for _ in range(run.rounds(10, 100)):
        os.mkdir(path(a, "d"))
        with Open() as files:
            held = files.fd(path(b, "d"), os.O_RDONLY | os.O_DIRECTORY)
            same(os.listdir(held), [], "empty directory")
            os.rmdir(path(a, "d"))
            same(result(os.listdir, held) in ([], "ENOENT"), True, "listing of the removed directory")
            same(result(os.open, "f", os.O_CREAT | os.O_WRONLY, dir_fd=held), "ENOENT", "create in it")
            same(result(os.mkdir, "f", dir_fd=held), "ENOENT", "mkdir in it")
            assert os.fstat(held).st_nlink in (0, 1), "links"
            os.mkdir(path(a, "d"))
            put(path(a, "d", "f"))
            same(result(os.stat, "f", dir_fd=held), "ENOENT", "the old directory is not the new one")
            os.unlink(path(a, "d", "f"))
            os.rmdir(path(a, "d"))


@case
@both_ways
def working_directory_removed(a, b, run):
    """A process whose working directory the other mount removes makes nothing in it, sees nothing, and can leave.
    (As on NFS, getcwd may still tell the old path, since it asks no file system, and the directory may be called
    stale.)"""
    os.mkdir(path(a, "d"))

    def work():
        os.chdir(path(b, "d"))
        os.rmdir(path(a, "d"))
        assert result(os.listdir, ".") in ([], "ENOENT", "ESTALE"), "listing"
        same(result(os.stat, path(b, "d")), "ENOENT", "by its name")
        assert result(os.open, "f", os.O_CREAT | os.O_WRONLY) in ("ENOENT", "ESTALE"), "create"
        os.chdir("/")
    elsewhere(work)


@case
def create_exclusive_race(a, b, run):
    """Of O_EXCL creates of one name at once, exactly one succeeds."""
    count = run.rounds(100, 2000)

    def worker(top, mark):
        def work():
            won = []
            for n in range(count):
                try:
                    put(path(top, f"f{n}"), mark, os.O_CREAT | os.O_EXCL)
                    won.append(n)
                except FileExistsError:
                    pass
            return won
        return work
    one, two, three = at_once(worker(a, b"1"), worker(b, b"2"), worker(b, b"3"))
    same(sorted(one + two + three), list(range(count)), "one winner each")
    for mark, won in ((b"1", one), (b"2", two), (b"3", three)):
        for n in won[:20]:
            same([get(path(top, f"f{n}")) for top in (a, b)], [mark, mark], f"content of f{n}")


@case
def mkdir_race(a, b, run):
    """Of mkdirs of one name at once, exactly one succeeds (sanityn 43j)."""
    count = run.rounds(100, 2000)

    def worker(top):
        return lambda: [n for n in range(count) if result(os.mkdir, path(top, f"d{n}")) is None]
    one, two = at_once(worker(a), worker(b))
    same(sorted(one + two), list(range(count)), "one winner each")


@case
def unlink_race(a, b, run):
    """Of unlinks of one name at once, exactly one succeeds."""
    count = run.rounds(100, 2000)
    for n in range(count):
        put(path(a, f"f{n}"))

    def worker(top):
        return lambda: [n for n in range(count) if result(os.unlink, path(top, f"f{n}")) is None]
    one, two = at_once(worker(a), worker(b))
    same(sorted(one + two), list(range(count)), "one winner each")
    same(names(a), [], "nothing left")


@case
def setstripe_race(a, b, run):
    """Of two `lfs setstripe` of one name at once, on two mounts, exactly one makes the file, and it has that one's layout."""
    try:
        os.getxattr(a, "weft.counters")
    except OSError as failed:
        raise Skip("this is no mount of weft") from failed

    def lfs(*words):
        return subprocess.run([os.environ["LFS"], *words], capture_output=True, text=True, check=False)

    def make(top, name, stripes):
        def work():
            done = lfs("setstripe", "-c", str(stripes), path(top, name))
            return done.returncode == 0, done.stderr
        return work
    winners = set()
    for n in range(run.rounds(40, 500)):
        won, lost = sorted(((*made, stripes) for made, stripes in
                            zip(at_once(make(a, f"f{n}", 1), make(b, f"f{n}", 2)), (1, 2))), reverse=True)
        same((won[0], lost[0]), (True, False), f"f{n}: one winner, and one loser, who says {lost[1]!r}")
        assert lost[1].endswith("failed: File exists\n"), lost[1]
        same([lfs("getstripe", "-c", path(top, f"f{n}")).stdout for top in (a, b)], [f"{won[2]}\n"] * 2, f"stripes of f{n}")
        winners.add(won[2])
    print(f"      | won by {sorted(winners)}")
    same(len(names(a)), len(names(b)), "names")


@case
def create_against_rmdir(a, b, run):
    """A directory is removed, or gets a file: never both."""
    for n in range(run.rounds(50, 1000)):
        os.mkdir(path(a, f"d{n}"))
        made, removed = at_once(lambda: put(path(a, f"d{n}", "f")), lambda: os.rmdir(path(b, f"d{n}")))
        if removed is None:
            same(made, "ENOENT", "create in a removed directory")
            same(result(os.stat, path(a, f"d{n}")), "ENOENT", "removed directory")
        else:
            same((made, removed), (None, "ENOTEMPTY"), "create won")
            same([names(path(top, f"d{n}")) for top in (a, b)], [["f"]] * 2, "listing")


@case
def create_same_names(a, b, run):
    """Both mounts create and remove the same names all the time (without O_EXCL): no error but ENOENT, and the same
    listing afterwards (sanityn 30)."""
    count = run.rounds(200, 5000)

    def worker(top, other):
        def work():
            for n in range(count):
                put(path(top, f"f{n % 5}"), b"x" * (n % 300))
                said = result(os.unlink, path(other, f"f{(n + 2) % 5}"))
                assert said in (None, "ENOENT"), said
        return work
    at_once(worker(a, a), worker(b, b))
    same(names(a), names(b), "listings")
    for name in names(a):
        same(os.stat(path(a, name)).st_ino, os.stat(path(b, name)).st_ino, "inode number")


@case
def rename_crosswise(a, b, run):
    """x to y on one mount against y to x on the other: nobody waits for ever, one file is left or both (sanityn 55e,
    55f)."""
    for top in ("p", "q"):
        os.mkdir(path(a, top))
    for n in range(run.rounds(50, 1000)):
        old, new = ("p/x", "q/y") if n % 2 else ("x", "y")
        put(path(a, old), b"x")
        put(path(a, new), b"y")
        said = at_once(lambda: os.rename(path(a, old), path(a, new)), lambda: os.rename(path(b, new), path(b, old)))
        left = [[result(get, path(top, name)) for name in (old, new)] for top in (a, b)]
        same(left[0], left[1], "both mounts")
        # One after the other: the first leaves one name, and the second moves it back.
        assert (said, left[0]) in (([None, None], ["ENOENT", b"y"]), ([None, None], [b"x", "ENOENT"])), (said, left)
        for name in (old, new):
            result(os.unlink, path(a, name))


@case
def rename_no_cycle(a, b, run):
    """Two directories that are moved into each other on both mounts at once: one of the moves fails."""
    for n in range(run.rounds(50, 1000)):
        os.mkdir(path(a, f"x{n}"))
        os.mkdir(path(a, f"y{n}"))
        said = at_once(lambda: os.rename(path(a, f"x{n}"), path(a, f"y{n}", "in")),
                       lambda: os.rename(path(b, f"y{n}"), path(b, f"x{n}", "in")))
        assert set(said) in ({None, "ENOENT"}, {None, "EINVAL"}), said
        left = f"y{n}" if said[0] is None else f"x{n}"
        same([names(path(top, left)) for top in (a, b)], [["in"]] * 2, "who is in whom")


@case
def rename_against_link(a, b, run):
    """link(x, y) against rename(x, z): the file has all its names and the count for it (sanityn 55d, 111)."""
    for n in range(run.rounds(50, 1000)):
        put(path(a, "x"))
        linked, moved = at_once(lambda: os.link(path(a, "x"), path(a, "y")), lambda: os.rename(path(b, "x"), path(b, "z")))
        same(moved, None, "rename")
        assert linked in (None, "ENOENT"), linked
        want = ["y", "z"] if linked is None else ["z"]
        for top in (a, b):
            same(names(top), want, "names")
            same({os.stat(path(top, name)).st_nlink for name in want}, {len(want)}, "links")
        for name in want:
            os.unlink(path(b, name))


@case
@both_ways
def readdir_against_create(a, b, run):
    """While one mount creates and removes, the other lists each name that is there all the time exactly once, and
    none that never was (sanityn 13, 37)."""
    stable = {f"stable{n}" for n in range(run.rounds(300, 3000))}
    for name in stable:
        put(path(a, name))

    def change():
        for n in range(run.rounds(300, 5000)):
            put(path(a, f"moving{n}"))
            os.rename(path(a, f"moving{n}"), path(a, f"moved{n}"))
            os.unlink(path(a, f"moved{n}"))
        put(path(a, "done"))

    def look():
        listings = 0
        while True:
            found = os.listdir(b)
            same(len(found), len(set(found)), "names that came twice")
            missing = stable - set(found)
            assert not missing, f"missing: {sorted(missing)[:5]}"
            strange = [name for name in found if not name.startswith(("stable", "moving", "moved", "done"))]
            same(strange, [], "strange names")
            listings += 1
            if "done" in found:
                return listings
    at_once(change, look)
    same(len(names(b)), len(stable) + 1, "names in the end")


@case
@both_ways
def readdir_again(a, b, run):
    """An open directory that is read again from its start shows what the other mount did meanwhile."""
    with Open() as files:
        held = files.fd(b, os.O_RDONLY | os.O_DIRECTORY)
        for n in range(run.rounds(30, 500)):
            put(path(a, f"f{n}"))
            same(len(os.listdir(held)), n + 1, "after create")
        for m in range(n, -1, -1):
            os.unlink(path(a, f"f{m}"))
            same(len(os.listdir(held)), m, "after unlink")


@case
def many_names_at_once(a, b, run):
    """Both mounts fill one directory at the same time: all names are there, once, on both."""
    count = run.rounds(300, 10000)

    def worker(top, mark):
        def work():
            for n in range(count):
                put(path(top, f"{mark}{n}"))
        return work
    at_once(worker(a, "a"), worker(b, "b"))
    want = sorted([f"a{n}" for n in range(count)] + [f"b{n}" for n in range(count)])
    same(names(a) == want, True, "listing of the first mount")
    same(names(b) == want, True, "listing of the second mount")


@case
@both_ways
def new_directory_seen_at_once(a, b, run):
    """What is made in a new directory is there for the other mount at once: all names, their contents, and the names that are taken."""
    for n in range(run.rounds(20, 300)):
        os.mkdir(path(a, f"d{n}"))
        for m in range(40):
            put(path(a, f"d{n}/f{m}"), b"" if m % 3 else str(m).encode())
        what = n % 5
        if what == 0:
            same(names(path(b, f"d{n}")), sorted(f"f{m}" for m in range(40)), "listing")
        elif what == 1:
            same(result(os.open, path(b, f"d{n}/f39"), os.O_CREAT | os.O_EXCL | os.O_WRONLY), "EEXIST", "a name that is taken")
        elif what == 2:
            with open(path(b, f"d{n}/f39"), "rb") as file:
                same(file.read(), b"39", "the last file")
        elif what == 3:
            same(result(os.rmdir, path(b, f"d{n}")), "ENOTEMPTY", "rmdir")
        else:
            os.rename(path(b, f"d{n}/f39"), path(b, f"d{n}/moved"))
            same(os.path.exists(path(a, f"d{n}/f39")), False, "the old name")
        same(len(names(path(b, f"d{n}"))), 40, "files in the end")
        same(os.stat(path(a, f"d{n}")).st_mtime_ns, os.stat(path(b, f"d{n}")).st_mtime_ns, "mtime")


@case
def removed_by_both(a, b, run):
    """`rm -r` of one tree on both mounts at once leaves nothing, and nothing but ENOENT is heard (and ENOTEMPTY never
    in the end)."""
    for _ in range(run.rounds(2, 20)):
        for n in range(20):
            os.makedirs(path(a, f"t/d{n}/e"))
            for m in range(10):
                put(path(a, f"t/d{n}/e/f{m}"))

        def remove(top):
            for _ in range(10):
                for directory, subs, files in os.walk(path(top, "t"), topdown=False):
                    for name in files:
                        assert result(os.unlink, path(directory, name)) in (None, "ENOENT")
                    for name in subs:
                        assert result(os.rmdir, path(directory, name)) in (None, "ENOENT", "ENOTEMPTY")
                said = result(os.rmdir, path(top, "t"))
                if said in (None, "ENOENT"):
                    return
                same(said, "ENOTEMPTY", "rmdir of the top")
            raise AssertionError("not empty after ten times")
        at_once(lambda: remove(a), lambda: remove(b))
        same([names(a), names(b)], [[], []], "what is left")


@case
@both_ways
def directory_times_seen(a, b, run):
    """Changes in a directory change its times for the other mount at once."""
    os.mkdir(path(a, "d"))
    put(path(a, "outside"))
    steps = [lambda: put(path(a, "d", "f")), lambda: os.link(path(a, "d", "f"), path(a, "d", "g")),
             lambda: os.rename(path(a, "d", "g"), path(a, "d", "h")), lambda: os.unlink(path(a, "d", "h")),
             lambda: os.rename(path(a, "outside"), path(a, "d", "in")), lambda: os.mkdir(path(a, "d", "s")),
             lambda: os.rmdir(path(a, "d", "s"))]
    for n, step in enumerate(steps):
        before = os.stat(path(b, "d"))
        while os.stat(a).st_ctime_ns <= before.st_ctime_ns:
            os.chmod(a, 0o755)
        step()
        after = os.stat(path(b, "d"))
        assert after.st_mtime_ns > before.st_mtime_ns, f"mtime after step {n}"
        assert after.st_ctime_ns > before.st_ctime_ns, f"ctime after step {n}"


@case
@both_ways
def temporary_file_linked(a, b, run):
    """A file of O_TMPFILE has no name for anybody until it is linked; then the other mount has it, whole."""
    try:
        fd = os.open(a, os.O_TMPFILE | os.O_RDWR)
    except OSError as failed:
        if failed.errno in (errno.EOPNOTSUPP, errno.EISDIR):
            raise AssertionError("O_TMPFILE is not supported") from failed
        raise
    os.write(fd, b"whole")
    same(names(b), [], "names before")
    link_open_file(fd, path(a, "linked"))
    same(get(path(b, "linked")), b"whole", "after link")
    same(os.fstat(fd).st_nlink, 1, "links")
    os.close(fd)


@case
@as_root
@both_ways
def device_numbers_seen(a, b, run):
    """Special files have the same kind and number on both mounts."""
    try:
        os.mknod(path(a, "null"), stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError as failed:
        raise Skip("mknod is not allowed here") from failed
    got = os.stat(path(b, "null"))
    same((stat.S_ISCHR(got.st_mode), got.st_rdev), (True, os.makedev(1, 3)), "kind and number")
