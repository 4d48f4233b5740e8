# SPDX-License-Identifier: Apache-2.0
"""The lines of the incident table about files that are not whole or not what their name says. The entries are torch's own,
damaged and written again under their name by torch's own write."""
import hashlib
import json
import os

import pytest
from inductorfs_testing import compare
from inductorfs_testing.mounts import appears

from incident_worlds import ONE_KERNEL
from incident_hosts import hits, refused

PAGE = 4096
GRAPH, AUTOGRAD = "fxgraph/*/f*/*", "aotautograd/a*/*"


class Pair:
    """Two nodes with a cluster of their own; what is written goes through torch."""

    def __init__(self, cpu, hand):
        self.writer, self.reader = (cpu.node(f"files-{which}", None, "--prefix", "files") for which in ("writer", "reader"))
        self._hand, self._scratch = hand, cpu.directory / "content"

    def write(self, name, content):
        self._scratch.write_bytes(content)
        self._hand("write_atomic", path=self.writer.cache / name, source=self._scratch)
        self.writer.sync()


@pytest.fixture(scope="module")
def pair(cpu, hand):
    return Pair(cpu, hand)


def of_another_key(name, letter):
    """The entry's place under a key of the test's own: what is checked is the last part, the hash of the content."""
    parts = name.split("/")
    parts[-2] = parts[-2][0] + letter * 51
    if parts[0] == "fxgraph":
        parts[1] = letter * 2
    return "/".join(parts)


def is_seen(node, name):
    return os.path.lexists(node.cache / name) or name in compare.names(node.cache)


def test_graph_that_is_cut_off_at_every_page(cpu, pair):
    """A plain directory shows what is there: torch warns and compiles again, up to 2.7 it crashes."""
    (name,) = cpu.of_a(GRAPH)
    whole = (cpu.a.cache / name).read_bytes()
    cuts = list(range(0, len(whole), PAGE))
    assert len(cuts) > 3
    name = of_another_key(name, "t")
    for cut in cuts:
        pair.write(name, whole[:cut])
        assert not is_seen(pair.reader, name), cut
    assert any(name in line for line in refused(pair.writer))
    pair.write(name, whole)
    assert appears(pair.reader.cache / name).read_bytes() == whole


def test_temporary_names_are_never_listed(cpu):
    """Both mounts were listed all the while node a compiled. The names are from process and thread ids, which repeat on
    another host: a directory that two hosts share makes both write one file."""
    assert any("_CxxBuild" in name for name in cpu.temporary["a"]), cpu.temporary["a"]
    assert cpu.temporary["b"] == set()


def test_temporary_names_of_every_protocol_stay_where_they_are(cpu, pair):
    """Names that a process left when it was killed, beside finals that are shared."""
    (name,) = cpu.of_a(GRAPH)
    content = (cpu.a.cache / name).read_bytes()
    name = of_another_key(name, "p")
    key = os.path.dirname(name)
    names = [f"{key}/.4711.140211.tmp", "triton/0/tmp.01234567-89ab-cdef-0123-456789abcdef/k.json",
             f"triton/0/{'A' * 52}/tmp.pid_4711_01234567-89ab-cdef-0123-456789abcdef/k.ttir", "locks/k.lock",
             f"ab/c{'b' * 51}.main_CxxBuild/x", "tmpabcdefgh/x"]
    for left in names:
        (pair.writer.cache / left).parent.mkdir(parents=True, exist_ok=True)
        (pair.writer.cache / left).write_bytes(content)
    pair.write(name, content)
    appears(pair.reader.cache / name)
    assert not set(names) & set(compare.names(pair.reader.cache))
    assert set(names) <= set(compare.names(pair.writer.cache))


@pytest.mark.parametrize("family", [GRAPH, AUTOGRAD])
def test_content_that_does_not_match_its_name(cpu, pair, family):
    """One bit of an entry is another. torch unpickles what it finds."""
    (name,) = cpu.of_a(family)
    content = bytearray((cpu.a.cache / name).read_bytes())
    content[len(content) // 2] ^= 1
    name = of_another_key(name, "o")
    pair.write(name, bytes(content))
    assert not is_seen(pair.reader, name)
    assert any(name in line and "hash" in line for line in refused(pair.writer)), refused(pair.writer)


def test_graph_with_another_constant_runs_on_a_plain_directory(cpu):
    """Why the name must match: in a copied directory an entry whose kernel adds 7.25 in place of 1.25 is a hit, and the
    job's result is another, without a word. (torch writes the graph's code where it is not there yet.)"""
    (name,) = cpu.of_a(GRAPH)
    content = (cpu.a.cache / name).read_bytes()
    assert b"1.25" in content
    plain = cpu.plain("another-constant", cpu.a)
    (plain.cache / name).write_bytes(content.replace(b"1.25", b"7.25"))
    for code in plain.cache.glob("[a-z2-7][a-z2-7]/c*.py"):
        code.unlink()
    out = plain.run(ONE_KERNEL).json
    hits(out)
    assert out["result"][-1] == 2 * 3.5 + 7.25 != cpu.cold["result"][-1]


def test_timings_under_the_name_of_another_system(pair):
    """cache/<hash>: the name is the hash of the system that the timings are of."""
    system = {"version": {"triton": "a key"}}
    digest = hashlib.sha256(json.dumps(system, sort_keys=True).encode()).hexdigest()
    timings = {"op": {"inputs": {"high": {"choice": 0.5}}}}
    text = json.dumps({"system": {**system, "hash": digest}, "cache": timings}, indent=4)
    wrong = f"cache/{'0' * 64}"
    pair.write(wrong, text.encode())
    pair.write(f"cache/{digest}", text.encode())
    appears(pair.reader.cache / "cache" / digest)
    assert not is_seen(pair.reader, wrong)
