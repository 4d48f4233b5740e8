# SPDX-License-Identifier: Apache-2.0
"""--also as root beside users who prepare, rename and delete what lies on the way to a place, with rights of their own."""
import contextlib
import os
import pwd
import shutil
import signal
import subprocess

import pytest
from inductorfs_testing import compare, places
from inductorfs_testing.mounts import kept_from_sweeps
from inductorfs_testing.processes import run, wait_until

pytestmark = pytest.mark.usefixtures("root")
NOBODY = 65534
NAME = pwd.getpwuid(NOBODY).pw_name
PROGRAM = places.program()


@contextlib.contextmanager
def acting_as(uid):
    """Files are touched with that user's rights."""
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@pytest.fixture
def shared(cluster, place):
    """As /tmp; everybody may go there, as to the mount."""
    for above in (cluster.directory, place.root):
        above.chmod(0o711)
    directory = place.root / "shared"
    directory.mkdir()
    directory.chmod(0o1777)
    return directory


@pytest.fixture
def victim(place):
    """Root's, and closed to others."""
    directory = place.root / "victim"
    directory.mkdir(mode=0o755)
    (directory / "secret").write_text("root's")
    (directory / "secret").chmod(0o644)
    return directory


def mount(cluster, place, shared, *more):
    """Only what is given: no --no-also."""
    facts = cluster.options()[:2]
    done = run([PROGRAM, "mount", place.cache, "--store", place.store, "--log", place.log, "--remote", cluster.redis.url,
                *facts, "--writers", "all", *more], place.env(TMPDIR=str(shared), LOGNAME="root"), seconds=30)
    assert done.code == 0, done.err


DEFAULT = ("precompiled_headers", "cache/should_pad", "cache/inductor_on_disk_cache")


def default_places(torch):
    return [str(torch / name) for name in DEFAULT]


def own_directory(torch, victim):
    torch.mkdir(mode=0o755)


def own_directory_with_a_link(torch, victim):
    torch.mkdir(mode=0o755)
    (torch / "precompiled_headers").symlink_to(victim)


def a_link(torch, victim):
    torch.symlink_to(victim)


@pytest.mark.parametrize("prepare", [own_directory, own_directory_with_a_link, a_link])
def test_nobody_leads_roots_default_place_elsewhere(cluster, place, shared, victim, prepare):
    torch = shared / "torchinductor_root"
    with acting_as(NOBODY):
        prepare(torch, victim)
    place.cache.chmod(0o1777)
    mount(cluster, place, shared)
    assert compare.mounts_below(place.root) == [str(place.cache)], "the mount works, and is nowhere else"
    states = [told["state"] for told in place.status()["also"]]
    assert len(states) == len(DEFAULT)
    assert all(state.startswith(f"failed: {torch} ") and str(NOBODY) in state for state in states)
    assert any(str(torch) in warning for warning in place.status()["warnings"])
    assert os.listdir(victim) == ["secret"] and victim.stat().st_mode & 0o7777 == 0o755
    place.unmount()
    assert compare.mounts_below(place.root) == []


def test_nobody_writes_to_roots_place_of_a_mount_that_all_may_write_to(cluster, place, shared):
    place.cache.chmod(0o1777)
    mount(cluster, place, shared)
    headers = shared / "torchinductor_root" / "precompiled_headers"
    assert headers.stat().st_uid == 0 and headers.stat().st_mode & 0o022 == 0
    with acting_as(NOBODY):
        (place.cache / "theirs").write_text("the mount is everybody's")
        with pytest.raises(PermissionError):
            (headers / "planted.h").write_text("")
        with pytest.raises(PermissionError):
            (place.cache / "precompiled_headers").rename(place.cache / "away")
    (headers / "own.h").write_text("root's")


@pytest.mark.parametrize("name", DEFAULT)
@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_what_was_planted_before_is_not_shown_to_root(cluster, place, shared, mode, name):
    """The directory of the mount is there already: nobody's, or root's and open to all."""
    place.cache.chmod(0o1777)
    mount(cluster, place, shared, "--no-also")
    planted = place.cache / name
    with acting_as(NOBODY if mode == 0o755 else 0):
        planted.mkdir(parents=True)
        planted.chmod(mode)
        (planted / "planted.h").write_text("")
    place.unmount()
    mount(cluster, place, shared)
    states = {told["name"]: told["state"] for told in place.status()["also"]}
    assert states.pop(name).startswith(f"failed: {planted} ")
    assert set(states.values()) == {"bound"}
    torch = shared / "torchinductor_root"
    assert compare.mounts_below(shared) == [path for path in default_places(torch) if path != str(torch / name)]


def test_the_default_place_is_that_of_the_mountpoints_owner(cluster, place, shared):
    os.chown(place.cache, NOBODY, NOBODY)
    mount(cluster, place, shared)
    torch = shared / f"torchinductor_{NAME}"
    headers = torch / "precompiled_headers"
    assert compare.mounts_below(shared) == default_places(torch)
    with acting_as(NOBODY):
        (headers / "own.h").write_text("theirs")
    assert (headers.parent.stat().st_uid, headers.stat().st_uid) == (NOBODY, NOBODY)
    place.unmount()
    assert compare.mounts_below(shared) == [] and os.listdir(headers) == []


def test_a_mount_of_another_user_is_not_shown_to_root(cluster, place, shared):
    os.chown(place.cache, NOBODY, NOBODY)
    mount(cluster, place, shared, "--also", f"precompiled_headers={shared}/torchinductor_root/precompiled_headers")
    assert place.status()["also"][0]["state"].startswith(f"failed: {place.cache} belongs to the user {NOBODY}")
    assert os.listdir(shared / "torchinductor_root" / "precompiled_headers") == []
    assert compare.mounts_below(shared) == default_places(shared / f"torchinductor_{NAME}")[1:]


@pytest.mark.parametrize("end", ["unmount", "kill and mount", "kill and unmount"])
def test_a_place_whose_directory_its_owner_renamed_goes_with_the_mount(cluster, place, shared, victim, end):
    os.chown(place.cache, NOBODY, NOBODY)
    mount(cluster, place, shared)
    torch, moved = shared / f"torchinductor_{NAME}", shared / "moved"
    with acting_as(NOBODY):
        torch.rename(moved)
        torch.mkdir()
        (torch / "precompiled_headers").symlink_to(victim)
    assert compare.mounts_below(shared) == default_places(moved)
    if end == "unmount":
        place.unmount()
    else:
        place.kill_daemon()
        if end == "kill and mount":
            mount(cluster, place, shared, "--no-also")
            place.unmount()
        assert place.cli("unmount", place.cache, "--lazy").code == (1 if end == "kill and mount" else 0)
    wait_until(lambda: compare.mounts_below(place.root) == [], 10, "the bind mount's end")
    assert os.listdir(victim) == ["secret"]
    assert (torch / "precompiled_headers").is_symlink() and (moved / "precompiled_headers").is_dir()


def test_a_place_whose_source_was_deleted_goes_with_the_mount(cluster, place, shared):
    mount(cluster, place, shared)
    shutil.rmtree(place.cache / "precompiled_headers")
    place.unmount()
    assert compare.mounts_below(place.root) == []


def test_a_place_whose_source_was_deleted_goes_after_a_new_worker_too(cluster, place, shared):
    mount(cluster, place, shared)
    shutil.rmtree(place.cache / "precompiled_headers")
    before = place.status()["pid"]
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: place.status()["pid"] != before, 10, "the next worker")
    place.unmount()
    assert compare.mounts_below(place.root) == []


def test_a_place_of_a_mount_that_was_unmounted_by_hand_goes_with_the_next_one(cluster, place, shared):
    mount(cluster, place, shared)
    there = default_places(shared / "torchinductor_root")
    place.kill_daemon()
    with kept_from_sweeps(there[0]):
        assert run(["umount", "--lazy", place.cache], {}, seconds=20).code == 0
        assert compare.mounts_below(shared) == there
    mount(cluster, place, shared, "--no-also")
    wait_until(lambda: compare.mounts_below(shared) == [], what="the places to go")


def test_a_living_mounts_place_is_nobody_elses_to_take(cluster, place, shared):
    """As a container has directories of a mount, and not the mount."""
    own = place.root / "own"
    own.mkdir()
    mount(cluster, place, shared)
    script = 'umount "$1" && "$0" mount "$2" --store "$3" --no-also && "$0" unmount "$2" && grep -c " $4/" /proc/self/mountinfo'
    done = run(["unshare", "--mount", "sh", "-c", script, PROGRAM, place.cache, own, cluster.directory / "other", shared], place.env(),
               seconds=60)
    assert (done.code, done.out) == (0, f"{len(DEFAULT)}\n"), done


@pytest.fixture
def where_users_mount(cluster):
    """Words before a command: for a mount namespace in which everybody may open /dev/fuse."""
    device = cluster.directory / "fuse"
    script = f"mknod {device} c 10 229 && chmod 666 {device} && mount --bind {device} /dev/fuse && echo made && exec cat"
    with subprocess.Popen(["unshare", "--mount", "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"made\n"
        yield ["nsenter", f"--mount=/proc/{holder.pid}/ns/mnt"]


@pytest.mark.parametrize("end", ["unmount", "kill and mount", "kill and unmount"])
def test_links_of_an_ordinary_user_go_with_the_mount(cluster, place, shared, where_users_mount, end):
    program = places.copy_programs(cluster.directory)
    for path in (place.cache, place.store, place.home, place.root):
        os.chown(path, NOBODY, NOBODY)
    named, torch = shared / "named", shared / f"torchinductor_{NAME}"

    def act(word, *options):
        variables = place.env(TMPDIR=str(shared), LOGNAME=NAME)
        user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        return run([*where_users_mount, *user, program, word, place.cache, *options], variables, seconds=60)

    begin = ["--store", place.store, "--log", place.log, *cluster.options()[:2], "--writers", "all"]
    done = act("mount", *begin, "--also", f"cache/named={named}")
    assert done.code == 0, done
    links = {torch / name: place.cache / name for name in DEFAULT} | {named: place.cache / "cache" / "named"}
    assert {path: path.readlink() for path in links} == links
    if end != "unmount":
        place.kill_daemon()
    if end == "kill and mount":
        assert act("mount", *begin, "--no-also").code == 0
        assert not any(path.is_symlink() for path in links)
    done = act("unmount", *(["--lazy"] if end == "kill and unmount" else []))
    assert done.code == 0, done
    assert not any(path.is_symlink() for path in links)


# ---- what a job links by itself

def test_an_ordinary_users_job_links_its_own_directories_of_roots_mount(cluster, place, shared, victim):
    program = places.copy_programs(cluster.directory)
    place.cache.chmod(0o1777)
    mount(cluster, place, shared, "--no-also")
    torch, own = shared / f"torchinductor_{NAME}", place.cache / NAME

    def link(*words):
        user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        done = run([*user, program, "env", "--links", place.cache, *words], place.env(TMPDIR=str(shared), LOGNAME=NAME), seconds=30)
        assert done.code == 0 and f"TORCHINDUCTOR_CACHE_DIR={place.cache}/" in done.out, done
        return done.err.splitlines()

    (place.cache / "open").mkdir()
    (place.cache / "open").chmod(0o777)
    why = f"{place.cache / 'open'} belongs to the user 0, and others may replace what lies there"
    assert link("--root", "open") == [f"inductorfs: no links are made: {why}"]
    made = [f"inductorfs: {torch / name} leads into the mount" for name in DEFAULT]
    assert [link(), link()] == [made, made]
    assert {(torch / name).readlink() for name in DEFAULT} == {own / name for name in DEFAULT}
    with acting_as(NOBODY):
        (torch / "precompiled_headers" / "x.h").write_text("theirs")
        assert (own / "precompiled_headers" / "x.h").stat().st_uid == NOBODY
        shutil.rmtree(torch)
    (shared / f"torchinductor_{NAME}").mkdir()
    assert link() == [f"inductorfs: no links are made: {torch} belongs to the user 0"] and os.listdir(torch) == []
    torch.rmdir()
    torch.symlink_to(victim)
    assert link() == [f"inductorfs: no links are made: {torch} is a link, or no directory"] and os.listdir(victim) == ["secret"]


# ---- what root's process keeps for itself

def refused(cluster, place, *more):
    done = run([PROGRAM, "mount", place.cache, "--no-also", *cluster.options()[:2], *more], place.env(), seconds=30)
    assert done.code == 2 and done.err.count("\n") == 1 and not compare.is_mounted(place.cache)
    return done.err


@pytest.mark.parametrize("kind", ["link", "file", "pipe", "directory"])
def test_root_logs_into_no_file_of_another_user(cluster, place, shared, victim, kind):
    log = shared / "log" if kind != "directory" else shared / "theirs" / "log"
    with acting_as(NOBODY):
        if kind == "link":
            log.symlink_to(victim / "secret")
        elif kind == "file":
            log.write_text("")
        elif kind == "pipe":
            os.mkfifo(log)
        else:
            log.parent.mkdir()
            log.symlink_to(victim / "secret")
    told = refused(cluster, place, "--store", place.store, "--log", log)
    assert str(shared) in told
    assert (victim / "secret").read_text() == "root's" and (victim / "secret").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("mode", [None, 0o1777])
def test_root_keeps_no_store_where_others_may_write(cluster, place, shared, mode):
    store = shared / "theirs" / "store"
    with acting_as(NOBODY if mode is None else 0):
        store.parent.mkdir()
        store.mkdir()
    if mode:
        store.chmod(mode)
    told = refused(cluster, place, "--store", store)
    assert str(store.parent) in told and os.listdir(store) == []
