#!/usr/bin/env python3
"""What `weft exporter` answers: exporter.py FSNAME PORT LCTL [--silent OSTS]. Its text is read strictly, and its numbers are compared
with those of `lctl get_param`."""

import re
import subprocess
import sys
import time
import urllib.request

FSNAME, PORT, LCTL = sys.argv[1:4]
SILENT = int(sys.argv[5]) if len(sys.argv) > 4 else 0
NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (-?[0-9.e+-]+)")


def fetch(path="/metrics"):
    began = time.time()
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}{path}", timeout=30) as answer:
        return answer.read().decode(), answer.headers["Content-Type"], time.time() - began


def read(text):
    """All samples by name and labels; every line is one, or says help and kind of the metric that follows."""
    assert text.endswith("\n")
    samples, helped, kinds, current = {}, set(), {}, None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            current = line.split(" ", 3)[2]
            assert current not in helped, f"{current} comes twice"
            helped.add(current)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == current and kind in ("counter", "gauge"), line
            kinds[name] = kind
        else:
            match = SAMPLE.fullmatch(line)
            assert match, line
            name, labels, value = match.groups()
            assert name == current and name in kinds, line
            key = (name, labels or "")
            assert key not in samples, line
            samples[key] = float(value)
    return samples


def get_param(pattern):
    command = [LCTL, "get_param", pattern]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=60).stdout.decode()


def main():
    text, kind, took = fetch()
    assert kind.startswith("text/plain; version=0.0.4"), kind
    samples = read(text)
    # Others may be tested on the same machine.
    own = {key: value for key, value in samples.items() if FSNAME in key[1] or not key[1]}
    up = [value for (name, _), value in own.items() if name == "weft_target_up"]
    assert (len(up), up.count(0)) == (6, SILENT), up
    assert took < 8, took
    for path in ("/", "/other"):
        try:
            body, _, _ = fetch(path)
            assert path == "/" and "/metrics" in body
        except urllib.error.HTTPError as error:
            assert path == "/other" and error.code == 404
    if SILENT:
        assert samples[("lustre_health_healthy", "")] == 0
        return
    osts = get_param(f"obdfilter.{FSNAME}-*.stats")
    written = {}
    for block in osts.split("obdfilter.")[1:]:
        target = block.split(".", 1)[0]
        for row in block.splitlines():
            words = row.split()
            if words and words[0] == "write_bytes":
                written[target] = (int(words[1]), int(words[4]), int(words[5]), int(words[6]))
    assert written
    for target, (count, least, most, total) in written.items():
        labels = f'component="ost",target="{target}"'
        got = [own[(f"lustre_write_{what}", labels)] for what in
               ("samples_total", "minimum_size_bytes", "maximum_size_bytes", "bytes_total")]
        assert got == [count, least, most, total], (target, got)
    sizes = dict(line.split("=") for line in get_param(f"osd-*.{FSNAME}-*.kbytestotal").split())
    assert len(sizes) == 5, sizes
    for name, size in sizes.items():
        target = name.split(".")[1]
        component = "mdt" if "MDT" in target else "ost"
        assert own[("lustre_capacity_kilobytes", f'component="{component}",target="{target}"')] == int(size)
    assert own[("lustre_connected_clients", f'component="mdt",target="{FSNAME}-MDT0000"')] == 2
    jobs = {labels for (name, labels) in own if name == "lustre_job_stats_total"}
    assert any('jobid="dd.0"' in labels for labels in jobs), jobs
    for target in written:
        shown = set(re.findall(r'jobid="([^"]*)"', " ".join(labels for labels in jobs if target in labels)))
        assert len(shown - {"other"}) <= 1, shown


main()
