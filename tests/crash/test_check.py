# SPDX-License-Identifier: Apache-2.0
"""`inductorfs check`: each kind of damage is found, named and repaired, and nothing else is."""
import json
import os
import re
import shutil
import sqlite3

import pytest
from inductorfs_testing import artefacts, places
from inductorfs_testing.mounts import QuickCluster, appears, populate, remount
from inductorfs_testing.node import let_through
from inductorfs_testing.processes import run


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A store with a bit of everything, ended cleanly, with groups that are still queued."""
    with QuickCluster() as cluster:
        node = cluster.quick("a")
        populate(node)
        (node.cache / "own").write_text("private")
        node.sync()
        cluster.redis.suspend()
        queued = artefacts.write_atomic(node.cache, artefacts.code("queued"), "queued")
        node.unmount()
        cluster.redis.resume()
        kept = tmp_path_factory.mktemp("kept") / "store"
        assert run(["cp", "-a", node.store, kept]).code == 0
        yield kept, queued.relative_to(node.cache)


@pytest.fixture
def store(made, tmp_path):
    # cp and not copytree: it keeps the hard links between blobs and files, and their attributes.
    assert run(["cp", "-a", made[0], tmp_path / "store"]).code == 0
    let_through(tmp_path)  # it is checked as its owner
    return tmp_path / "store"


def check(store, *more):
    done = run([places.program(), "check", "--store", store, "--json", *more], seconds=60)
    assert done.err == ""
    report = json.loads(done.out)
    assert done.code == (0 if report["sound"] else 1)
    return report


def harmful(report):
    return [finding["path"] for finding in report["findings"] if not finding["harmless"]]


def some_blob(store):
    return next(path for path in sorted((store / "blobs").rglob("*")) if path.is_file() and path.stat().st_size > 0)


def test_a_store_that_was_closed_is_sound(store):
    report = check(store)
    assert report["findings"] == []
    assert min(report[name] for name in ("blobs", "bytes", "entries", "queued", "files", "sealed")) > 0


def damage_blob(store):
    blob = some_blob(store)
    blob.write_bytes(blob.read_bytes()[:-1] + b"?")
    return r"blobs/.*"


def cut_blob(store):
    os.truncate(some_blob(store), 1)
    return r"blobs/.*"


def misname_blob(store):
    blob = some_blob(store)
    blob.rename(blob.with_name("0" * 64))
    return r"blobs/.*/0{64}"


def put_a_file_among_the_blobs(store):
    (some_blob(store).parent / "notes.txt").write_text("mine")
    return r"blobs/.*/notes\.txt"


def put_a_directory_among_the_blobs(store):
    (store / "blobs" / "other").mkdir()
    return r"blobs/other"


def damage_sealed_file(store):
    """Other bytes in a file of its own, with the old seal."""
    for path in (store / "files" / "view").rglob("*.cpp"):
        if "user.inductorfs.sealed" in os.listxattr(path):
            marks = {name: os.getxattr(path, name) for name in os.listxattr(path)}
            path.unlink()
            path.write_text("other bytes")
            for name, value in marks.items():
                os.setxattr(path, name, value)
            return r"files/view/.*\.cpp"
    raise AssertionError("no sealed file")


def damage_database(store):
    with open(store / "catalog.sqlite", "r+b") as file:
        file.write(b"?" * 4096)
    return r"catalog\.sqlite"


def damage_a_page(store):
    size = (store / "catalog.sqlite").stat().st_size
    with open(store / "catalog.sqlite", "r+b") as file:
        file.seek(size // 4096 // 2 * 4096)
        file.write(os.urandom(4096))
    return r"catalog\.sqlite"


def damage_an_entry(store):
    with sqlite3.connect(store / "catalog.sqlite") as database:
        database.execute("UPDATE entries SET value = x'00' WHERE path = (SELECT min(path) FROM entries)")
    return r"catalog\.sqlite"


def damage_a_queued_group(store):
    with sqlite3.connect(store / "catalog.sqlite") as database:
        database.execute("UPDATE queue SET payload = x'ff'")
    return r"catalog\.sqlite"


@pytest.mark.parametrize("damage", [damage_blob, cut_blob, misname_blob, put_a_file_among_the_blobs,
                                    put_a_directory_among_the_blobs, damage_sealed_file, damage_database, damage_a_page,
                                    damage_an_entry, damage_a_queued_group])
def test_finds_and_repairs(store, damage):
    wanted = damage(store)
    assert run(["chown", "-R", "--reference", store, store]).code == 0  # damaged as its owner would
    found = harmful(check(store))
    assert any(re.fullmatch(wanted, path) for path in found), found
    assert harmful(check(store)) == found, "a check alone changes nothing"
    repaired = check(store, "--repair")
    assert repaired["sound"] and repaired["repaired"] == repaired["harmful"] > 0
    assert all(finding["repair"] for finding in repaired["findings"] if not finding["harmless"])
    assert harmful(check(store)) == []


def test_a_queued_group_without_its_blob(store, made):
    before = check(store)["queued"]
    shutil.rmtree(store / "blobs")
    (store / "blobs").mkdir()
    report = check(store, "--repair")
    assert any("has no blob" in finding["what"] for finding in report["findings"])
    assert check(store)["queued"] < before


def test_what_a_killed_daemon_leaves_is_harmless(store):
    (store / "tmp" / "17").write_text("half a blob")
    (store / "files" / "orphans" / "5").write_text("deleted")
    report = check(store)
    assert report["sound"] and report["harmless"] == 2


def test_refused_while_a_daemon_has_it_open():
    with QuickCluster() as made:
        node = made.quick("a")
        (pid,) = node.daemons()
        done = run([places.program(), "check", "--store", node.store, "--repair"])
        assert done.code == 1 and done.out == ""
        assert str(pid) in done.err and str(node.store) in done.err and done.err.count("\n") == 1


def test_a_repaired_store_serves_again():
    with QuickCluster() as made:
        node = made.quick("a")
        name = artefacts.write_graph(node.cache, "key", "value" * 100).relative_to(node.cache)
        node.sync()
        node.unmount()
        for blob in (node.store / "blobs").rglob("*"):
            if blob.is_file():
                blob.write_bytes(b"x" * blob.stat().st_size)
        assert check(node.store, "--repair")["repaired"] > 0
        remount(node, made)
        assert appears(node.cache / name).read_text() == "value" * 100


@pytest.mark.parametrize("what", ["missing", "empty", "file", "newer"])
def test_what_is_no_store(store, tmp_path, what):
    place = tmp_path / "place"
    if what == "empty":
        place.mkdir()
    if what == "file":
        place.write_text("x")
    if what == "newer":
        place = store
        (store / "format").write_text("inductorfs-store 2\n")
    done = run([places.program(), "check", "--store", place])
    # This program reads it at the next try no more than now, as mount says of such a store.
    assert (done.code, done.out) == (2, "") and str(place) in done.err


@pytest.mark.parametrize("words", [[], ["--store"], ["--store", "x", "y"], ["--fix"]])
def test_usage(words):
    assert run([places.program(), "check", *words]).code == 2


def test_a_store_that_its_owner_may_not_reach_is_named_with_what_to_do(store, tmp_path):
    tmp_path.chmod(0o700)
    if store.stat().st_uid == os.geteuid():
        pytest.fail("the store of a mount of root is the worker's user's")
    done = run([places.program(), "check", "--store", store])
    assert done.code == 2 and "chmod o+x" in done.err and str(store) in done.err, done
