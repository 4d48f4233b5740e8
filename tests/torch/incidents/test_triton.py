# SPDX-License-Identifier: Apache-2.0
"""The lines of the incident table about Triton's key directories. Sets are made by Triton's compile, and mixed by its own
FileCacheManager in an order that is chance otherwise."""
from pathlib import Path

import pytest
from inductorfs_testing import compare, places
from inductorfs_testing.processes import wait_until

from incident_binaries import cubin_architecture
from incident_hosts import explain, refused
from incident_triton import (NAME, OUTSIDE, a100, group_of, groups, load, on_two_architectures, put_of_two_writers,
                             put_with_a_child_outside, put_with_a_cubin_for_sm_90, put_without_a_child)

KERNELS = places.WORKLOADS / "triton_kernels.py"


# ---- wrong reuse

def test_kernel_for_sm_90_is_not_seen_before_sm_80(triton):
    """What an H100's node publishes is nothing to an A100's."""
    _, _, reader = on_two_architectures(triton, "arch")
    assert groups(reader) == set()
    assert not (reader.cache / "triton" / "0" / triton.sets.newer_key / f"{NAME}.cubin").exists()


def test_cubin_for_sm_90_in_a_key_directory_of_sm_80(triton, tmp_path):
    """The set says sm_80, its cubin is one for sm_90. Triton reads it from a plain directory without a word; what a driver
    says then (no kernel image for this device) takes a device to show."""
    sets = triton.sets
    assert cubin_architecture((sets.directories["newer"] / f"{NAME}.cubin").read_bytes()) == 90
    assert cubin_architecture((sets.directories["first"] / f"{NAME}.cubin").read_bytes()) == 80
    writer, reader = triton.pair("cubin", a100(triton.facts))

    put_with_a_cubin_for_sm_90(triton, tmp_path / "plain")
    assert load(triton, triton.first, tmp_path / "plain")["cubin"] == sets.loaded["newer"]["cubin"]

    put_with_a_cubin_for_sm_90(triton, writer.cache / "triton" / "0")
    writer.sync()
    assert any("cubin" in line for line in refused(writer)), refused(writer)
    assert groups(reader) == set()
    assert not (reader.cache / "triton" / "0" / sets.key / f"{NAME}.cubin").exists()


def test_set_with_children_of_two_writers(triton, tmp_path):
    """Triton's protocol lets a put of one process replace that of another before the group is there: on a plain directory
    what is loaded is then of both."""
    writer, reader = triton.pair("mixed")
    owners = triton.sets.owners
    put_of_two_writers(triton, tmp_path / "plain")
    assert owners(load(triton, triton.first, tmp_path / "plain")) == {"first", "second"}

    put_of_two_writers(triton, writer.cache / "triton" / "0")
    assert owners(load(triton, triton.first, writer.cache / "triton" / "0")) == {"first"}
    writer.sync()
    wait_until(lambda: groups(reader) == {group_of(triton.sets.key)}, 20, "the set on the other node")
    assert owners(load(triton, triton.reading, reader.cache / "triton" / "0")) == {"first"}


def test_group_that_names_a_child_that_is_not_there(triton, tmp_path):
    """On a plain directory Triton up to 3.6 leaves the child out and fails for want of a binary, later ones miss for ever:
    every process compiles that kernel again."""
    writer, reader = triton.pair("absent")
    for cache in (tmp_path / "plain", writer.cache / "triton" / "0"):
        put_without_a_child(triton, cache)
        assert triton.first("get_group", cache=cache, key=triton.sets.key, name=f"{NAME}.json") is None
    writer.sync()
    assert groups(reader) == set()
    assert not (reader.cache / "triton" / "0" / triton.sets.key / f"{NAME}.ttir").exists()


@pytest.mark.parametrize("where", OUTSIDE)
def test_group_that_names_a_child_outside(triton, tmp_path, where):
    """Triton follows the path, wherever it leads: from a plain directory it takes the file from there."""
    writer, reader = triton.pair(f"child-{where.replace(' ', '-')}")
    sets, plain = triton.sets, tmp_path / "plain"
    put_with_a_child_outside(triton, plain, where)
    found = triton.first("get_group", cache=plain, key=sets.key, name=f"{NAME}.json")
    assert Path(found[f"{NAME}.cubin"]).read_bytes() == (sets.directories["newer"] / f"{NAME}.cubin").read_bytes()

    put_with_a_child_outside(triton, writer.cache / "triton" / "0", where)
    writer.sync()
    assert groups(reader) == set()
    assert explain(writer, f"triton/0/{sets.key}/__grp__{NAME}.json")["publish"] != "published"


# ---- needless misses

def test_another_device_index(triton):
    """Written as triton/0, read as triton/5, on another path."""
    a, b = triton.pair("index")
    job = ("--only", "axpy,softmax", "--targets", "80,90")
    cold = a.run(KERNELS, *job, TRITON_CACHE_DIR=a.cache / "triton" / "0").json
    assert cold["stages"]["cubin"] == 4
    a.sync()
    b.catch_up(a)
    before = compare.lasting(b.cache)
    warm = b.run(KERNELS, *job, TRITON_CACHE_DIR=b.cache / "triton" / "5").json
    assert warm["stages"] == {}
    assert warm["keys"] == cold["keys"] and warm["cubins"] == cold["cubins"]
    assert {compare.canonical(name) for name in compare.lasting(b.cache)} == {compare.canonical(name) for name in before}
