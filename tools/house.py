#!/usr/bin/env python3
"""Figures of the house: how large its types are, and who calls whom both ways. Read from the source by patterns, so that two commits
can be compared; tests do not count. Usage: tools/house.py [TOP]. `--check` prints only what is above its limit, and fails then.
"""

import collections
import os
import re
import sys

GIVEN = [word for word in sys.argv[1:] if word != "--check"]
TOP = GIVEN[0] if GIVEN else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FILE_LINES_MAX = 600
ARGUMENTS_MAX = 5
# Of the type with the most methods of a crate.
METHODS_MAX = 40
FIELDS_MAX = 12
# Modules that call each other both ways: a session within one process has both its ends in `rpc`.
PAIRS_MAX = collections.Counter(rpc=1)
# Methods of the standard library and of the crates that are used everywhere: a call of one says nothing of whose it is.
COMMON = set("""all append arm as_ref begin bytes call change client close complete count data drain entry extend file_name first
fits for_each free get has insert is_empty iter keep last len lock make map max min name new next note of once order other
permissions pop push put read remove replace rest seek send set shared shut size sort spawn split start state store swap take
time truncate update wait write""".split())


def source(path):
    """The text of a file without tests, comments and strings."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    text = re.split(r"\n#\[cfg\(test\)\]\n(?:pub(?:\(\w+\))? )?mod \w+ \{", text)[0]
    text = re.sub(r'"(?:\\.|[^"\\])*"', '""', text)
    return re.sub(r"//[^\n]*", "", text)


def is_test(path):
    """Whether a file holds tests only."""
    return "/tests/" in path or path.endswith(("/tests.rs", "/testing.rs", "/model.rs"))


def crates():
    """Name of each crate, and its files with their text."""
    top = os.path.join(TOP, "crates")
    for crate in sorted(os.listdir(top)):
        files = {}
        for directory, _, names in os.walk(os.path.join(top, crate, "src")):
            for name in sorted(names):
                path = os.path.join(directory, name)
                if name.endswith(".rs") and not is_test(path):
                    files[os.path.relpath(path, os.path.join(top, crate, "src"))] = source(path)
        if files:
            yield crate, files


def block(text, start):
    """The text between the brace at or behind `start` and its partner."""
    begin = text.find("{", start)
    depth = 0
    for at in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[begin + 1:at]
    return text[begin + 1:]


def home(name, path, defined):
    """The file that defines the type an `impl` in `path` means: types of several modules may share a name, and the nearest one is
    meant, which is in this file, or else in the file that has most folders in common with it."""
    owners = defined.get(name, [path])
    folders = lambda of: os.path.dirname(of).split("/")
    return path if path in owners else max(owners, key=lambda of: (len(os.path.commonprefix([folders(of), folders(path)])), of))


def largest(files):
    """(methods, impl blocks, files, fields, name, where it is defined) of the type with the most methods."""
    methods, blocks, fields = (collections.Counter() for _ in range(3))
    seen, defined = collections.defaultdict(set), collections.defaultdict(list)
    for path, text in files.items():
        for found in re.finditer(r"^(?:pub(?:\([\w: ]+\))? )?(struct|enum) (\w+)[^;{(]*([;{(])", text, re.M):
            defined[found[2]].append(path)
            if found[1] == "struct" and found[3] == "{":
                body = block(text, found.start())
                fields[found[2], path] = len(re.findall(r"^\s+(?:pub(?:\([\w: ]+\))? )?\w+: ", body, re.M))
    for path, text in files.items():
        for found in re.finditer(r"^impl(?:<[^{]*?>)? (\w+)(?:<[^{]*?>)? (?:where [^{]*)?\{", text, re.M):
            # A method that only tests have does not count.
            body = re.sub(r"^    #\[cfg\(test\)\]\n    \S.*", "", block(text, found.start()), flags=re.M)
            count = len(re.findall(r"^    (?:pub(?:\([\w: ]+\))? )?(?:const )?(?:async )?fn ", body, re.M))
            of = found[1], home(found[1], path, defined)
            methods[of] += count
            blocks[of] += 1
            seen[of].add(path)
    if not methods:
        return None
    of = max(methods, key=lambda of: (methods[of], of))
    return methods[of], blocks[of], len(seen[of]), fields[of], *of


def module(path):
    """The subsystem of a file: its folder below src, or itself."""
    head = path.split("/")[0]
    return head[:-3] if head.endswith(".rs") else head


def both_ways(files, elsewhere):
    """Pairs of modules of which each calls methods that the other one alone defines, with how often. Names that are common, or that
    another crate defines too, do not count: a call of one says nothing of whose it is."""
    defined = collections.defaultdict(set)
    for path, text in files.items():
        for name in re.findall(r"\bfn (\w+)", text):
            defined[name].add(module(path))
    calls = collections.Counter()
    for path, text in files.items():
        for name in re.findall(r"(?:\.|::)(\w+)\(", text):
            owners = defined.get(name, set())
            if name not in COMMON and name not in elsewhere and len(owners) == 1 and module(path) not in owners:
                calls[module(path), next(iter(owners))] += 1
    pairs = [(a, b, calls[a, b], calls[b, a]) for a, b in calls if a < b and calls[b, a]]
    return sorted(pairs, key=lambda pair: -min(pair[2:]))


def arguments(text):
    """The arguments of each function, `self` not counted."""
    for found in re.finditer(r"\bfn \w+(?:<[^(]*?>)?\(", text):
        depth, parts, at = 1, [""], found.end()
        while depth and at < len(text):
            letter = text[at]
            depth += {"(": 1, "[": 1, "<": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(letter, 0)
            depth -= letter == ">" and text[at - 1] != "-"
            if letter == "," and depth == 1:
                parts.append("")
            elif depth:
                parts[-1] += letter
            at += 1
        yield [part for part in (part.strip() for part in parts) if part and not re.fullmatch(r"(?:&\s*)?(?:'\w+ )?(?:mut )?self.*", part, re.S)]


def check():
    """Says what is above its limit; the status to end with."""
    kept, wrong = list(crates()), []
    defined = {crate: set(re.findall(r"\bfn (\w+)", "\n".join(files.values()))) for crate, files in kept}
    for crate, files in kept:
        methods, _, _, fields, name, path = largest(files) or (0, 0, 0, 0, "", "")
        if methods > METHODS_MAX or fields > FIELDS_MAX:
            wrong.append(f"{crate}/{path}: {name} has {methods} methods and {fields} fields; {METHODS_MAX} and {FIELDS_MAX} are permitted: give a part of it a type of its own")
        elsewhere = {name for other, texts in defined.items() if other != crate for name in texts}
        pairs = both_ways(files, elsewhere)
        if len(pairs) > PAIRS_MAX[crate]:
            wrong += [f"{crate}: {a} and {b} call each other, {there} and {back} times: one of them has to be below the other" for a, b, there, back in pairs]
    print("\n".join(wrong) or "house: all within the limits")
    return bool(wrong)


def main():
    """Prints the figures."""
    many, bools, tuples, long_files, lines = 0, 0, 0, [], {}
    print("largest type of each crate: methods, impl blocks, files, fields, where")
    kept = list(crates())
    for crate, files in kept:
        found = largest(files)
        if found:
            print(f"  {crate:8} {found[4]:16} {found[0]:4} {found[1]:4} {found[2]:4} {found[3]:4}  {found[5]}")
    defined = {crate: set(re.findall(r"\bfn (\w+)", "\n".join(files.values()))) for crate, files in kept}
    print("modules that call each other both ways: calls there, calls back")
    for crate, files in kept:
        elsewhere = {name for other, texts in defined.items() if other != crate for name in texts}
        pairs = both_ways(files, elsewhere)
        shown = ", ".join(f"{a} and {b} {there}/{back}" for a, b, there, back in pairs[:6])
        print(f"  {crate:8} {len(pairs):3}  {shown}")
    for crate, files in kept:
        lines[crate] = sum(text.count("\n") for text in files.values())
        for path, text in files.items():
            if text.count("\n") > FILE_LINES_MAX:
                long_files.append(f"{crate}/{path} {text.count(chr(10))}")
            for parts in arguments(text):
                many += len(parts) > ARGUMENTS_MAX
                bools += sum(bool(re.search(r":\s*bool$", part)) for part in parts)
                tuples += sum(part.startswith("(") or bool(re.search(r":\s*\((?!\))", part)) for part in parts)
    print(f"files above {FILE_LINES_MAX} lines without tests: {len(long_files)}  {', '.join(long_files)}")
    print(f"functions with more than {ARGUMENTS_MAX} arguments: {many}")
    print(f"bool parameters: {bools}, tuple parameters: {tuples}")
    print("lines without tests: " + ", ".join(f"{crate} {count}" for crate, count in lines.items()))


if __name__ == "__main__":
    sys.exit(check() if "--check" in sys.argv else main())
