"""What one needs to live in a file system, on a weft mount: `basics.py MOUNTPOINT`."""

import ctypes
import errno
import hashlib
import mmap
import os
import random
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import threading

root = tempfile.mkdtemp(dir=sys.argv[1])


def path(*names):
    return os.path.join(root, *names)


def fails(code, function, *args, **named):
    try:
        function(*args, **named)
    except OSError as error:
        assert error.errno == code, f"{function.__name__}: {errno.errorcode[error.errno]}, not {errno.errorcode[code]}"
        return
    raise AssertionError(f"{function.__name__}{args} did not fail")


def put(name, data):
    with open(path(name), "wb") as file:
        file.write(data)


def get(name):
    with open(path(name), "rb") as file:
        return file.read()


def test_names_of_any_bytes():
    names = [b"a\xff\xfe", b"new\nline", b"x" * 255, "grün".encode(), b" "]
    for name in names:
        with open(os.path.join(root.encode(), b"names-" + name)[:len(root) + 1 + 255], "wb") as file:
            file.write(name)
    found = [n for n in os.listdir(root.encode()) if n.startswith(b"names-")]
    assert len(found) == len(names)
    fails(errno.ENAMETOOLONG, open, path("y" * 256), "wb")


def test_links():
    put("l1", b"data")
    os.link(path("l1"), path("l2"))
    assert os.stat(path("l1")).st_nlink == 2
    os.unlink(path("l1"))
    assert get("l2") == b"data" and os.stat(path("l2")).st_nlink == 1
    os.symlink("l2", path("sym"))
    assert os.readlink(path("sym")) == "l2" and get("sym") == b"data"
    long = "t" * 4095
    os.symlink(long, path("longsym"))
    assert os.readlink(path("longsym")) == long


def test_rename():
    put("r1", b"1")
    put("r2", b"2")
    os.rename(path("r1"), path("r2"))
    assert get("r2") == b"1"
    os.mkdir(path("rd"))
    put("rd/inside", b"x")
    os.mkdir(path("re"))
    os.rename(path("rd"), path("re"))
    assert get("re/inside") == b"x"
    fails(errno.EINVAL, os.rename, path("re"), path("re/sub"))
    os.mkdir(path("rf"))
    fails(errno.ENOTEMPTY, os.rename, path("rf"), path("re"))


def test_open_unlinked():
    with open(path("gone"), "w+b") as file:
        file.write(b"before")
        file.flush()
        os.unlink(path("gone"))
        file.write(b" after")
        file.seek(0)
        assert file.read() == b"before after"
        assert os.fstat(file.fileno()).st_nlink == 0


def test_sparse_and_truncate():
    with open(path("sparse"), "w+b", buffering=0) as file:
        file.seek((1 << 32) + 5)
        file.write(b"end")
        assert os.fstat(file.fileno()).st_size == (1 << 32) + 8
        file.seek(1 << 20)
        assert file.read(4096) == bytes(4096)
        assert os.fstat(file.fileno()).st_blocks * 512 < 1 << 24
        file.truncate(10)
        assert os.fstat(file.fileno()).st_size == 10
        file.truncate(5000)
        file.seek(0)
        assert file.read() == bytes(5000)
    put("cut", b"x" * 3000000)
    os.truncate(path("cut"), 1234567)
    os.truncate(path("cut"), 2345678)
    assert get("cut") == b"x" * 1234567 + bytes(2345678 - 1234567)


def test_random_io_against_memory():
    rng = random.Random(5)
    size = 6 << 20
    model = bytearray()
    fd = os.open(path("random"), os.O_RDWR | os.O_CREAT)
    for step in range(600):
        at, length = rng.randrange(size), rng.choice([1, 100, 4096, 47008, 300000])
        kind = rng.random()
        if kind < 0.5:
            data = rng.randbytes(length)
            assert os.pwrite(fd, data, at) == length
            model.extend(bytes(max(0, at + length - len(model))))
            model[at:at + length] = data
        elif kind < 0.9:
            assert os.pread(fd, length, at) == bytes(model[at:at + length]), f"step {step}"
        elif kind < 0.95:
            os.ftruncate(fd, at)
            model = model[:at] + bytes(max(0, at - len(model)))
        else:
            os.fsync(fd)
        assert os.fstat(fd).st_size == len(model)
    os.close(fd)
    assert hashlib.sha256(get("random")).digest() == hashlib.sha256(model).digest()


def test_append():
    with open(path("append"), "ab") as one, open(path("append"), "ab") as two:
        for n in range(100):
            one.write(b"1" * n)
            one.flush()
            two.write(b"2" * n)
            two.flush()
    assert os.stat(path("append")).st_size == 2 * sum(range(100))
    threads = []
    def worker(mark):
        fd = os.open(path("together"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        for _ in range(200):
            os.write(fd, mark * 100)
        os.close(fd)
    for mark in (b"a", b"b", b"c", b"d"):
        threads.append(threading.Thread(target=worker, args=(mark,)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    data = get("together")
    assert len(data) == 4 * 200 * 100
    for at in range(0, len(data), 100):
        assert len(set(data[at:at + 100])) == 1, "records of two appenders are mixed"


def test_mmap():
    put("mapped", b"\0" * 70000)
    with open(path("mapped"), "r+b") as file:
        with mmap.mmap(file.fileno(), 0) as view:
            view[10:15] = b"hello"
            view[69990:69995] = b"world"
            view.flush()
            assert os.pread(file.fileno(), 5, 10) == b"hello"
            os.pwrite(file.fileno(), b"direct", 40000)
            assert view[40000:40006] == b"direct"
    data = get("mapped")
    assert data[10:15] == b"hello" and data[69990:69995] == b"world" and data[40000:40006] == b"direct"


def test_special_files():
    os.mkfifo(path("fifo"))
    assert stat.S_ISFIFO(os.stat(path("fifo")).st_mode)
    if os.geteuid() == 0:
        os.mknod(path("null"), stat.S_IFCHR | 0o666, os.makedev(1, 3))
        info = os.stat(path("null"))
        assert stat.S_ISCHR(info.st_mode) and info.st_rdev == os.makedev(1, 3)


def test_times():
    put("times", b"")
    os.utime(path("times"), ns=(1_234_567_890_123_456_789, -5_000_000_001))
    info = os.stat(path("times"))
    assert (info.st_atime_ns, info.st_mtime_ns) == (1_234_567_890_123_456_789, -5_000_000_001)
    before = os.stat(root).st_mtime_ns
    put("newer", b"")
    assert os.stat(root).st_mtime_ns > before


def test_xattrs():
    put("xattr", b"")
    os.setxattr(path("xattr"), "user.one", b"1" * 1000)
    os.setxattr(path("xattr"), "user.two", b"")
    assert sorted(os.listxattr(path("xattr"))) == ["user.one", "user.two"]
    assert os.getxattr(path("xattr"), "user.one") == b"1" * 1000
    fails(errno.EEXIST, os.setxattr, path("xattr"), "user.one", b"", os.XATTR_CREATE)
    fails(errno.ENODATA, os.setxattr, path("xattr"), "user.no", b"", os.XATTR_REPLACE)
    os.removexattr(path("xattr"), "user.one")
    fails(errno.ENODATA, os.getxattr, path("xattr"), "user.one")


def test_readdir_is_stable():
    os.mkdir(path("many"))
    for n in range(5000):
        os.close(os.open(path("many", f"f{n}"), os.O_CREAT))
    seen = []
    with os.scandir(path("many")) as entries:
        for count, entry in enumerate(entries):
            seen.append(entry.name)
            if count % 3 == 0:
                os.unlink(path("many", entry.name))
            if count % 7 == 0:
                os.close(os.open(path("many", f"new{count}"), os.O_CREAT))
    old = [name for name in seen if name.startswith("f")]
    assert len(old) == len(set(old)) == 5000, f"{len(old)} names, {len(set(old))} distinct"
    for name in os.listdir(path("many")):
        os.unlink(path("many", name))
    os.rmdir(path("many"))


def test_permissions():
    if os.geteuid() != 0:
        return
    os.chmod(root, 0o755)
    put("secret", b"s")
    os.chmod(path("secret"), 0o600)
    put("grouped", b"g")
    os.chown(path("grouped"), 0, 4242)
    os.chmod(path("grouped"), 0o640)
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([4242])
            os.setgid(65534)
            os.setuid(65534)
            fails(errno.EACCES, open, path("secret"), "rb")
            fails(errno.EACCES, open, path("new"), "wb")
            fails(errno.EACCES, os.unlink, path("secret"))
            fails(errno.EPERM, os.chmod, path("secret"), 0o777)
            assert get("grouped") == b"g", "supplementary groups count"
            os._exit(0)
        except BaseException as error:
            print(repr(error))
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    os.mkdir(path("shared"))
    os.chown(path("shared"), 0, 4242)
    os.chmod(path("shared"), 0o2775)
    put("shared/inherits", b"")
    assert os.stat(path("shared/inherits")).st_gid == 4242


def libc(name, *args):
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    if function(*args) != 0:
        raise OSError(ctypes.get_errno(), name)


def fallocate(fd, mode, offset, length):
    libc("fallocate", fd, mode, ctypes.c_long(offset), ctypes.c_long(length))


def test_space_is_reserved_and_given_back():
    keep, punch, zero = 1, 2, 16
    with open(path("space"), "w+b") as file:
        fd = file.fileno()
        fallocate(fd, 0, 0, 4 << 20)
        info = os.fstat(fd)
        assert info.st_size == 4 << 20 and info.st_blocks >= 8192, info
        fallocate(fd, keep, 0, 8 << 20)
        assert os.fstat(fd).st_size == 4 << 20
        os.pwrite(fd, b"x" * 300_000, 1 << 20)
        fallocate(fd, punch | keep, 1_100_000, 50_000)
        fallocate(fd, zero, 1_200_000, 10)
        data = os.pread(fd, 300_000, 1 << 20)
        for at in range(300_000):
            offset = at + (1 << 20)
            hole = 1_100_000 <= offset < 1_150_000 or 1_200_000 <= offset < 1_200_010
            assert data[at] == (0 if hole else 120), offset
        fallocate(fd, zero, 4 << 20, 1 << 20)
        assert os.fstat(fd).st_size == 5 << 20
        fallocate(fd, punch | keep, 0, 5 << 20)
        assert os.fstat(fd).st_blocks == 0 and os.fstat(fd).st_size == 5 << 20
        for mode in (8, 32):
            fails(errno.EOPNOTSUPP, fallocate, fd, mode, 0, 4096)


def test_data_and_holes_are_found():
    with open(path("sparse"), "w+b") as file:
        fd = file.fileno()
        fails(errno.ENXIO, os.lseek, fd, 0, os.SEEK_DATA)
        os.pwrite(fd, b"x" * 5000, 1 << 20)
        os.pwrite(fd, b"x", 3 << 20)
        assert os.lseek(fd, 0, os.SEEK_HOLE) == 0
        assert os.lseek(fd, 0, os.SEEK_DATA) == 1 << 20
        assert os.lseek(fd, 1 << 20, os.SEEK_HOLE) == (1 << 20) + 5000
        assert os.lseek(fd, (1 << 20) + 5000, os.SEEK_DATA) == 3 << 20
        assert os.lseek(fd, 3 << 20, os.SEEK_HOLE) == (3 << 20) + 1
        fails(errno.ENXIO, os.lseek, fd, (3 << 20) + 1, os.SEEK_HOLE)


def test_ranges_are_copied():
    data = random.Random(5).randbytes(3_000_000)
    put("source", data)
    with open(path("source"), "rb") as source, open(path("target"), "w+b") as target:
        assert os.copy_file_range(source.fileno(), target.fileno(), 4_000_000, 0, 1000) == 3_000_000
        assert os.copy_file_range(source.fileno(), target.fileno(), 10, 3_000_000, 0) == 0
        assert os.copy_file_range(target.fileno(), target.fileno(), 500, 1000, 0) == 500
        fails(errno.EINVAL, os.copy_file_range, target.fileno(), target.fileno(), 500, 0, 499)
    assert get("target") == data[:500] + bytes(500) + data


def test_files_without_names():
    at, follow = -100, 0x400

    def link(fd, name):
        libc("linkat", at, f"/proc/self/fd/{fd}".encode(), at, path(name).encode(), follow)

    fd = os.open(root, os.O_TMPFILE | os.O_RDWR, 0o600)
    os.write(fd, b"no name")
    assert os.fstat(fd).st_nlink == 0
    link(fd, "a name")
    assert os.fstat(fd).st_nlink == 1 and get("a name") == b"no name"
    os.close(fd)
    fd = os.open(root, os.O_TMPFILE | os.O_RDWR | os.O_EXCL, 0o600)
    fails(errno.ENOENT, link, fd, "none")
    os.close(fd)


def test_names_change_places():
    at, noreplace, exchange, whiteout = -100, 1, 2, 4

    def rename(old, new, flags):
        libc("renameat2", at, path(old).encode(), at, path(new).encode(), flags)

    put("one", b"1")
    os.makedirs(path("places/two"))
    put("places/two/inner", b"2")
    fails(errno.EEXIST, rename, "one", "places", noreplace)
    fails(errno.EINVAL, rename, "one", "three", whiteout)
    fails(errno.ENOENT, rename, "one", "three", exchange)
    rename("one", "places/two", exchange)
    assert get("places/two") == b"1" and get("one/inner") == b"2" and os.stat(path("places")).st_nlink == 2


def test_acls():
    def run(user, *command):
        who = {"user": user, "group": user, "extra_groups": []} if user else {}
        return subprocess.run(command, capture_output=True, text=True, **who)

    def check(user, *command):
        done = run(user, *command)
        assert done.returncode == 0, done
        return done.stdout

    # Others have to get there.
    os.chmod(root, 0o755)
    put("listed", b"secret")
    name = path("listed")
    os.chmod(name, 0o600)
    assert run(1000, "cat", name).returncode != 0
    check(0, "setfacl", "-m", "u:1000:r,g:2000:rw", name)
    assert os.stat(name).st_mode & 0o777 == 0o660
    assert check(1000, "cat", name) == "secret"
    check(2000, "sh", "-c", f"echo more >> '{name}'")
    assert run(1000, "sh", "-c", f"echo more >> '{name}'").returncode != 0
    os.chmod(name, 0o640)
    assert "group:2000:rw-\t#effective:r--" in check(0, "getfacl", "-pn", name)
    assert run(2000, "sh", "-c", f"echo more >> '{name}'").returncode != 0
    assert run(1000, "setfacl", "-m", "u:1001:r", name).returncode != 0
    check(0, "setfacl", "-b", name)
    assert run(1000, "cat", name).returncode != 0
    fails(errno.ENODATA, os.getxattr, name, "system.posix_acl_access")
    os.mkdir(path("heirs"))
    check(0, "setfacl", "-d", "-m", "u:1000:rwx,o::-", path("heirs"))
    old = os.umask(0o077)
    put("heirs/new", b"")
    os.mkdir(path("heirs/sub"))
    put("plain", b"")
    os.umask(old)
    modes = [os.stat(path(*names)).st_mode & 0o777 for names in (["heirs", "new"], ["heirs", "sub"], ["plain"])]
    assert modes == [0o660, 0o770, 0o600], [oct(mode) for mode in modes]
    assert "default:user:1000:rwx" in check(0, "getfacl", "-pn", path("heirs/sub"))
    os.symlink("listed", path("link to listed"))
    fails(errno.EOPNOTSUPP, os.setxattr, path("link to listed"), "system.posix_acl_access", b"\2\0\0\0",
          follow_symlinks=False)


def as_user(user, function, *args):
    """Calls a function as another user; the errno of its failure, 0 for none."""
    child = os.fork()
    if child == 0:
        code = 255
        try:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            function(*args)
            code = 0
        except OSError as error:
            code = error.errno
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_privileges_go():
    os.chmod(root, 0o755)
    name = path("privileged")
    put("privileged", b"x")
    mode = lambda: stat.S_IMODE(os.stat(name).st_mode)
    uses = [lambda: os.write(os.open(name, os.O_WRONLY), b"y"), lambda: os.truncate(name, 0),
            lambda: os.open(name, os.O_WRONLY | os.O_TRUNC),
            lambda: os.posix_fallocate(os.open(name, os.O_WRONLY), 0, 100)]
    for number, use in enumerate(uses):
        os.chown(name, 7, 7)
        os.chmod(name, 0o6777)
        assert as_user(1000, use) == 0
        assert mode() == 0o777, (number, oct(mode()))
    os.chmod(name, 0o6777)
    os.chown(name, 1000, 1000)
    assert mode() == 0o777
    os.chmod(name, 0o6777)
    assert as_user(1000, os.chown, name, -1, 1000) == 0
    assert mode() == 0o777
    os.chmod(name, 0o6777)
    put("privileged", b"by root")
    assert mode() == 0o6777, "the superuser's writes take nothing"
    rights = bytes.fromhex("0000000201000000000000000000000000000000")
    for use in [lambda: put("privileged", b"caps"), lambda: os.chown(name, 1, 1), lambda: os.truncate(name, 1)]:
        os.setxattr(name, "security.capability", rights)
        assert os.getxattr(name, "security.capability") == rights
        use()
        fails(errno.ENODATA, os.getxattr, name, "security.capability")


def test_access_times():
    def read(flags=0):
        fd = os.open(path("read"), os.O_RDONLY | flags)
        os.read(fd, 10)
        os.close(fd)
        return os.stat(path("read")).st_atime_ns

    put("read", b"data")
    os.utime(path("read"), ns=(10**18, 10**18 + 1))
    assert read(os.O_NOATIME) == 10**18
    now = read()
    assert now > 10**18, "older than the last change"
    assert read() == now, "not older than a day, nothing changed since"
    os.mkdir(path("listing"))
    os.utime(path("listing"), ns=(10**18, 10**18 + 1))
    os.listdir(path("listing"))
    assert os.stat(path("listing")).st_atime_ns > 10**18


def test_numbers_of_inodes():
    os.mkdir(path("numbered"))
    for name in "abc":
        put(f"numbered/{name}", b"")
    os.mkdir(path("numbered/d"))
    os.symlink("a", path("numbered/s"))
    with os.scandir(path("numbered")) as entries:
        found = {entry.name: (entry.inode(), entry.is_dir(follow_symlinks=False)) for entry in entries}
    for name, (ino, is_dir) in found.items():
        info = os.lstat(path("numbered", name))
        assert ino == info.st_ino and is_dir == stat.S_ISDIR(info.st_mode), name
    assert len({ino for ino, _ in found.values()}) == 5


def test_long_names_and_paths():
    every = bytes(set(range(1, 256)) - {ord("/")})
    for name in [every, b"\xff" * 255, every[::-1][:200]]:
        where = os.path.join(root.encode(), name)
        with open(where, "wb") as file:
            file.write(name)
        assert name in os.listdir(root.encode())
        os.rename(where, where[:-1] + b"!")
        os.unlink(where[:-1] + b"!")
    # The longest path there can be, with its terminator, and one byte more.
    longest = 4095
    at = root
    while len(at) + 201 < longest:
        at = os.path.join(at, "p" * 200)
        os.mkdir(at)
    last = os.path.join(at, "f" * (longest - len(at) - 1))
    assert len(last) == longest
    with open(last, "wb") as file:
        file.write(b"deep")
    assert os.stat(last).st_size == 4
    fails(errno.ENAMETOOLONG, os.stat, last + "x")
    here = os.getcwd()
    os.chdir(at)
    for _ in range(5):
        os.mkdir("q" * 255)
        os.chdir("q" * 255)
    with open("beyond", "wb") as file:
        file.write(b"x")
    assert os.listdir(".") == ["beyond"]
    os.chdir(here)


def test_sticky_directories():
    os.chmod(root, 0o755)
    os.mkdir(path("sticky"))
    os.chmod(path("sticky"), 0o1777)
    for user, name in [(1000, "mine"), (2000, "yours")]:
        put(f"sticky/{name}", b"")
        os.chown(path("sticky", name), user, user)
    mine, yours, new = (path("sticky", name) for name in ("mine", "yours", "new"))
    assert as_user(1000, os.unlink, yours) == errno.EPERM
    assert as_user(1000, os.rename, yours, new) == errno.EPERM
    assert as_user(1000, os.rename, mine, yours) == errno.EPERM
    assert as_user(1000, os.rename, mine, new) == 0
    assert as_user(1000, os.unlink, new) == 0


def test_locks():
    import fcntl
    with open(path("lock"), "wb") as one, open(path("lock"), "wb") as two:
        fcntl.flock(one, fcntl.LOCK_EX)
        fails(errno.EAGAIN, fcntl.flock, two, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(one, fcntl.LOCK_UN)
        fcntl.flock(two, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_programs_that_cannot_be_read():
    if os.geteuid() != 0:
        return
    os.chmod(root, 0o755)
    program = path("program")
    shutil.copy("/bin/true", program)
    run = lambda: subprocess.run([program], check=True)
    read = lambda: open(program, "rb").close()
    # Several times: the second one is answered from what the mount keeps.
    for mode in (0o711, 0o111, 0o4711):
        os.chmod(program, mode)
        for _ in range(3):
            assert as_user(65534, run) == 0, oct(mode)
            assert as_user(65534, read) == errno.EACCES, oct(mode)
    os.chmod(program, 0o744)
    for _ in range(3):
        assert as_user(65534, run) == errno.EACCES
        assert as_user(65534, read) == 0
    os.chown(program, 65534, 65534)
    os.chmod(program, 0o100)
    assert as_user(65534, run) == 0 and as_user(65534, read) == errno.EACCES
    os.chmod(program, 0o444)
    assert as_user(65534, run) == errno.EACCES
    fails(errno.EACCES, run)


def test_capabilities_go():
    if os.geteuid() != 0:
        return
    os.chmod(root, 0o755)
    # Version 2, effective: CAP_NET_RAW.
    capability = struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0)
    name = path("capable")
    put("capable", b"x" * 10000)
    os.chown(name, 1000, 1000)
    os.chmod(name, 0o755)

    def opened(use):
        fd = os.open(name, os.O_RDWR)
        use(fd)
        os.close(fd)

    uses = {
        "truncate": lambda: os.truncate(name, 5000),
        "ftruncate": lambda: opened(lambda fd: os.ftruncate(fd, 4000)),
        "fallocate": lambda: opened(lambda fd: fallocate(fd, 0, 0, 8192)),
        "punch": lambda: opened(lambda fd: fallocate(fd, 3, 0, 4096)),
        "write": lambda: opened(lambda fd: os.pwrite(fd, b"y", 0)),
        "chgrp": lambda: os.chown(name, -1, 1000),
    }
    for what, use in uses.items():
        os.setxattr(name, "security.capability", capability)
        assert as_user(1000, use) == 0, what
        fails(errno.ENODATA, os.getxattr, name, "security.capability")
    os.setxattr(name, "security.capability", capability)
    assert as_user(1000, os.removexattr, name, "security.capability") == errno.EPERM
    assert as_user(1000, os.setxattr, name, "security.capability", capability) == errno.EPERM
    assert as_user(1001, os.truncate, name, 0) == errno.EACCES
    assert os.getxattr(name, "security.capability") == capability


def test_a_time_of_access_that_is_set_while_a_reader_has_the_file_stays():
    put("accessed", b"data")
    past = 1_000_000_000
    with open(path("accessed"), "rb") as file:
        assert file.read() == b"data"
        os.utime(path("accessed"), (past, past))
        assert os.stat(path("accessed")).st_atime == past
    assert os.stat(path("accessed")).st_atime == past


def test_times_before_1970():
    put("old", b"data")
    for _ in range(2):
        os.utime(path("old"), (-5, -86400))
        found = os.stat(path("old"))
        assert (found.st_atime, found.st_mtime) == (-5, -86400), found
        assert (os.lstat(path("old")).st_atime, os.stat(path("old")).st_mtime) == (-5, -86400)


def test_a_removed_directory_is_empty():
    os.mkdir(path("left"))
    put("left/file", b"")
    script = (
        "import os, sys\n"
        "os.unlink('file'); os.rmdir(sys.argv[1])\n"
        "assert os.listdir('.') == [], os.listdir('.')\n"
        "assert os.stat('.').st_nlink == 0\n"
        "try:\n    open('new', 'w')\nexcept FileNotFoundError:\n    pass\nelse:\n    raise AssertionError('it was made')\n"
    )
    subprocess.run([sys.executable, "-c", script, path("left")], cwd=path("left"), check=True)


def test_statvfs():
    info = os.statvfs(root)
    assert info.f_blocks > 0 and info.f_bavail <= info.f_blocks and info.f_namemax == 255


failed = 0
for name, test in sorted(globals().copy().items()):
    if name.startswith("test_"):
        try:
            test()
            print("ok  ", name)
        except Exception as error:
            failed += 1
            print("FAIL", name, repr(error))
            import traceback
            traceback.print_exc()
sys.exit(1 if failed else 0)
