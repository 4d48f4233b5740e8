# SPDX-License-Identifier: Apache-2.0
"""A worker that is replaced by another program's, and what happens when none can be had."""
import errno
import fcntl
import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from inductorfs_testing import artefacts, compare, places
from inductorfs_testing.load import Load
from inductorfs_testing.processes import run, wait_until
from inductorfs_testing.takeovers import healthy, in_use, no_errors, nothing_is_left, takeover

PROGRAM = places.program()


# ---- upgrades

def test_an_upgrade_under_load_is_not_noticed(cluster, node, load):
    program = node.root / "inductorfs-new"
    shutil.copy2(PROGRAM, program)
    before = node.worker()
    done = node.cli("upgrade", node.cache, "--program", program, "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told["upgraded"] is True and told["mountpoint"] == str(node.cache) and told["from"] == told["to"]
    (after,) = node.daemons()
    assert after != before and after == told["pid"]
    assert os.readlink(f"/proc/{after}/exe") == str(program)
    assert takeover(node)["upgrades"] == 1 and takeover(node)["restarts"] == 0
    # From now on it is the program, whatever becomes of its file.
    program.unlink()
    healthy(node, node.kill_worker())
    (after,) = node.daemons()
    assert os.readlink(f"/proc/{after}/exe").startswith(str(program))
    done = node.cli("upgrade", node.cache)
    assert done.code == 0 and str(node.cache) in done.out, done.err
    assert os.readlink(f"/proc/{node.worker()}/exe") == str(PROGRAM)
    load.advance(100)
    no_errors(load)


def test_an_upgrade_to_a_program_that_fails_is_taken_back(cluster, node, load):
    for program in ("/bin/false", "/bin/true"):
        copy = node.root / f"inductorfs-{Path(program).name}"
        shutil.copy2(program, copy)
        done = node.cli("upgrade", node.cache, "--program", copy)
        assert done.code == 1 and "old one" in done.err and done.err.count("\n") == 1, done.err
        assert os.readlink(f"/proc/{node.worker()}/exe") == str(PROGRAM)
    assert takeover(node)["upgrades_failed"] == 2 and takeover(node)["restarts"] == 0
    load.advance(100)
    no_errors(load)


def test_an_upgrade_to_a_program_that_crashes_is_taken_back(cluster, tmp_path):
    """Though a package has put the new program where the old one was."""
    node = cluster.quick("a")
    program = node.root / "inductorfs-new"

    def served_by():
        return os.stat(f"/proc/{node.worker()}/exe").st_ino

    with Load(node.cache, tmp_path / "load") as load:
        inodes = []
        for _ in range(2):
            program.unlink(missing_ok=True)
            shutil.copy2(PROGRAM, program)
            done = node.cli("upgrade", node.cache, "--program", program)
            assert done.code == 0, done.err
            inodes.append(served_by())
        old, new = inodes
        assert old != new == program.stat().st_ino
        for _ in range(3):
            assert served_by() == new
            healthy(node, node.kill_worker())
        assert served_by() == old
        told = takeover(node)
        assert (told["upgrades"], told["upgrades_taken_back"], told["restarts"]) == (2, 1, 3)
        assert told["upgrades_failed"] == 0 and told["safe_mode"] is False
        assert "1 taken back" in node.cli("status", node.cache).out
        wait_until(lambda: "supervisor.upgrade_taken_back" in node.log.read_text(), what="the log to tell it")
        # The old program is on no trial: a crash loop of its own leads to safe mode.
        crash(node, 5)
        assert takeover(node)["safe_mode"] is True and served_by() == old
        load.advance(100)
        no_errors(load)


def test_an_upgrade_to_no_program_is_refused(cluster, node):
    plain = node.root / "plain"
    plain.write_text("no program")
    before = node.worker()
    for program in (plain, node.root / "absent"):
        done = node.cli("upgrade", node.cache, "--program", program)
        assert done.code == 2 and str(program) in done.err and done.err.count("\n") == 1
    assert node.daemons() == [before] and takeover(node)["upgrades"] == 0
    assert node.cli("upgrade").code == 2
    assert node.cli("upgrade", node.root).code == 1


@pytest.mark.usefixtures("root")
def test_all_mounts_of_a_user_are_upgraded(cluster):
    nodes = [cluster.node(name, start=False) for name in "ab"]
    options = " ".join(map(str, cluster.options()))
    script = cluster.directory / "script"
    # Root's command names the mounts of other tests that it sees, with what is wrong with them at this moment.
    lines = ["set -eu", "umount --all --lazy --internal-only --types fuse.inductorfs", "mount -t tmpfs tmpfs /run"]
    lines += [f"{PROGRAM} mount {node.cache} --store {node.store} {options}" for node in nodes]
    lines += [f"{PROGRAM} upgrade --all --json"]
    lines += [f"{PROGRAM} unmount {node.cache}" for node in nodes]
    script.write_text("\n".join(lines))
    done = run(["unshare", "-m", "sh", script], nodes[0].env(), seconds=120)
    assert (done.code, done.err) == (0, "")
    told = {one["mountpoint"]: one["upgraded"] for one in json.loads(done.out)}
    assert told == {str(node.cache): True for node in nodes}
    for node in nodes:
        nothing_is_left(node)


# ---- crash loops

def crash(node, times):
    for _ in range(times):
        healthy(node, node.kill_worker())


def test_a_crash_loop_ends_in_safe_mode_until_an_upgrade(cluster):
    node, other = cluster.quick("a"), cluster.quick("b")
    crash(node, 4)
    assert takeover(node)["safe_mode"] is False
    crash(node, 1)
    told = node.status()
    assert told["takeover"]["safe_mode"] is True and told["remote"]["reachable"] is False
    assert "safe mode" in told["remote"]["last_error"] and any("safe mode" in warning for warning in told["warnings"])
    assert "SAFE MODE" in node.cli("status", node.cache).out
    wait_until(lambda: "supervisor.safe_mode" in node.log.read_text(), what="the log to tell it")
    name = artefacts.write_graph(node.cache, "k", "value").relative_to(node.cache)
    assert (node.cache / name).read_text() == "value"
    assert node.cli("sync", node.cache, "--timeout", "1").code == 1

    assert node.cli("upgrade", node.cache).code == 0
    assert node.status()["takeover"]["safe_mode"] is False
    node.sync()
    other.catch_up(node)
    assert (other.cache / name).read_text() == "value"


def test_the_supervisor_answers_while_no_worker_can_start(cluster):
    """Another process holds the catalog, as a disk that is gone would."""
    node = cluster.quick("a")
    (node.cache / "x").write_text("x")
    held = os.open(node.cache / "x", os.O_RDONLY)
    (supervisor,) = node.supervisors()
    os.kill(supervisor, signal.SIGSTOP)
    node.kill_worker()
    lock = os.open(node.store / "catalog.sqlite.lock", os.O_RDWR)

    def locked():
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    wait_until(locked, what="the catalog's lock")
    os.kill(supervisor, signal.SIGCONT)
    wait_until(lambda: "supervisor.responding" in node.log.read_text(), 60, "the supervisor's own answers")
    in_use(cluster, node)
    if os.geteuid() == 0:
        assert "no program can serve this mount now" in node.guest_hears({"op": "status"})
    assert not (node.cache / "never").exists()
    assert os.stat(node.cache).st_mode & 0o777 == 0o755
    assert os.statvfs(node.cache).f_bfree == 0
    os.posix_fadvise(held, 0, 0, os.POSIX_FADV_DONTNEED)
    with pytest.raises(OSError) as refused:
        os.pread(held, 1, 0)
    assert refused.value.errno == errno.EIO
    with pytest.raises(OSError) as refused:
        (node.cache / "new").write_text("x")
    assert refused.value.errno == errno.EIO

    os.close(lock)
    wait_until(lambda: node.cli("status", node.cache).code == 0, 60, "a worker")
    assert os.pread(held, 1, 0) == b"x"
    os.close(held)
    (node.cache / "new").write_text("new")
    assert (node.cache / "x").read_text() == "x" and (node.cache / "new").read_text() == "new"
    node.unmount()
    nothing_is_left(node)


def test_a_stop_while_no_worker_can_start_leaves_no_mount(cluster):
    node = cluster.quick("a")
    (supervisor,) = node.supervisors()
    os.kill(supervisor, signal.SIGSTOP)
    node.kill_worker()
    path = node.store / "catalog.sqlite.lock"
    lock = os.open(path, os.O_RDWR)
    wait_until(lambda: run(["flock", "-n", path, "true"]).code == 0, what="the catalog's lock")
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.kill(supervisor, signal.SIGTERM)
    os.kill(supervisor, signal.SIGCONT)
    wait_until(lambda: not node.processes(), 30, "the end")
    assert compare.mounts_below(node.root) == []
    os.close(lock)
