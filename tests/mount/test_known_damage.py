# SPDX-License-Identifier: Apache-2.0
"""What the daemon has found damaged on its disk is not shown any more, and `status` says whose fault that is."""
import contextlib
import os
import sqlite3
from pathlib import Path

from inductorfs_testing import artefacts, places
from inductorfs_testing.mounts import appears, disappears, remount, suspended
from inductorfs_testing.processes import run, wait_until

FILES = 6
TOLD = "the disk gave other bytes than were written to it"


def below(node, path):
    """Where a file of the mount lies in the store."""
    return node.store / "files" / "view" / path.relative_to(node.cache)


def flip(file, keeps_times=True):
    """Changes one bit, as a bad disk does."""
    before = file.stat()
    with open(file, "r+b", buffering=0) as opened:
        (first,) = opened.read(1)
        opened.seek(0)
        opened.write(bytes([first ^ 1]))
    after = before.st_mtime_ns + (0 if keeps_times else 2_000_000_000)
    os.utime(file, ns=(before.st_atime_ns, after))


def queued(node, cluster):
    """Artefacts that the cluster has not, in a store that nobody serves."""
    node.sync()
    with suspended(cluster.redis):
        made = {artefacts.write_atomic(node.cache, artefacts.code(f"queued {index}"), f"print({index})\n"): f"print({index})\n"
                for index in range(FILES)}
        made.update({artefacts.write_graph(node.cache, f"key {index}", f"value {index}"): f"value {index}" for index in range(FILES)})
        wait_until(lambda: node.status()["file_system"]["unsealed"] == 0, what="all to be queued")
        node.unmount()
    return made


def absent(paths):
    for path in paths:
        assert not os.path.lexists(path), path


def warned(node):
    return [line for line in node.status()["warnings"] if TOLD in line]


def test_damage_that_a_publish_finds_is_not_shown_again(cluster):
    node = cluster.quick("a")
    other = cluster.quick("b")
    made = queued(node, cluster)
    bad = [path for index, path in enumerate(made) if index % 3]
    for path in bad:
        flip(below(node, path))
    remount(node, cluster)
    done = node.cli("sync", node.cache)
    assert done.code == 0 and f"damaged {len(bad)} artefacts before they were published" in done.out, done
    absent(bad)
    (warning,) = warned(node)
    assert f"{len(bad)} times" in warning and str(node.store) in warning and "check --repair" in warning
    assert TOLD in node.cli("status", node.cache).out
    assert not node.status()["file_system"]["refused"] and node.counters()["publish.refused"] == 0
    for path in bad:
        assert "visible" in node.cli("explain", path).out
        assert "refused" not in node.cli("explain", path).out
    node.next_worker(node.kill_worker())
    absent(bad)
    assert warned(node)
    node.unmount()
    remount(node, cluster)
    absent(bad)
    assert warned(node)
    for path, text in made.items():
        if path in bad:
            assert not (other.cache / path.relative_to(node.cache)).exists()
            continue
        assert path.read_text() == text
        appears(other.cache / path.relative_to(node.cache))
    again = artefacts.write_atomic(node.cache, bad[0].relative_to(node.cache), made[bad[0]])
    node.sync()
    assert appears(other.cache / again.relative_to(node.cache)).read_text() == made[bad[0]], "compiled again, and shared"
    node.unmount()
    assert run([places.program(), "check", "--repair", "--store", node.store]).code == 0
    remount(node, cluster)
    assert not warned(node), "the operator has had all of it read"


def damage_rows(node, statement):
    with contextlib.closing(sqlite3.connect(node.store / "catalog.sqlite")) as database:
        with database:
            assert database.execute(statement).rowcount > 0


def test_damaged_rows_of_the_catalog_are_told_and_made_anew(cluster):
    node = cluster.quick("a")
    other = cluster.quick("b")
    shared = artefacts.code("shared")
    artefacts.write_atomic(other.cache, shared, "print('shared')")
    other.sync()
    appears(node.cache / shared)
    made = queued(node, cluster)
    damage_rows(node, "UPDATE queue SET payload = CAST('damaged' || substr(payload, 8) AS BLOB) WHERE id % 2")
    damage_rows(node, "UPDATE entries SET value = CAST(x'02' || zeroblob(length(value) - 1) AS BLOB)")
    remount(node, cluster)
    node.sync()
    assert warned(node)
    assert node.counters()["publish.refused"] == 0 and node.counters()["catalog.damaged_rows"] > FILES
    for path, text in made.items():
        assert path.read_text() == text
        assert appears(other.cache / path.relative_to(node.cache)).read_text() == text
        assert "refused" not in node.cli("explain", path).out
    assert appears(node.cache / shared).read_text() == "print('shared')"
    assert "catalog.rows_damaged" in node.log.read_text()


def test_a_catalog_that_is_damaged_under_a_worker_is_begun_anew_by_the_next(cluster):
    node = cluster.quick("a")
    other = cluster.quick("b")
    artefacts.write_graph(node.cache, "before", "value")
    node.sync()
    worker = node.worker()
    catalog = node.store / "catalog.sqlite"
    with contextlib.closing(sqlite3.connect(catalog)) as database:
        (page,) = database.execute("SELECT rootpage FROM sqlite_schema WHERE name='sqlite_sequence'").fetchone()
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with open(catalog, "r+b") as opened:
        opened.seek((page - 1) * 4096)
        opened.write(b"Z" * 200)
    made = [artefacts.write_graph(node.cache, f"late {index}", f"value {index}") for index in range(FILES)]
    node.next_worker(worker)
    node.sync()
    for path in made:
        appears(other.cache / path.relative_to(node.cache))
    assert warned(node)
    status = node.status()
    assert not status["file_system"]["refused"] and not status["takeover"]["safe_mode"]
    assert Path(f"{catalog}.damaged").exists()
    assert "catalog.damaged" in node.log.read_text() and "catalog.set_aside" in node.log.read_text()


def test_a_catalog_without_one_of_its_tables_is_begun_anew(cluster):
    node = cluster.quick("a")
    other = cluster.quick("b")
    made = queued(node, cluster)
    for damage in ("DROP TABLE followed", "DROP TABLE queue"):
        with contextlib.closing(sqlite3.connect(node.store / "catalog.sqlite")) as database:
            database.execute(damage)
        if damage.endswith("queue"):
            found = run([places.program(), "check", "--repair", "--store", node.store])
            assert "set aside as catalog.sqlite.damaged" in found.out, found
            assert run([places.program(), "check", "--store", node.store]).code == 0
        remount(node, cluster)
        node.sync()
        for path, text in made.items():
            assert appears(other.cache / path.relative_to(node.cache)).read_text() == text
        node.unmount()


def test_wrong_bytes_are_not_queued_again_as_new_ones(cluster):
    node = cluster.quick("a")
    other = cluster.quick("b")
    made = queued(node, cluster)
    bad = list(made)[0]
    flip(below(node, bad))
    for part in ("", "-wal", "-shm"):
        (node.store / f"catalog.sqlite{part}").unlink(missing_ok=True)
    remount(node, cluster)
    node.sync()
    for path, text in made.items():
        if path != bad:
            assert appears(other.cache / path.relative_to(node.cache)).read_text() == text
    assert not os.path.lexists(other.cache / bad.relative_to(node.cache))
    absent([bad])
    assert warned(node)


def test_what_the_cluster_has_comes_from_there_again(cluster):
    node = cluster.quick("a")
    text = "print('published')\n" * 1000
    path = artefacts.write_atomic(node.cache, artefacts.code("published"), text)
    node.sync()
    with open(path, encoding="utf-8") as opened:
        flip(below(node, path), keeps_times=False)
        # The store looks at what it has of these bytes.
        artefacts.write_atomic(node.cache, artefacts.code("the same bytes"), text)
        node.sync()
        wait_until(lambda: node.counters().get("view.damaged") == 1, what="the name to go")
        assert appears(path).read_text() == text
        assert len(opened.read()) == len(text), "who has it open reads on"
    assert warned(node)
    node.next_worker(node.kill_worker())
    assert path.read_text() == text


def test_a_triton_set_with_a_damaged_file_goes_as_a_whole(cluster):
    node = cluster.quick("a")
    node.sync()
    with suspended(cluster.redis):
        directory = artefacts.triton_compile(node.cache, "kernel", "a")
        wait_until(lambda: node.counters().get("seal.groups") == 1, what="the set to be queued")
        node.unmount()
    victim = next(below(node, directory / name) for name in artefacts.TRITON_FILES)
    flip(victim)
    remount(node, cluster)
    node.sync()
    disappears(directory / "__grp__k.json")
    absent([directory / name for name in artefacts.TRITON_FILES])
    artefacts.triton_compile(node.cache, "kernel", "a")
    node.sync()
    assert artefacts.triton_read(node.cache, "kernel")
