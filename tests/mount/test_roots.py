# SPDX-License-Identifier: Apache-2.0
"""Cache roots below the mountpoint: each shares with all others, and is a directory like any other to the programs that use it."""
import errno
import json
import os
import shutil
import subprocess

import pytest
from inductorfs_testing import artefacts
from inductorfs_testing.mounts import appears
from inductorfs_testing.processes import run, wait_until


@pytest.fixture
def nodes(cluster):
    return cluster.quick("a"), cluster.quick("b")


def fill(root):
    """One artefact of each kind; their names below any root, with what they hold."""
    made = [artefacts.write_atomic(root, artefacts.code("code"), "int one;"), artefacts.write_graph(root, "graph", "pickle"),
            artefacts.build_library(root, "library")]
    return {str(path.relative_to(root)): path.read_bytes() for path in made}


def shows(root, made):
    """To a job that uses the directory as torch does: it asks for its graphs first."""
    os.path.exists(root / "fxgraph")
    for name, text in made.items():
        assert appears(root / name).read_bytes() == text
    return True


@pytest.mark.parametrize("writer, reader", [("alice", ""), ("", "bob"), ("team/job7", "a b/c\n d"), ("x" * 255, "y/" * 8)])
def test_what_one_root_publishes_every_root_shows(nodes, writer, reader):
    a, b = nodes
    made = fill(a.cache / writer)
    a.sync()
    (b.cache / reader).mkdir(parents=True, exist_ok=True)
    assert shows(b.cache / reader, made)


def test_a_name_of_any_bytes_may_be_a_root(nodes):
    a, b = nodes
    made = fill(a.cache / "alice")
    a.sync()
    root = os.fsencode(b.cache) + b"/\xff\xfe\x01"
    os.mkdir(root)
    os.path.exists(root + b"/fxgraph")
    for name, text in made.items():
        appears(b.cache / name)
        with open(root + b"/" + name.encode(), "rb") as file:
            assert file.read() == text
    assert b.status()["file_system"]["roots"] == 1
    told = b.cli("status", b.cache).out
    assert "\\x01 (of uid 0, shared with everybody)" in told and "\x01" not in told, "a terminal gets no control characters"


def test_triton_hits_in_a_directory_of_any_name(nodes):
    a, b = nodes
    directory = artefacts.triton_compile(a.cache, "kernel", "writer")
    a.sync()
    appears(b.cache / directory.relative_to(a.cache) / "__grp__k.json")
    own = b.cache / "torch_compile_cache" / "0123456789" / "rank_0_0" / "triton_cache"
    own.mkdir(parents=True)
    group = json.loads((own / directory.name / "__grp__k.json").read_text())
    children = [os.fspath(own / directory.name / name) for name in group["child_paths"]]
    assert sorted(group["child_paths"].values()) == sorted(children)
    assert all(map(os.path.exists, children))


def test_the_kernel_answers_in_a_root_as_in_the_mountpoint(nodes):
    a, b = nodes
    made = fill(a.cache / "alice")
    a.sync()
    (b.cache / "bob").mkdir()

    def costs(root):
        """Of the third look: the first one fetches, the second one fills the kernel's pages."""
        for _ in range(2):
            shows(root, made)
        before = b.requests()
        shows(root, made)
        after = b.requests()
        return {name: count - before.get(name, 0) for name, count in after.items() if count != before.get(name, 0)}

    assert costs(b.cache / "bob") == costs(b.cache)


def test_rm_makes_a_root_fresh(nodes):
    a, b = nodes
    made = fill(a.cache / "alice")
    a.sync()
    for name in ("one", "two"):
        (b.cache / name).mkdir()
        shows(b.cache / name, made)
    (b.cache / "one" / "notes").write_text("mine")
    subprocess.run(["rm", "-rf", b.cache / "one"], check=True, timeout=60)
    assert not (b.cache / "one").exists()
    shows(b.cache / "two", made)
    (b.cache / "one").mkdir()
    assert shows(b.cache / "one", made)
    assert not (b.cache / "one" / "notes").exists()


def test_a_root_goes_under_a_running_job(nodes):
    a, b = nodes
    made = fill(a.cache / "alice")
    a.sync()
    (b.cache / "job").mkdir()
    shows(b.cache / "job", made)
    with open(b.cache / "job" / next(iter(made)), "rb") as file:
        shutil.rmtree(b.cache / "job")
        assert file.read() == next(iter(made.values()))
        again = fill(b.cache / "job")
    assert shows(b.cache / "job", again)
    b.sync()


def test_a_file_may_stand_where_a_root_should(nodes):
    a, b = nodes
    fill(a.cache / "alice")
    a.sync()
    (b.cache / "root").write_text("a file")
    with pytest.raises(NotADirectoryError):
        fill(b.cache / "root")
    assert (b.cache / "root").read_text() == "a file"


def test_status_names_the_roots_and_whose_they_are(nodes):
    _, b = nodes
    assert "roots" not in b.cli("status", b.cache).out, "while only the mountpoint is used"
    for name, owner in (("alice", 0), ("team/job7", 54321)):
        (b.cache / name).mkdir(parents=True)
        os.chown(b.cache / name, owner, owner)
        (b.cache / name / "fxgraph").mkdir()
    status = b.status()["file_system"]
    assert status["roots"] == 2
    assert status["first_roots"] == [{"path": "alice", "owner": 0, "shared_with": "everybody"},
                                     {"path": "team/job7", "owner": 54321, "shared_with": "user=#54321"}]
    told = b.cli("status", b.cache).out
    assert "alice (of uid 0, shared with everybody)" in told
    assert "team/job7 (of uid 54321, shared with user=#54321)" in told


def test_a_root_that_shows_entries_is_copied_and_not_moved(nodes):
    a, b = nodes
    made = fill(a.cache / "alice")
    a.sync()
    (b.cache / "bob").mkdir()
    shows(b.cache / "bob", made)
    (b.cache / "bob" / "notes").write_text("mine")
    with pytest.raises(OSError) as refused:
        os.rename(b.cache / "bob", b.cache / "carol")
    assert refused.value.errno == errno.EXDEV
    assert run(["rsync", "-a", f"{b.cache}/bob/", b.cache / "carol"], seconds=60).code == 0
    assert run(["rm", "-rf", b.cache / "bob"], seconds=60).code == 0
    assert shows(b.cache / "carol", made)
    assert (b.cache / "carol" / "notes").read_text() == "mine"


@pytest.mark.parametrize("how", ["copy", "rename"])
def test_a_root_keeps_its_kernels_at_its_next_place(nodes, how):
    """The group file that Triton wrote names the files at the place before."""
    a, _ = nodes
    old, new = a.cache / "old", a.cache / "new"
    artefacts.triton_compile(old, "kernel", "mine")
    if how == "copy":
        subprocess.run(["rsync", "-a", f"{old}/", new], check=True)
        shutil.rmtree(old)
    else:
        os.rename(old, new)
    assert artefacts.triton_writers(artefacts.triton_read(new, "kernel")) == {"mine"}


def test_other_programs_find_no_directories_that_nobody_made(nodes, tmp_path):
    """The tree of a program that has nothing to do with torch, with the names of two characters that the cluster has."""
    a, b = nodes
    made = fill(a.cache / "alice")
    a.sync()
    shows(b.cache, made)
    names = sorted({name.split("/")[0] for name in made} - {"fxgraph"}) + ["cache", "triton", "locks", "dynamo"]
    tree = tmp_path / "tree"
    for index, name in enumerate(names):
        (tree / "dirs" / name).mkdir(parents=True)
        (tree / "dirs" / name / "own").write_text(str(index))
        (tree / "files").mkdir(exist_ok=True)
        (tree / "files" / name).write_text(str(index))
    for copy in ("cp -a {0} {1}", "rsync -a {0} {1}", "tar c -C {0}/.. tree | tar x -C {1}"):
        target = b.cache / "share" / copy.split()[0]
        target.mkdir(parents=True)
        done = run(["sh", "-c", copy.format(tree, target)], seconds=60)
        assert (done.code, done.err) == (0, "")
        assert run(["diff", "-r", tree, target / "tree"], seconds=60).code == 0
        assert run(["mv", target / "tree", target / "moved"], seconds=60).code == 0
        assert run(["rm", "-r", target / "moved"], seconds=60).code == 0


def test_nothing_of_a_fresh_cache_is_shared(nodes):
    """torch's fresh_cache: a directory that tempfile has named."""
    a, b = nodes
    made = fill(a.cache / "alice")
    a.sync()
    shows(b.cache, made)
    (b.cache / "tmpab_1xyz9").mkdir()
    for name in made:
        assert not (b.cache / "tmpab_1xyz9" / name).exists()


def test_a_root_made_before_an_upgrade_goes_on(nodes):
    a, b = nodes
    name = artefacts.code("later")
    (b.cache / "bob" / name).parent.mkdir(parents=True)
    assert not (b.cache / "bob" / name).exists()
    old = b.worker()
    b.kill_worker()
    b.next_worker(old)
    artefacts.write_atomic(a.cache / "alice", name, "int later;")
    a.sync()
    wait_until((b.cache / "bob" / name).exists, 15, "the entry in the root")
