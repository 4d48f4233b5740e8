# SPDX-License-Identifier: Apache-2.0
"""What the lines of the incident table about files need: two nodes of their own, damaged entries, names that processes left."""
import hashlib
import json
import os

PAGE = 4096
GRAPH, AUTOGRAD = "fxgraph/*/f*/*", "aotautograd/a*/*"


class Pair:
    """Two nodes with a cluster of their own; what is written goes through torch."""

    def __init__(self, cpu, hand, name="files"):
        self.writer, self.reader = (cpu.node(f"{name}-{which}", None, "--prefix", name) for which in ("writer", "reader"))
        self._hand, self._scratch = hand, cpu.directory / "content"

    def write(self, name, content):
        self._scratch.write_bytes(content)
        self._hand("write_atomic", path=self.writer.cache / name, source=self._scratch)
        self.writer.sync()


def of_another_key(name, letter):
    """The entry's place under a key of the test's own: what is checked is the last part, the hash of the content."""
    parts = name.split("/")
    parts[-2] = parts[-2][0] + letter * 51
    if parts[0] == "fxgraph":
        parts[1] = letter * 2
    return "/".join(parts)


def left_behind(key):
    """Names that a process left when it was killed, in the directory of this key and elsewhere."""
    return [f"{key}/.4711.140211.tmp", "triton/0/tmp.01234567-89ab-cdef-0123-456789abcdef/k.json",
            f"triton/0/{'A' * 52}/tmp.pid_4711_01234567-89ab-cdef-0123-456789abcdef/k.ttir", "locks/k.lock",
            f"ab/c{'b' * 51}.main_CxxBuild/x", "tmpabcdefgh/x"]


def leave_behind(pair, cpu, letter):
    """(what is left on the writer, the shared name beside it)"""
    (name,) = cpu.of_a(GRAPH)
    content = (cpu.a.cache / name).read_bytes()
    name = of_another_key(name, letter)
    names = left_behind(os.path.dirname(name))
    for left in names:
        (pair.writer.cache / left).parent.mkdir(parents=True, exist_ok=True)
        (pair.writer.cache / left).write_bytes(content)
    pair.write(name, content)
    return set(names), name


def with_another_bit(cpu, family, letter):
    """(name, content): an entry of which one bit is another."""
    (name,) = cpu.of_a(family)
    content = bytearray((cpu.a.cache / name).read_bytes())
    content[len(content) // 2] ^= 1
    return of_another_key(name, letter), bytes(content)


def timings():
    """(digest of a system, the file of its timings)"""
    system = {"version": {"triton": "a key"}}
    digest = hashlib.sha256(json.dumps(system, sort_keys=True).encode()).hexdigest()
    taken = {"op": {"inputs": {"high": {"choice": 0.5}}}}
    return digest, json.dumps({"system": {**system, "hash": digest}, "cache": taken}, indent=4).encode()
