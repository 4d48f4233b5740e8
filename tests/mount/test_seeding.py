# SPDX-License-Identifier: Apache-2.0
"""A mount that is filled by programs which are not torch or Triton: under --writers all a file is complete when nobody has it open
for writing and nothing was written to it for a while."""
import mmap
import re
from types import SimpleNamespace

from inductorfs_testing import artefacts
from inductorfs_testing.mounts import appears, populate, published
from inductorfs_testing.processes import run, wait_until


def shared_names(names):
    return {re.sub(r"^triton/\d+/", "triton/@/", str(name)) for name in names}


def test_cp_publishes_all_that_it_copies(cluster, tmp_path):
    old = tmp_path / "old"
    old.mkdir()
    names = populate(SimpleNamespace(cache=old, name="old"))
    a, b = cluster.quick("a"), cluster.quick("b")
    assert run(["cp", "-a", f"{old}/.", a.cache], seconds=60).code == 0
    a.sync()
    assert shared_names(names) <= set(published(cluster))
    for name in names:
        if "__grp__" not in name.name:
            assert appears(b.cache / name).read_bytes() == (old / name).read_bytes()
    assert a.counters().get("seal.in_place_unknown", 0) == 0


def test_a_file_that_somebody_has_open_for_writing_is_not_published(cluster):
    a = cluster.quick("a")
    held, mapped = a.cache / artefacts.code("held"), a.cache / artefacts.code("mapped")
    for path in (held, mapped):
        path.parent.mkdir(exist_ok=True)
    with open(held, "wb", buffering=0) as writer:
        writer.write(b"first half, ")
        with open(mapped, "wb+", buffering=0) as file:
            file.write(b"x" * 4096)
            view = mmap.mmap(file.fileno(), 4096)
        (a.cache / artefacts.code("read")).parent.mkdir(exist_ok=True)
        (a.cache / artefacts.code("read")).write_text("read")
        with open(a.cache / artefacts.code("read")):  # who reads does not matter
            wait_until(lambda: artefacts.code("read") in published(cluster), what="the file that nobody writes to")
            done = a.cli("sync", a.cache, "--timeout", 2)
        assert done.code != 0 and "open for writing" in done.err, done.err
        assert published(cluster) == [artefacts.code("read")]
        assert "open for writing" in a.cli("explain", held).out
        writer.write(b"second half")
        view[:4] = b"done"
    view.close()
    a.sync()
    assert sorted(published(cluster)) == sorted(artefacts.code(name) for name in ("held", "mapped", "read"))
    b = cluster.quick("b")
    assert appears(b.cache / artefacts.code("held")).read_bytes() == b"first half, second half"
    assert appears(b.cache / artefacts.code("mapped")).read_bytes() == b"done" + b"x" * 4092


def test_a_triton_set_is_published_when_its_last_file_is_closed(cluster, tmp_path):
    old = tmp_path / "old"
    old.mkdir()
    source = artefacts.triton_compile(old, "kernel", "old")
    a = cluster.quick("a")
    target = a.cache / source.relative_to(old)
    target.mkdir(parents=True)
    first, *others = sorted(source.iterdir(), reverse=True)
    with open(target / first.name, "wb", buffering=0) as writer:
        writer.write(first.read_bytes()[:1])
        for path in others:
            (target / path.name).write_bytes(path.read_bytes())
        done = a.cli("sync", a.cache, "--timeout", 2)
        assert done.code != 0 and "open for writing" in done.err, done.err
        assert published(cluster) == []
        writer.write(first.read_bytes()[1:])
    a.sync()
    assert len(published(cluster)) == len(others) + 1


def test_what_a_killed_compiler_left_is_neither_published_nor_waited_for(cluster):
    a = cluster.quick("a")
    name = artefacts.code("library", ".main.so")
    (a.cache / name).parent.mkdir(exist_ok=True)
    (a.cache / name.replace(".main.so", ".main_CxxBuild")).mkdir()
    (a.cache / name).write_bytes(b"\x7fELF, and no more")
    a.sync()
    assert published(cluster) == []
