# SPDX-License-Identifier: Apache-2.0
"""What a mount lists is there and can be removed: `rm -rf` works, what it removed stays away, and the time of a directory tells that
its names have changed."""
import importlib.machinery
import itertools
import json
import os
import random
import shutil

import pytest
from inductorfs_testing import artefacts
from inductorfs_testing.mounts import QUICK, appears
from inductorfs_testing.processes import wait_until

ROUNDS = 16
# Triton's own directory in torch's (fresh_cache), a device's, and both in a root below the mountpoint.
PLACES = ("triton", "triton/0", "alice/triton", "alice")


def kernel(directory, version):
    """All versions have files in common."""
    children = {"k.ttir": "the same in all\n", "k.json": json.dumps({**artefacts.TRITON_METADATA, "version": version})}
    paths = {name: str(artefacts.triton_put(directory, name, text)) for name, text in children.items()}
    artefacts.triton_put(directory, "__grp__k.json", json.dumps({"child_paths": paths}))


def versions(mount):
    """{directory of a key below the mount: version}, of all that is listed; each listed name is there."""
    found = {}
    for directory, _, names in os.walk(mount):
        for name in names:
            os.stat(os.path.join(directory, name))
        if "k.json" in names:
            with open(os.path.join(directory, "k.json")) as text:
                found[os.path.relpath(directory, mount)] = json.load(text)["version"]
    return found


@pytest.mark.parametrize("writers", ["all", "learned"])
def test_rmtree_removes_what_was_made_below_other_names_and_made_again(cluster, writers):
    options = cluster.options() if writers == "all" else [*QUICK, "--writers", writers]
    node = cluster.node("a", options=options)
    choose = random.Random(7)
    keys = [artefacts.triton_key(seed) for seed in ("one", "two")]
    for version in range(ROUNDS):
        # What is on its way from one place would come to the other ones while these are removed, as from another process.
        waits = version % 2 == 1
        for key, place in itertools.product(keys, PLACES if waits else [PLACES[version // 2 % 2]]):
            if choose.random() < 0.6:
                kernel(node.cache / place / key, version if choose.random() < 0.7 else 0)
        if waits:
            node.sync()
        for place, key in itertools.product(PLACES, keys):
            os.path.exists(node.cache / place / key / "__grp__k.json")
        for entry in sorted(os.scandir(node.cache), key=lambda entry: choose.random()):
            shutil.rmtree(entry.path)
        node.sync()
        assert versions(node.cache) == {} and os.listdir(node.cache) == [], f"round {version}"
    node.unmount()
    node.start(*options)
    assert versions(node.cache) == {}, "what was removed came back with the next mount"


@pytest.mark.parametrize("order", [("triton", "alice"), ("alice", "triton")], ids="-".join)
def test_a_set_that_stood_behind_the_first_one_brings_nothing_back(cluster, order):
    """A process that has made a kernel in a second root goes on seeing its own files there, behind the first set. That they come to
    the front when the first one goes is no reason to bring that one back."""
    node = cluster.quick("a")
    keys = [artefacts.triton_key(f"kernel {number}") for number in range(8)]  # of one alone it does not always come to that
    for place in ("triton", "alice"):
        for key in keys:
            kernel(node.cache / place / key, 1)
        node.sync()
    for name in order:
        shutil.rmtree(node.cache / name)
    node.sync()
    assert versions(node.cache) == {} and os.listdir(node.cache) == []


def test_a_set_that_was_removed_stays_away_until_it_is_made_again(cluster):
    a, b = cluster.quick("a"), cluster.quick("b")
    key = artefacts.triton_key("kernel")
    kernel(a.cache / "triton/0" / key, "first")
    a.sync()
    appears(b.cache / "triton/0" / key / "k.json")
    os.unlink(b.cache / "triton/0" / key / "k.ttir")
    assert os.listdir(b.cache / "triton/0" / key), "the directory in which a file was deleted keeps the others"
    shutil.rmtree(b.cache / "triton")
    kernel(b.cache / "triton" / key, "second")
    b.sync()
    assert versions(b.cache) == {f"triton/{key}": "second"}
    shutil.rmtree(b.cache / "triton")
    kernel(b.cache / "triton" / key, "first")
    assert versions(b.cache)[f"triton/{key}"] == "first"
    b.sync()
    wait_until(lambda: versions(b.cache).get(f"triton/0/{key}") == "first", 15, "the set that was made again to be shown")


def names_of_one_directory():
    """(name, text) of generated sources that stand in one directory."""
    texts = (f"print({number})" for number in itertools.count())
    first = next(texts)
    directory = artefacts.code(first, ".py")[:2]
    yield artefacts.code(first, ".py"), first
    yield from ((name, text) for text in texts if (name := artefacts.code(text, ".py")).startswith(directory + "/"))


@pytest.mark.parametrize("own", ["", "its own file"])
def test_a_program_that_keeps_a_listing_finds_what_another_node_adds(cluster, own):
    """Python's FileFinder lists a directory again when its time has changed."""
    a, b = cluster.quick("a"), cluster.quick("b")
    made = names_of_one_directory()
    name, text = next(made)
    directory = b.cache / name[:2]
    if own:
        artefacts.write_atomic(b.cache, f"{name[:2]}/{own}", "private")
    artefacts.write_atomic(a.cache, name, text)
    a.sync()
    appears(b.cache / name)
    finder = importlib.machinery.FileFinder(str(directory), (importlib.machinery.SourceFileLoader, [".py"]))
    assert finder.find_spec(name[3:-3]).origin == str(b.cache / name)
    for _ in range(2):
        before = os.stat(directory).st_mtime
        assert os.stat(directory).st_mtime == before and os.stat(directory).st_ctime > 0
        name, text = next(made)
        artefacts.write_atomic(a.cache, name, text)
        a.sync()
        wait_until(lambda: finder.find_spec(name[3:-3]), 15, f"{name} to be found")  # noqa: B023
        assert os.stat(directory).st_mtime != before
    before = os.stat(directory).st_mtime
    os.unlink(b.cache / name)
    assert os.stat(directory).st_mtime != before
    assert finder.find_spec(name[3:-3]) is None


def test_what_is_made_again_in_another_root_is_found_where_it_was_removed(cluster):
    """The kernel keeps that a name is not there, and has to be told that it is shown again."""
    a, b = (cluster.node(name, options=cluster.options()) for name in "ab")
    graph = artefacts.write_graph(b.cache, "key", "value").relative_to(b.cache)
    b.sync()
    appears(a.cache / graph)
    shutil.rmtree(a.cache / "fxgraph")
    for name in (graph, *graph.parents[:-1]):
        assert not (a.cache / name).exists()
    (a.cache / "alice").mkdir()
    artefacts.write_graph(a.cache / "alice", "key", "value")
    a.sync()
    assert appears(a.cache / graph).read_text() == "value"
    for above, directories, files in os.walk(a.cache):
        for name in directories + files:
            assert os.path.lexists(os.path.join(above, name)), "listed, and not found"
    shutil.rmtree(a.cache / "fxgraph")


def by_another(function, *arguments):
    """In a process that has ended."""
    if (child := os.fork()) == 0:
        function(*arguments)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("equal", [True, False])
def test_a_set_that_came_second_under_another_name_goes_with_the_first(cluster, equal):
    """rmtree meets all names of a key, also that which a job has looked up since the kernel keeps the listing."""
    a, b = (cluster.node(name, options=cluster.options()) for name in "ab")
    key = artefacts.triton_key("one")
    by_another(kernel, b.cache / "triton/1" / key, 1)
    b.sync()
    appears(a.cache / "triton/0" / key / "__grp__k.json")
    assert set(versions(a.cache)) == {f"triton/0/{key}"}
    by_another(kernel, a.cache / "triton" / key, 1 if equal else 2)
    a.sync()
    shutil.rmtree(a.cache / "triton")
    assert os.listdir(a.cache) == []


def test_a_set_that_is_hidden_leaves_the_listings_of_its_other_names(cluster):
    """Also where it was only listed, beside files of no set."""
    a, b = (cluster.node(name, options=cluster.options()) for name in "ab")
    key = artefacts.triton_key("one")
    by_another(artefacts.triton_put, b.cache / "alice/triton" / key, "k.ttir", "the same in all\n")
    b.sync()
    versions(b.cache)
    by_another(kernel, a.cache / "triton_cache" / key, 1)
    a.sync()
    b.catch_up(a)
    versions(b.cache)
    by_another(kernel, b.cache / "alice" / key, 1)
    b.sync()
    versions(b.cache)
    for name in ("alice", "triton"):
        shutil.rmtree(b.cache / name, ignore_errors=not (b.cache / name).exists())
    assert versions(b.cache) == {}


def test_a_listing_that_the_kernel_keeps_gets_what_is_looked_up_later(cluster):
    """In a root below the mountpoint, which lists of the cluster what somebody has asked for."""
    a, b = (cluster.node(name, options=cluster.options()) for name in "ab")
    code = artefacts.write_atomic(a.cache, artefacts.code("code"), "int x;").relative_to(a.cache)
    a.sync()
    b.catch_up(a)
    (b.cache / "team").mkdir()
    assert not (b.cache / "team/fxgraph/none").exists()  # as torch asks first
    before = os.listdir(b.cache / "team")
    assert code.parts[0] not in before
    appears(b.cache / "team" / code)
    wait_until(lambda: code.parts[0] in os.listdir(b.cache / "team"), 5, "the listing")
    shutil.rmtree(b.cache / "team")
