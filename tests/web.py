"""What `weft web` answers: web.py ADDRESS TOKEN-FILE FSNAME MOUNT, or, where only servers are, web.py ADDRESS TOKEN-FILE --served PID"""

import json
import os
import stat
import sys
import time
import urllib.error
import urllib.request

at, token_file, fsname, mount = sys.argv[1:]
token = open(token_file).read().strip()


def ask(path, shown=None, method="GET"):
    """Status, kind and body."""
    headers = {} if shown is None else {"Authorization": f"Bearer {shown}"}
    try:
        with urllib.request.urlopen(urllib.request.Request(at + path, headers=headers, method=method), timeout=60) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def must(what, is_so):
    if not is_so:
        sys.exit(f"wrong: {what}")


def served(pid):
    """Where nothing is mounted, the targets are told of; and looking leaves no thread and no file behind."""

    def left():
        return len(os.listdir(f"/proc/{pid}/task")), len(os.listdir(f"/proc/{pid}/fd"))

    looks = {}
    while len(looks) < 6:
        state = json.loads(ask("/state.json", token)[2])
        must("targets are told of", not state["mounts"] and any("served here" in line for line in state["served"]))
        looks.setdefault(state["asked_ms"], left())
        time.sleep(0.2)
    # Connections to servers are made with the first look, and some threads begin with work.
    first, last = list(looks.values())[1], left()
    must(f"threads and files stay as many: {first}, then {last}", last[0] <= first[0] + 2 and last[1] <= first[1] + 2)


if fsname == "--served":
    served(mount)
    sys.exit(0)

must("the token is its owner's", stat.S_IMODE(os.stat(token_file).st_mode) == 0o600)
for path, kind in (("/", "text/html"), ("/page.js", "text/javascript"), ("/page.css", "text/css")):
    status, headers, body = ask(path)
    must(f"{path} is there for everybody", status == 200 and headers["Content-Type"].startswith(kind))
    must(f"{path} loads nothing from elsewhere", "default-src 'none'" in headers["Content-Security-Policy"])
    must(f"{path} has no token", token not in body and "//" not in body.replace("http://www.w3.org/", "").replace("http://HOST:PORT", "").replace("// ", ""))
for shown in (None, "", token[:-1], token + "0", token[:-1] + ("0" if token[-1] != "0" else "1")):
    status, _, body = ask("/state.json", shown)
    must("a wrong token is refused", status == 401 and "mounts" not in body)
must("nothing else is there", ask("/etc/passwd", token)[0] == 404)
must("nothing is changed", ask("/state.json", token, "POST")[0] == 405)

state = json.loads(ask("/state.json", token)[2])
here = [one for one in state["mounts"] if one["mountpoint"] == mount]
must("the mount is well", len(here) == 1 and here[0]["healthy"])
names = {target["name"] for target in here[0]["targets"]}
must("all targets are there", {f"{fsname}-MDT0000", f"{fsname}-OST0003"} <= names)
pools = {pool["name"]: pool["osts"] for pool in state["pools"] if pool["fsname"] == fsname}
must("the pool is there", pools == {"shown": [f"{fsname}-OST0000", f"{fsname}-OST0002"]})
must("a client is there", state["clients_count"] == 1 and state["clients"][0]["mounts"] == 2)


def written(state):
    """Bytes that clients wrote, as the page counts them."""
    lines = [line.split() for line in state["metrics"].splitlines() if line.startswith("lustre_write_bytes_total{")]
    return sum(int(value) for _, value in lines)


def had(state):
    """Inodes and bytes of the user 4718, who has no name, and of the user 3, who has one."""
    return {o["id"]: (o["name"], o["inodes"], o["bytes"]) for o in state["owners"] if o["kind"] == "user" and o["id"] in (3, 4718)}


must("those who have nothing are not there", not had(state))
for name, uid in (("shown", 4718), ("shown.3", 3)):
    with open(f"{mount}/{name}", "wb") as file:
        os.fchown(file.fileno(), uid, uid)
        file.write(bytes(3 << 20))
        os.fsync(file.fileno())
until = time.monotonic() + 30
while (now := had(json.loads(ask("/state.json", token)[2]))) != {4718: (None, 1, 3 << 20), 3: ("sys", 1, 3 << 20)}:
    must(f"owners are there: {now}", time.monotonic() < until)
    time.sleep(0.2)
for name in ("shown", "shown.3"):
    os.unlink(f"{mount}/{name}")
# An answer serves for a second.
end = time.monotonic() + 30
while written(json.loads(ask("/state.json", token)[2])) < written(state) + (3 << 20):
    must("what was written is counted", time.monotonic() < end)
    time.sleep(0.2)
