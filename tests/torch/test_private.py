# SPDX-License-Identifier: Apache-2.0
"""What stays on its host, with the reason: docs/families.md has it for each family."""
import os
import stat
from pathlib import Path

import pytest
from inductorfs_testing import compare, places
from inductorfs_testing.fixtures import Cluster
from inductorfs_testing.processes import wait_until

PRIVATE = places.WORKLOADS / "private.py"
SHARED = places.WORKLOADS / "on_disk_cache.py"
# As nvcc: writes the final name in place, and puts code for a GPU into a section of its own.
NVCC = """#!/bin/sh
for word; do
  case $last in -o) output=$word;; esac
  last=$word
done
case " $* " in
  *" -shared "*) exec g++ -shared -o "$output" "$last";;
esac
printf '.section .nv_fatbin,"a"\\n.quad 1\\n' | exec g++ -x assembler -c -o "$output" -
"""


@pytest.fixture(scope="module")
def cluster():
    with Cluster(torch="2.15", environment={"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}, patient=True) as made:
        yield made


def names(node, *endings):
    return {name for name in compare.names(node.cache) if name.endswith(endings)}


def listed_after(node, other):
    """What the other node lists when it has all that this one has published: a remembered answer comes last."""
    node.sync()
    assert node.run(SHARED, "insert", node.name, "1").json["inserted"]
    node.sync()
    wait_until(lambda: other.run(SHARED, "get", node.name).json["values"] == ["1"], 60, "the last of what it publishes")
    return compare.names(other.cache)


def two_cutlasses(node):
    """Directories as a checkout of CUTLASS: headers, and no Python module directly below."""
    for version in ("3", "4"):
        headers = node.root / version / "include" / "cutlass"
        headers.mkdir(parents=True)
        (headers / "cutlass.h").write_text(f"#define CUTLASS_MAJOR {version}\n")
    nvcc = node.root / "tools" / "nvcc-of-this-test"
    nvcc.write_text(NVCC)
    nvcc.chmod(nvcc.stat().st_mode | stat.S_IXUSR)
    return [node.root / "3", node.root / "4"], nvcc


@pytest.mark.parametrize("writers", ["learned", "all"])
def test_binaries_of_cutlass_whose_name_does_not_tell_what_they_are_made_of(cluster, writers):
    """Of two CUTLASSes the second one gets the library that the first one made. On one host that is torch's to answer for;
    no other host gets it: neither at the next mount, which asks about all that an earlier one left, nor where everybody's
    files are published."""
    options = () if writers == "learned" else ("--writers", writers)
    declared = writers == "all"  # what everybody writes needs an environment
    a, b = cluster.node(f"a-{writers}", options=options, declared=declared), cluster.node(f"b-{writers}", declared=declared)
    cutlasses, nvcc = two_cutlasses(a)
    one, other = (a.run(PRIVATE, "cutlass", cutlass, CUDACXX=nvcc).json for cutlass in cutlasses)
    assert one == other, "else its name may be enough to share it"
    library = os.path.relpath(one["library"], a.cache)
    a.sync()
    a.unmount()
    a.start(*options)
    assert names(a, ".so", ".o", ".cu") == {library, library[:-2] + "o", library[:-2] + "cu"}
    listed = listed_after(a, b)
    assert not [name for name in listed if name.endswith((".so", ".o", ".cu"))]
    if writers == "all":  # else the assembler and the linker are writers without torch
        assert any(library in line and "code for GPUs" in line for line in a.status()["file_system"]["refused"])


def test_packages_of_aot_inductor(cluster):
    """The files of a package come and go where it is made; what is compiled for them beside may be shared."""
    a, b = cluster.node("a-aoti"), cluster.node("b-aoti")
    package = a.root / "double.pt2"
    assert a.run(PRIVATE, "aoti", package).json["result"] == 16.0
    made = {name for name in compare.lasting(a.cache) if ".wrapper" in Path(name).name or ".kernel" in Path(name).name}
    assert any(name.endswith(".so") for name in made), "else this test says nothing"
    assert not made & set(listed_after(a, b))
    assert b.run(PRIVATE, "aoti", b.root / "double.pt2").json["result"] == 16.0
