# SPDX-License-Identifier: Apache-2.0
"""What a program may put into a directory that is one artefact, and what may be done to it later; and an operator's part."""
import contextlib
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import time

import protocols
import pytest
from inductorfs_testing import mounts
from inductorfs_testing.fixtures import lack
from inductorfs_testing.mounts import appears, disappears, published
from inductorfs_testing.processes import PATIENCE, wait_until
from inductorfs_testing.users import as_user
from parcels import ALICE, BOB, FACTS, at, checked, cluster, every_engine, find, listed, make, mounted, pair, remounted, root_of, shared, whole  # noqa: F401
from protocols import DeepGemm, TileLang, writers_of


# ---- what a program may put into a directory

def symbolic_link(directory):
    (directory / "link").symlink_to("/etc/passwd")


def fifo(directory):
    os.mkfifo(directory / "fifo")


def unix_socket(directory):
    with socket.socket(socket.AF_UNIX) as one, contextlib.chdir(directory):  # a path has 108 bytes at most
        one.bind("socket")


def many(directory):
    for number in range(4200):
        (directory / f"{number}").write_bytes(b"x")


def deep(directory):
    (directory / "/".join("d" * 12)).mkdir(parents=True)
    (directory / "/".join("d" * 12) / "file").write_bytes(b"x")


def large(directory):
    with open(directory / "large", "wb") as file:
        file.truncate(5 << 20)
        file.write(b"x")


def of_another_user(directory):
    if os.geteuid() != 0:
        lack("changes owners: root only")
    (directory / "hers").write_bytes(b"of another user")
    os.chown(directory / "hers", ALICE, ALICE)


@pytest.mark.parametrize("put", [symbolic_link, fifo, unix_socket, many, deep, large], ids=lambda put: put.__name__)
def test_a_directory_with_what_no_engine_puts_there_stays_on_its_host(cluster, put):
    a, b = mounted(cluster, "a", "--artefact-limit", "4M"), mounted(cluster, "b")
    root = root_of(a, DeepGemm)
    staging = root / "tmp" / "odd"
    staging.mkdir(parents=True)
    (staging / "kernel.cu").write_bytes(protocols.told_by("a"))
    (staging / "kernel.cubin").write_bytes(protocols.cubin("a"))
    put(staging)
    names = sorted(os.listdir(staging))
    at(a, DeepGemm).parent.mkdir()
    os.rename(staging, at(a, DeepGemm))
    assert sorted(os.listdir(at(a, DeepGemm))) == names and writers_of(find(a, DeepGemm)) == {"a"}
    good = shared(a, b, DeepGemm, "good")
    assert find(b, DeepGemm, "good") == good
    assert [name.rpartition("/")[2] for name in published(cluster)] == [DeepGemm.name("good").name]
    assert not at(b, DeepGemm).exists()
    told = a.cli("explain", at(a, DeepGemm)).out
    assert "local directory" in told or "not shared" in told or "private" in told, told
    shutil.rmtree(at(a, DeepGemm))
    assert writers_of(make(a, DeepGemm)) == {"a"}


def test_modes_that_give_rights_are_not_shared(pair):
    a, b = pair
    staging = root_of(a, DeepGemm) / "tmp" / "odd"
    staging.mkdir(parents=True)
    (staging / "kernel.cu").write_bytes(protocols.told_by("a"))
    (staging / "kernel.cubin").write_bytes(protocols.cubin("a"))
    (staging / "kernel.cubin").chmod(0o6777)
    (staging / "kernel.cu").chmod(0o666)
    staging.chmod(0o3777)
    at(a, DeepGemm).parent.mkdir()
    os.rename(staging, at(a, DeepGemm))
    a.sync()
    listed(b, DeepGemm)
    for path in (at(b, DeepGemm), *at(b, DeepGemm).iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) & 0o7022 == 0, f"{path}: {path.stat().st_mode:o}"


def test_a_file_where_a_directory_is_expected_and_the_reverse(pair, cluster):
    a, b = pair
    root_of(a, DeepGemm)
    at(a, DeepGemm).parent.mkdir()
    at(a, DeepGemm).write_bytes(b"no directory")
    renamed = at(a, DeepGemm, "renamed")
    (renamed.parent / "other").write_bytes(b"no directory")
    os.rename(renamed.parent / "other", renamed)
    cubin = at(a, protocols.FlashInferCubin)
    cubin.mkdir(parents=True)
    (cubin / "inner").write_bytes(protocols.cubin("a"))
    good = shared(a, b, DeepGemm, "good")
    assert find(b, DeepGemm, "good") == good
    assert [name.rpartition("/")[2] for name in published(cluster)] == [DeepGemm.name("good").name]
    assert at(a, DeepGemm).read_bytes() == renamed.read_bytes() == b"no directory"
    assert writers_of(make(b, DeepGemm)) == {"b"} and writers_of(make(b, DeepGemm, "renamed")) == {"b"}
    b.sync()
    assert at(a, DeepGemm).read_bytes() == b"no directory", "what was made here stays"
    os.unlink(renamed)
    assert writers_of(make(a, DeepGemm, "renamed")) in ({"a"}, {"b"})


def test_files_of_several_users_are_not_one_artefact(cluster):
    if os.geteuid() != 0:
        lack("changes users: root only")
    a, b = mounted(cluster, "a"), mounted(cluster, "b")
    staging = root_of(a, DeepGemm) / "tmp" / "odd"
    staging.mkdir(parents=True)
    (staging / "kernel.cu").write_bytes(protocols.told_by("a"))
    (staging / "kernel.cubin").write_bytes(protocols.cubin("a"))
    os.chown(staging / "kernel.cubin", ALICE, ALICE)
    at(a, DeepGemm).parent.mkdir()
    os.rename(staging, at(a, DeepGemm))
    shared(a, b, DeepGemm, "good")
    assert [name.rpartition("/")[2] for name in published(cluster)] == [DeepGemm.name("good").name]
    assert not at(b, DeepGemm).exists()


def test_a_users_directories_are_that_users_elsewhere(cluster):
    if os.geteuid() != 0:
        lack("changes users: root only")
    nodes = []
    for name in "ab":
        node = cluster.node(name, start=False)
        cluster.directory.chmod(0o755)
        node.root.chmod(0o755)
        node.cache.chmod(0o1777)
        nodes.append(node.start(*cluster.options("--lookup-patience", "5000", **FACTS)))
    a, b = nodes

    def own(node, name, user):
        root = node.cache / name
        root.mkdir()
        os.chown(root, user, user)
        return root

    made = as_user(ALICE, 0o022, DeepGemm.make, own(a, "alice", ALICE), "kernel", "alice")
    a.sync()
    hers, his = own(b, "hers", ALICE), own(b, "his", BOB)
    as_user(ALICE, 0o022, (hers / "cache").mkdir)
    as_user(BOB, 0o022, (his / "cache").mkdir)
    as_user(ALICE, 0o022, os.path.exists, hers / DeepGemm.name("kernel"))
    wait_until(lambda: as_user(ALICE, 0o022, DeepGemm.find, hers, "kernel") == made, 15, "hers")
    assert (hers / DeepGemm.name("kernel")).stat().st_uid == ALICE
    assert as_user(BOB, 0o022, DeepGemm.find, his, "kernel") is None
    assert DeepGemm.find(b.cache, "kernel") is None


# ---- what is done to a directory later

@every_engine
def test_rm_of_the_directory_is_of_one_host_and_it_is_made_again(pair, engine):
    a, b = pair
    made, never = shared(a, b, engine), shared(a, b, engine, "never looked up")
    shutil.rmtree(at(b, engine, "never looked up"))
    assert not at(b, engine, "never looked up").exists()
    assert find(a, engine, "never looked up") == never and writers_of(make(b, engine, "never looked up")) == {"b"}
    assert find(b, engine) == made
    shutil.rmtree(at(b, engine))
    assert not at(b, engine).exists() and at(b, engine).name not in os.listdir(at(b, engine).parent)
    assert find(a, engine) == made
    at(b, engine).mkdir()
    assert os.listdir(at(b, engine)) == []
    at(b, engine).rmdir()
    assert writers_of(make(b, engine)) == {"b"}
    b.sync()
    assert writers_of(find(b, engine)) == {"b"} and find(a, engine) == made


def times(directory):
    """What a hit of SGLang and of DeepJIT does."""
    os.utime(directory)
    for path in directory.iterdir():
        os.utime(path)


def modes(directory):
    """DeepJIT of later releases: set_shared_permissions."""
    directory.chmod(0o775)
    for path in directory.iterdir():
        path.chmod(0o664)


@pytest.mark.parametrize("change", [times, modes], ids=lambda change: change.__name__)
@pytest.mark.parametrize("who", ["a", "b"])
def test_a_directory_whose_times_or_modes_are_set_is_still_the_clusters(pair, cluster, change, who):
    a, b = pair
    node = a if who == "a" else b
    made = shared(a, b, DeepGemm)
    assert find(b, DeepGemm) == made
    before = mounts.blobs(cluster)
    change(at(node, DeepGemm))
    node.sync()
    node.next_worker(node.kill_worker())
    node.sync()
    assert find(a, DeepGemm) == find(b, DeepGemm) == made
    assert mounts.blobs(cluster) == before, "nothing new was published"
    for other in (a, b):
        other.unmount()
        checked(other)
        remounted(cluster, other)
    done = a.cli("purge", "--yes", "--all", a.cache, "--timeout", str(15 * PATIENCE))
    assert done.code == 0, done.out + done.err
    disappears(at(b, DeepGemm), 5)


def test_a_file_that_is_added_later_changes_no_other_host(pair):
    """tilelang/jit/adapter/cutedsl/adapter.py: the first run puts kernel.cubin into the directory that is published already."""
    a, b = pair
    made = shared(a, b, TileLang)
    before = whole(at(a, TileLang))
    TileLang.safe_write(at(a, TileLang) / "kernel.cubin", protocols.cubin("a"))
    after = whole(at(a, TileLang))
    a.sync()
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        assert whole(at(b, TileLang)) in (before, after)
    assert find(a, TileLang) == find(b, TileLang) == made
    TileLang.safe_write(at(b, TileLang) / "kernel.cubin", protocols.cubin("b"))
    assert find(b, TileLang) == made and writers_of({"": (at(b, TileLang) / "kernel.cubin").read_bytes()}) == {"b"}
    assert whole(at(a, TileLang)) == after


# ---- an index that its writer left cut; test_many_engines.py kills vLLM itself

INDEX = "vllm/torch_compile_cache/0123456789/rank_0_0/backbone/vllm_compile_cache.py"
HALF = "{((1, 128), 0"
WRITER = "import sys\nfile = open(sys.argv[1], 'w')\nfile.write(sys.argv[2])\nfile.flush()\nprint('half', flush=True)\nsys.stdin.read()"


def test_a_cut_index_stays_while_its_writer_lives_and_goes_when_it_was_killed(cluster):
    node = mounted(cluster, "a")
    index = node.cache / INDEX
    index.parent.mkdir(parents=True)
    with subprocess.Popen([sys.executable, "-c", WRITER, index, HALF], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout.readline() == b"half\n"

            def is_known_to_be_open():
                return f"{INDEX}: somebody has it open for writing" in node.cli("status", node.cache).out

            wait_until(is_known_to_be_open, 30, "the mount to ask who has the index open")
            node.next_worker(node.kill_worker())
            wait_until(is_known_to_be_open, 30, "the next worker to ask")
            assert index.read_text() == HALF and index.name in os.listdir(index.parent)
            reader = os.open(index, os.O_RDONLY)
        finally:
            writer.kill()
    disappears(index)
    assert os.listdir(index.parent) == []
    assert os.read(reader, 100) == HALF.encode()
    os.close(reader)
    with open(index, "x", encoding="utf-8") as file:
        file.write("{}")
    node.sync()
    assert index.read_text() == "{}", "it is whole, and names nothing that another node could use"


# ---- operators

@every_engine
def test_explain_check_and_purge_know_a_directory(pair, cluster, engine):
    a, b = pair
    shared(a, b, engine)
    told = json.loads(b.cli("explain", "--json", at(b, engine)).out)
    assert told["origin"] and told["digest"] and told["where"] in ("cluster", "remote", "store"), told
    assert find(b, engine)
    told = json.loads(b.cli("explain", "--json", at(b, engine)).out)
    assert told["where"] == "store" and told["visible"] and "unpacked" in told["why"], told
    inner = b.cli("explain", at(b, engine) / engine.files[0]).out
    assert told["family"] in inner or at(b, engine).name in inner, inner
    assert json.loads(a.cli("explain", "--json", at(a, engine)).out)["where"] == "sealed local directory"
    for node in pair:
        node.unmount()
        checked(node)
        remounted(cluster, node)
    damaged = next(path for path in b.store.rglob(engine.files[0]) if path.is_file())
    b.unmount()
    damaged.write_bytes(b"damaged")
    done = b.cli("check", "--store", b.store)
    assert done.code != 0 and at(b, engine).name in done.out + done.err, done.out + done.err
    b.cli("check", "--store", b.store, "--repair")
    checked(b)
    remounted(cluster, b)
    assert find(b, engine) == find(a, engine)
    held = os.open(at(b, engine) / engine.files[0], os.O_RDONLY)
    done = a.cli("purge", "--yes", "--family", told["family"], a.cache, "--timeout", str(15 * PATIENCE))
    assert done.code == 0 and "1 entries are removed" in done.out, done.out + done.err
    assert not published(cluster)
    for node in pair:
        disappears(at(node, engine), 5)
        assert at(node, engine).name not in os.listdir(at(node, engine).parent)
    assert os.read(held, 4)
    os.close(held)
    assert writers_of(make(b, engine)) == {"b"}
    b.sync()
    assert writers_of(whole(appears(at(a, engine)))) == {"b"}
