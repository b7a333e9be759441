"""A server of S3 for tests, which can be stopped and killed, and a client that sees what a copytool has left there.

The server is versitygw, or moto (tools/install-s3.sh). moto believes every signature and forgets everything when it ends.
"""

import hashlib
import hmac
import http.client
import os
import re
import signal
import socket
import subprocess
import time
import urllib.parse

PORT = 7480
REGION = "us-east-1"
ID = "WEFTTESTID"
SECRET = "weft/test+secret=4711"


def signed(method, path, query, host, body, now=None):
    """Headers with the signature of a request (AWS Signature Version 4)."""
    date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    digest = hashlib.sha256(body).hexdigest()
    headers = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": date}
    names = ";".join(headers)
    canonical = "\n".join([method, path, query, *(f"{n}:{v}" for n, v in headers.items()), "", names, digest])
    scope = f"{date[:8]}/{REGION}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", date, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{SECRET}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    headers["authorization"] = f"AWS4-HMAC-SHA256 Credential={ID}/{scope},SignedHeaders={names},Signature={signature}"
    return headers


class Server:
    """A server on this machine, with one bucket."""

    bucket = "weft-archive"
    endpoint = f"http://127.0.0.1:{PORT}"

    def __init__(self, program, work):
        self.program, self.data, self.work = program, os.path.join(work, "s3"), work
        # What the server says who it is; without it, it is asked without TLS.
        self.certificate = []
        self.checks = os.path.basename(program) == "versitygw"
        self.log = open(os.path.join(work, "s3.log"), "a")
        self.process = None
        os.mkdir(self.data)

    def start(self):
        if self.checks:
            words = ["--port", f"127.0.0.1:{PORT}", "--region", REGION, "--quiet", "--keep-alive", *self.certificate, "posix", self.data]
        else:
            words = ["-H", "127.0.0.1", "-p", str(PORT)]
        env = {**os.environ, "ROOT_ACCESS_KEY": ID, "ROOT_SECRET_KEY": SECRET}
        self.process = subprocess.Popen([self.program, *words], stdout=self.log, stderr=self.log, env=env)
        end = time.monotonic() + 60
        while True:
            assert self.process.poll() is None and time.monotonic() < end, "the server of S3 does not start"
            try:
                socket.create_connection(("127.0.0.1", PORT), 1).close()
                return
            except OSError:
                time.sleep(0.05)

    def secure(self):
        """Gives the server a certificate, and the file of the authority that has signed it."""
        ca, name = os.path.join(self.work, "ca"), os.path.join(self.work, "server")
        new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        run = lambda *words: subprocess.run([*new, *words], check=True, stdout=self.log, stderr=self.log)
        run("-keyout", f"{ca}.key", "-out", f"{ca}.pem", "-subj", "/CN=authority")
        run("-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", "/CN=server", "-CA", f"{ca}.pem", "-CAkey", f"{ca}.key",
            "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE")
        self.certificate = ["--cert", f"{name}.pem", "--key", f"{name}.key"]
        return f"{ca}.pem"

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def ask(self, method, key="", body=b"", status=200, **query):
        path = urllib.parse.quote(f"/{self.bucket}" + (f"/{key}" if key else ""))
        query = "&".join(f"{name.replace('_', '-')}={urllib.parse.quote(value, safe='')}" for name, value in sorted(query.items()))
        connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
        headers = signed(method, path, query, f"127.0.0.1:{PORT}", body)
        connection.request(method, path + (f"?{query}" if query else ""), body, headers)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        assert answer.status == status, f"{method} {path}: {answer.status} {text[:300]}"
        return text

    def keys(self):
        """Keys of all objects."""
        found, token = [], {}
        while True:
            text = self.ask("GET", list_type="2", **token).decode()
            found += re.findall(r"<Key>(.*?)</Key>", text)
            more = re.search(r"<NextContinuationToken>(.*?)</NextContinuationToken>", text)
            if not more:
                return found
            token = {"continuation_token": more[1]}

    def get(self, key):
        return self.ask("GET", key)

    def put(self, key, body):
        self.ask("PUT", key, body)

    def delete(self, key):
        self.ask("DELETE", key, status=204)
