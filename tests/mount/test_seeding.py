# SPDX-License-Identifier: Apache-2.0
"""A mount that is filled by programs which are not torch or Triton: under --writers all a file is complete when nobody has it open
for writing and nothing was written to it for a while."""
import json
import mmap
import pickle
import re
from types import SimpleNamespace

import pytest
from inductorfs_testing import artefacts
from inductorfs_testing.mounts import appears, populate, published, remount
from inductorfs_testing.processes import run, wait_until


def shared_names(names):
    return {re.sub(r"^triton/\d+/", "triton/@/", str(name)) for name in names}


def old_cache(directory, sets=7, files=57):
    """A directory as a job without a mount left it: 120 files, half of them of Triton's sets."""
    directory.mkdir()
    names = [artefacts.write_atomic(directory, artefacts.code(f"code {index}"), f"print({index})\n" * 20) for index in range(files)]
    for index in range(sets):
        made = artefacts.triton_compile(directory, f"kernel {index}", "old")
        names += sorted(path for path in made.iterdir())
    while len(names) < 120:
        names.append(artefacts.write_graph(directory, f"graph {len(names)}", "pickle" * 100))
    assert len(names) == 120
    return [path.relative_to(directory) for path in names]


def all_are_published(cluster, node, names):
    there = published(cluster)
    left = [name for name in names if shared_names([name]).pop() not in there]
    assert not left, f"{len(left)} of {len(names)}: {node.explain(left[0])}{node.status()}{node.log_tail()}"
    assert len(there) == len(names)


COPIES = {"cp": "cp -a {old}/. {new}", "rsync": "rsync -a {old}/ {new}/", "tar": "tar c -C {old} . | tar x -C {new}"}


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_publishes_all_that_it_copied(cluster, tmp_path, how):
    old = tmp_path / "old"
    names = old_cache(old)
    a, b = cluster.quick("a"), cluster.quick("b")
    done = run(["sh", "-c", COPIES[how].format(old=old, new=a.cache)], seconds=60)
    assert done.code == 0, done.err
    a.sync()
    all_are_published(cluster, a, names)
    for name in names:
        if "__grp__" not in name.name:
            assert appears(b.cache / name).read_bytes() == (old / name).read_bytes()
    assert a.counters().get("seal.in_place_unknown", 0) == 0


def test_a_copy_publishes_all_though_workers_are_killed(cluster, tmp_path):
    old = tmp_path / "old"
    names = old_cache(old)
    a = cluster.quick("a", "--crash-limit", "0")
    for part in (names[::2], names[1::2]):
        for name in part:
            (a.cache / name).parent.mkdir(parents=True, exist_ok=True)
            (a.cache / name).write_bytes((old / name).read_bytes())
        a.next_worker(a.kill_worker())
    a.sync()
    all_are_published(cluster, a, names)


def test_a_mount_is_taken_away_though_files_are_asked_about(cluster):
    """A question keeps the mount busy for a moment."""
    a, names = cluster.quick("a"), []

    def write():
        name = artefacts.code(f"code {len(names)}")
        (a.cache / name).parent.mkdir(exist_ok=True)
        (a.cache / name).write_text("print()")
        names.append(name)

    for _ in range(6):
        first = len(names)

        def is_asked():
            write()
            return names[first] in published(cluster)

        wait_until(is_asked, what="a publish")
        a.unmount()
        remount(a, cluster)
    a.sync()
    assert published(cluster) == sorted(names)


def test_populated_families_are_published(cluster, tmp_path):
    old = tmp_path / "old"
    old.mkdir()
    names = populate(SimpleNamespace(cache=old, name="old"))
    a = cluster.quick("a")
    assert run(["cp", "-a", f"{old}/.", a.cache], seconds=60).code == 0
    a.sync()
    assert shared_names(names) <= set(published(cluster))


TIMINGS = {"key": [1], "configs_timings": [[{"kwargs": {}, "num_warps": 4, "num_stages": 2}, [0.1, 0.2]]]}


def other_families(directory):
    """One artefact of each family that populate() does not make: their paths below the directory."""
    cache = {artefacts.code("print()", ".py"): "print()", artefacts.code("probe", ".so.load_ok"): "",
             f"ab/{'ab' * 32}.best_config": json.dumps({"XBLOCK": 8, "num_warps": 4, "num_stages": 2, "configs_hash": "ab" * 32}),
             f"dynamo/code_state_{'0' * 8}.pkl": pickle.dumps({"a": 1}),
             f"cache/should_pad/{'ab' * 16}": b"\x5f\xec\xeb\x66" + pickle.dumps(True),
             f"aotautograd/a{artefacts.torch_hash('entry')}/entry": pickle.dumps([1])}
    made = [artefacts.write_atomic(directory, name, content) for name, content in cache.items()]
    candidate = "c" * 100
    made.append(artefacts.write_atomic(directory, f"aotautograd/a{artefacts.torch_hash('key')}/{artefacts.torch_hash(candidate)}", candidate))
    kernel = artefacts.triton_compile(directory, "tuned", "old")
    made.append(artefacts.triton_put(kernel, "k.autotune.json", json.dumps(TIMINGS)))
    library = artefacts.build_library(directory, "launcher")
    launcher = directory / "triton" / "0" / artefacts.triton_key("launcher")
    made.append(artefacts.triton_put(launcher, "cuda_utils.cpython-311-x86_64-linux-gnu.so", library.read_bytes()))
    return [path.relative_to(directory) for path in made] + [path.relative_to(directory) for path in kernel.iterdir()]


def test_cp_shares_every_family(cluster, tmp_path):
    """Much more than a hundred files at once: of each shared family, with binaries whose build directory is long gone."""
    old = tmp_path / "old"
    names = old_cache(old) + other_families(old)
    names += populate(SimpleNamespace(cache=old, name="old"))
    a = cluster.quick("a")
    assert run(["cp", "-a", f"{old}/.", a.cache], seconds=60).code == 0
    a.sync()
    left = shared_names(names) - set(published(cluster))
    assert not left, f"{len(left)} of {len(names)}: {a.status()['file_system']} {a.explain(sorted(left)[0])}"


def test_what_is_written_when_the_worker_dies_is_not_published_before_it_is_closed(cluster, tmp_path):
    """The next worker does not know who has what open."""
    old = tmp_path / "old"
    old.mkdir()
    source = artefacts.triton_compile(old, "kernel", "old")
    a = cluster.quick("a", "--crash-limit", "0")
    target = a.cache / source.relative_to(old)
    target.mkdir(parents=True)
    first, *others = sorted(source.iterdir(), reverse=True)
    single = a.cache / artefacts.code("single")
    single.parent.mkdir(exist_ok=True)
    with open(target / first.name, "wb", buffering=0) as member, open(single, "wb", buffering=0) as writer:
        member.write(first.read_bytes()[:1])
        writer.write(b"first half, ")
        for path in others:
            (target / path.name).write_bytes(path.read_bytes())
        a.next_worker(a.kill_worker())
        done = a.cli("sync", a.cache, "--timeout", 2)
        assert done.code != 0 and "open for writing" in done.err, done.err
        assert published(cluster) == []
        member.write(first.read_bytes()[1:])
        writer.write(b"second half")
    a.sync()
    assert len(published(cluster)) == len(others) + 2
    b = cluster.quick("b")
    assert appears(b.cache / artefacts.code("single")).read_bytes() == b"first half, second half"


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
        assert "open for writing" in a.cli("status", a.cache).out
        writer.write(b"second half")
        view[:4] = b"done"
    view.close()
    a.sync()
    assert sorted(published(cluster)) == sorted(artefacts.code(name) for name in ("held", "mapped", "read"))
    b = cluster.quick("b")
    assert appears(b.cache / artefacts.code("held")).read_bytes() == b"first half, second half"
    assert appears(b.cache / artefacts.code("mapped")).read_bytes() == b"done" + b"x" * 4092


def test_without_writers_all_what_is_copied_in_place_stays_here(cluster, tmp_path):
    old = tmp_path / "old"
    names = old_cache(old)
    a = cluster.quick("a", "--writers", "matching")
    assert run(["cp", "-a", f"{old}/.", a.cache], seconds=60).code == 0
    a.sync()
    assert published(cluster) == []
    assert (a.cache / names[0]).read_bytes() == (old / names[0]).read_bytes()


NO_SIGN, NO_ENVIRONMENT = "written in place under its final name", "neither torch nor Triton loaded"
TOLD = [("pod", "cp -r {old}/. {new}", NO_SIGN), ("pod", "cp -a {old}/. {new}", NO_SIGN), ("learned", "cp -r {old}/. {new}", NO_ENVIRONMENT),
        ("learned", "cp -a {old}/. {new}", NO_ENVIRONMENT), ("learned", "rsync -a {old}/ {new}", NO_ENVIRONMENT),
        ("matching", "cp -a {old}/. {new}", NO_ENVIRONMENT)]


@pytest.mark.parametrize(("policy", "how", "why"), TOLD)
def test_what_is_copied_and_stays_here_is_told(cluster, tmp_path, policy, how, why):
    """A graph, code and a kernel: each file of them, wherever one asks."""
    old = tmp_path / "old"
    old.mkdir()
    made = [artefacts.write_atomic(old, artefacts.code("code"), "print()"), artefacts.write_graph(old, "graph", "pickle"),
            *artefacts.triton_compile(old, "kernel", "old").iterdir()]
    options = ("--quiet-time", "200", "--writers", policy)
    a = cluster.node("a", options=options) if policy == "learned" else cluster.quick("a", *options[2:])
    assert run(["sh", "-c", how.format(old=old, new=a.cache)], seconds=60).code == 0
    done = a.cli("sync", a.cache)
    assert done.code == 3 and f"kept {len(made)} artefacts" in done.out and why in done.err, done
    files = a.status()["file_system"]
    assert files["foreign"] == len(made) and any(why in reason for reason in files["foreign_reasons"]), files
    assert f"{len(made)} artefacts stay on this host: " in a.cli("doctor", a.cache).out
    for path in made:
        assert why in a.explain(path.relative_to(old)), a.explain(path.relative_to(old))
    assert published(cluster) == []
    if policy == "learned":
        a.unmount()
        a.start(*options)
        assert any(why in reason for reason in a.status()["file_system"]["foreign_reasons"]), "said again by the next mount"


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
