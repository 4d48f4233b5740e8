# SPDX-License-Identifier: Apache-2.0
"""Whoever has taken an ordinary user's worker over, which has no tree of files, has the store and what is open to all: nothing else of that user's."""
import contextlib
import json
import os
import subprocess
from pathlib import Path

import pytest
from inductorfs_testing import places
from inductorfs_testing.bounds import NO_LANDLOCK, NO_TREE
from inductorfs_testing.fixtures import lack
from inductorfs_testing.processes import run
from inductorfs_testing.taken_over import CREATE, HERE, READ, WRITE, field_of, inside, landlock, library, not_refused, one, opening, quoted
from inductorfs_testing.twin import describe

NAME = f"inductorfs-attack-{os.getpid()}"
USER = 65534


@contextlib.contextmanager
def mounted_by_a_user(cluster, before=":", log="logs/log"):
    """(a mount of an ordinary user's, made in a mount namespace with a /dev/fuse that everybody may open; its status).
    `before`: a command of root's in that namespace. `log`, below his home: by default a link to a file that is not there yet."""
    if os.geteuid() != 0:
        lack("this test changes users, namespaces or disks: root only")
    if landlock() < 2:
        lack("a kernel with Landlock of Linux 5.19")
    cluster.directory.chmod(0o755)
    node = cluster.node("users", start=False)
    for path in (node.root, node.cache, node.store, node.home, node.tmp):
        os.chown(path, USER, USER)
    program, device = places.copy_programs(cluster.directory), cluster.directory / "fuse"
    (node.home / "logs").mkdir(mode=0o700)
    (node.home / "far").mkdir(mode=0o700)
    (node.home / "logs" / "log").symlink_to("../far/log")
    for path in (node.home / "logs", node.home / "far"):
        os.chown(path, USER, USER)
    words = " ".join(map(str, [program, "mount", node.cache, "--store", node.store, "--log", node.home / log, *cluster.options()]))
    script = (f"{before}; mknod {device} c 10 229; chmod 666 {device}; mount --bind {device} /dev/fuse; "
              f"exec setpriv --reuid={USER} --regid={USER} --clear-groups sh -c '{words} && {program} status --json {node.cache} && echo . && read end; {program} unmount {node.cache}'")
    variables = node.env(USER="nobody", LOGNAME="nobody", INDUCTORFS_END_ON_REFUSED_CALL="")
    with subprocess.Popen(["unshare", "-m", "sh", "-euc", script], env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as shell:
        lines = []
        while not lines or lines[-1] not in (".\n", ""):
            lines.append(shell.stdout.readline())
        assert lines.pop() == ".\n", "it was not mounted"
        status = json.loads("".join(lines))
        assert "mount.ready" in (node.home / log).read_text()
        try:
            yield node, status
        finally:
            shell.communicate("end\n", timeout=60)


@pytest.fixture()
def users(cluster):
    with mounted_by_a_user(cluster) as (node, status):
        assert [warning for warning in status["warnings"] if "serves this mount" in warning] == []
        yield node


def test_a_log_may_lie_in_a_directory_that_is_not_there(cluster):
    with mounted_by_a_user(cluster, log="new/below/log") as (node, _):
        assert (node.home / "new").stat().st_uid == USER


def test_where_processes_are_hidden_its_jobs_are_seen_and_that_is_said(cluster):
    """Landlock hides from a process what it may not trace, and such a /proc hides that from everybody."""
    with mounted_by_a_user(cluster, "mount -t proc -o hidepid=2 proc /proc") as (_, status):
        (warning,) = [warning for warning in status["warnings"] if "serves this mount" in warning]
        assert "may use all files that its user may use (/proc hides processes (hidepid))" in warning


def test_an_ordinary_users_worker_has_his_store_and_no_other_file_of_his(users):
    home = users.root / "his"
    for directory in (home, home / "below"):
        directory.mkdir(mode=0o700)
        os.chown(directory, USER, USER)
    for name in ("key", "removable"):
        (home / name).write_text("key")
        os.chown(home / name, USER, USER)
        (home / name).chmod(0o600)
    before = describe(home), {path.name: describe(path) for path in home.iterdir()}
    worker = users.worker()
    assert field_of(Path(f"/proc/{worker}/status").read_text(), "Uid").split() == [str(USER)] * 4
    kept = users.store / "kept"
    kept.touch()
    os.chown(kept, USER, USER)
    attempts = [opening(home / "key"), opening(home / "key", WRITE), opening(home), opening(home / "fresh", CREATE), opening("/tmp", READ),
                opening(f"/tmp/{NAME}", CREATE), opening(f"/var/tmp/{NAME}", CREATE), opening("/bin/sh"), opening("/root"), opening("/sys/kernel"),
                opening("/etc/passwd", WRITE), opening(users.home), opening("/proc/self/mem", WRITE), opening(f"/proc/{os.getpid()}/environ"),
                one(f'mkdirat {HERE} {quoted(home / "fresh")} 0o777'), one(f'unlinkat {HERE} {quoted(home / "removable")} 0'),
                one(f'symlinkat "x" {HERE} {quoted(home / "fresh")}'), one(f'renameat2 {HERE} {quoted(home / "removable")} {HERE} {quoted(home / "fresh")} 0'),
                one(f'renameat2 {HERE} {quoted(kept)} {HERE} {quoted(home / "fresh")} 0', also=(18,)),
                one(f'linkat {HERE} {quoted(home / "key")} {HERE} {quoted(users.store / "key")} 0', also=(18,))]
    allowed = not_refused(worker, attempts)
    assert not allowed, "not refused:\n" + "\n".join(allowed)
    own = [f"openat {HERE} {quoted(path)} {flags} 0o600" for path, flags in
           ((users.store / "lock", WRITE), (users.store / "fresh", CREATE), ("/etc/passwd", READ), ("/proc/self/stat", READ), ("/dev/null", WRITE), (library(), READ))]
    opened, _ = inside(worker, own)
    assert min(opened) >= 0, list(zip(own, opened))
    inside(worker, [f"close {number}" for number in opened])
    assert (describe(home), {path.name: describe(path) for path in home.iterdir()}) == before


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("without", [(), NO_TREE], ids=["with a tree", "without a tree"])
def test_without_landlock_it_is_said(cluster, without):
    """Of a worker without a tree to everybody: it may use all that its user may."""
    node = cluster.node("a", start=False)
    done = run([*NO_LANDLOCK, *without, places.program(), "mount", node.cache,
                "--store", node.store, "--log", node.log, *cluster.options()], node.env(), seconds=30)
    assert done.code == 0, done.err
    (node.cache / "file").write_text("text")
    (line,) = [line for line in node.log.read_text().splitlines() if "mount.no_landlock" in line]
    assert "Operation not permitted" in line
    warnings = node.status()["warnings"]
    if not without and any("sees all files" in warning for warning in warnings):
        lack("a host where root may make a tree")
    warned = [warning for warning in warnings if "may use all files" in warning]
    assert len(warned) == bool(without) and all("Operation not permitted" in warning for warning in warned)
    assert ("may use all files" in done.err) == bool(warned)
    node.unmount()
