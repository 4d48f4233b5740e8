# SPDX-License-Identifier: Apache-2.0
"""Containers on one host with one mount, each of which sees it at another path."""
import json
import os
import shutil

import pytest
from inductorfs_testing import artefacts
from inductorfs_testing.containers import run_in_container
from inductorfs_testing.mounts import appears
from inductorfs_testing.processes import wait_until

pytestmark = pytest.mark.usefixtures("root")

SEED = "kernel"
WHERE = artefacts.triton_key(SEED)
READ = """
from inductorfs_testing import artefacts
children = artefacts.triton_read(cache, "kernel")
result = children and sorted(artefacts.triton_writers(children))
"""
GROUP = f"""
group = cache / "triton/0/{WHERE}/__grp__k.json"
os.makedirs(group.parent, exist_ok=True)
result = json.loads(group.read_text())["child_paths"] if group.exists() else None
result = result and {{name: [path, os.path.exists(path)] for name, path in result.items()}}
"""
# The container sees triton/0 alone.
GROUP_OF_DEVICE = GROUP.replace("triton/0/", "")
COMPILE = """
from inductorfs_testing import artefacts
artefacts.triton_compile(cache, "kernel", "container")
result = None
"""


@pytest.fixture
def reader(cluster):
    """A node whose cluster has a kernel of another node."""
    writer, node = cluster.quick("a"), cluster.quick("b")
    artefacts.triton_compile(writer.cache, SEED, "a")
    writer.sync()
    appears(node.cache / "triton")
    return node


@pytest.fixture
def at(tmp_path):
    """Where a container sees the mount; a path with what /proc writes in octal."""
    directory = tmp_path / "in the\tcontainer"
    directory.mkdir()
    return directory


def all_there(at, children):
    assert children is not None, "a miss"
    assert children == {name: [str(at / name), True] for name in artefacts.TRITON_FILES}


def test_a_container_hits_at_its_own_path(reader, at):
    all_there(at / "triton/0" / WHERE, run_in_container(reader.cache, at, GROUP))
    assert artefacts.triton_writers(artefacts.triton_read(reader.cache, SEED)) == {"a"}, "and so does the host, after it"
    assert run_in_container(reader.cache, at, READ) == ["a"]


def test_a_container_hits_after_the_kernel_kept_the_hosts_names(reader, at):
    for _ in range(2):
        assert artefacts.triton_writers(artefacts.triton_read(reader.cache, SEED)) == {"a"}
    for _ in range(3):
        all_there(at / "triton/0" / WHERE, run_in_container(reader.cache, at, GROUP))
        assert artefacts.triton_writers(artefacts.triton_read(reader.cache, SEED)) == {"a"}
    assert reader.counters()["triton.views_met"] == 1


def test_a_container_that_sees_a_directory_alone_hits(reader, at):
    assert artefacts.triton_read(reader.cache, SEED)
    all_there(at / WHERE, run_in_container(reader.cache, at, GROUP_OF_DEVICE, "triton/0"))
    (reader.cache / "alice").mkdir()
    assert artefacts.triton_read(reader.cache / "alice", SEED)
    all_there(at / "triton/0" / WHERE, run_in_container(reader.cache, at, GROUP, "alice"))


def test_the_host_hits_what_a_container_compiled(cluster, at):
    node = cluster.quick("a")
    run_in_container(node.cache, at, COMPILE)
    for _ in range(2):
        assert artefacts.triton_writers(artefacts.triton_read(node.cache, SEED)) == {"container"}
        assert run_in_container(node.cache, at, READ) == ["container"]
    node.sync()
    other = cluster.quick("b")
    appears(other.cache / "triton")
    wait_until(lambda: artefacts.triton_read(other.cache, SEED), 15, "the container's kernel on another node")


def test_views_stay_apart_when_the_worker_is_replaced(reader, at):
    assert artefacts.triton_read(reader.cache, SEED)
    all_there(at / "triton/0" / WHERE, run_in_container(reader.cache, at, GROUP))
    group = reader.cache / "triton/0" / WHERE / "__grp__k.json"
    with open(group, encoding="utf-8") as kept:
        worker = reader.kill_worker()
        reader.next_worker(worker)
        assert json.loads(kept.read())["child_paths"]["k.json"] == str(group.parent / "k.json")
        all_there(at / "triton/0" / WHERE, run_in_container(reader.cache, at, GROUP))
        assert artefacts.triton_read(reader.cache, SEED)
        assert json.loads(group.read_text())["child_paths"]["k.json"] == str(group.parent / "k.json")


def test_a_group_file_that_a_process_has_open_is_no_miss(reader, at):
    """The kernel forgets its name, but not its node."""
    group = reader.cache / "triton/0" / WHERE / "__grp__k.json"
    assert artefacts.triton_read(reader.cache, SEED)
    with open(group, encoding="utf-8") as held:
        all_there(at / "triton/0" / WHERE, run_in_container(reader.cache, at, GROUP))
        assert str(group.parent) in held.read()


@pytest.mark.parametrize("made_by", ["host", "cluster"])
def test_a_container_renames_and_deletes_the_group_file_of_another_view(made_by, cluster, at):
    writer, reader = cluster.quick("a"), cluster.quick("b")
    artefacts.triton_compile(writer.cache, SEED, "a")
    writer.sync()
    node = writer if made_by == "host" else reader
    directory = appears(node.cache / "triton/0" / WHERE)
    assert artefacts.triton_read(node.cache, SEED)
    rename = f'group = cache / "triton/0/{WHERE}/__grp__k.json"\ngroup.stat()\ngroup.rename(group.parent / "moved")\nresult = group.exists()'
    assert run_in_container(node.cache, at, rename) is False
    assert sorted(os.listdir(directory)) == sorted([*artefacts.TRITON_FILES, "moved"])
    remove = f'import shutil\nshutil.rmtree(cache / "triton/0/{WHERE}")\nresult = (cache / "triton/0/{WHERE}").exists()'
    assert run_in_container(node.cache, at, remove) is False
    assert not directory.exists()


def test_a_symbolic_link_to_the_mount_is_no_other_view(cluster, at):
    node = cluster.quick("a")
    link = at / "link"
    link.symlink_to(node.cache)
    directory = artefacts.triton_compile(link, SEED, "host")
    for path in (link, node.cache, link):
        assert artefacts.triton_writers(artefacts.triton_read(path, SEED)) == {"host"}
    assert json.loads((directory / "__grp__k.json").read_text())["child_paths"]["k.json"] == str(directory / "k.json")
    counters = node.counters()
    assert counters.get("triton.other_views", 0) == 0 and counters.get("triton.views_met", 0) == 0, counters


@pytest.mark.parametrize("sealed", [False, True])
def test_a_group_file_that_was_copied_here_names_the_readers_paths(cluster, at, tmp_path, sealed):
    """cp -r of another cache directory gives it its name without a lookup, and the kernel keeps it."""
    node = cluster.quick("a")
    artefacts.triton_compile(tmp_path / "old", SEED, "old")
    shutil.copytree(tmp_path / "old", node.cache, dirs_exist_ok=True)
    shutil.rmtree(tmp_path / "old")
    assert artefacts.triton_writers(artefacts.triton_read(node.cache, SEED)) == {"old"}
    if sealed:  # the daemon has asked who writes to the files, through the mount
        wait_until(lambda: node.counters().get("seal.groups"), what="the set is sealed")
    assert run_in_container(node.cache, at, READ) == ["old"]