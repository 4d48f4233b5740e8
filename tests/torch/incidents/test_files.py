# SPDX-License-Identifier: Apache-2.0
"""The lines of the incident table about files that are not whole or not what their name says. The entries are torch's own,
damaged and written again under their name by torch's own write."""
import pytest
from inductorfs_testing import compare
from inductorfs_testing.mounts import appears

from incident_worlds import ONE_KERNEL
from incident_files import AUTOGRAD, GRAPH, PAGE, Pair, leave_behind, of_another_key, timings, with_another_bit
from incident_hosts import hits, is_seen, refused


@pytest.fixture(scope="module")
def pair(cpu, hand):
    return Pair(cpu, hand)


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
    left, name = leave_behind(pair, cpu, "p")
    appears(pair.reader.cache / name)
    assert not left & set(compare.names(pair.reader.cache))
    assert left <= set(compare.names(pair.writer.cache))


@pytest.mark.parametrize("family", [GRAPH, AUTOGRAD])
def test_content_that_does_not_match_its_name(cpu, pair, family):
    """One bit of an entry is another. torch unpickles what it finds."""
    name, content = with_another_bit(cpu, family, "o")
    pair.write(name, content)
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
    digest, text = timings()
    wrong = f"cache/{'0' * 64}"
    pair.write(wrong, text)
    pair.write(f"cache/{digest}", text)
    appears(pair.reader.cache / "cache" / digest)
    assert not is_seen(pair.reader, wrong)
