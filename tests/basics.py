"""What one needs to live in a file system, on a weft mount: `basics.py MOUNTPOINT`."""

import errno
import hashlib
import mmap
import os
import random
import stat
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


def test_locks():
    import fcntl
    with open(path("lock"), "wb") as one, open(path("lock"), "wb") as two:
        fcntl.flock(one, fcntl.LOCK_EX)
        fails(errno.EAGAIN, fcntl.flock, two, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(one, fcntl.LOCK_UN)
        fcntl.flock(two, fcntl.LOCK_EX | fcntl.LOCK_NB)


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
