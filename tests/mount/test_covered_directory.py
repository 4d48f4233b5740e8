# SPDX-License-Identifier: Apache-2.0
"""The directory below a mount of root: it is root's and closed from the first mount on, what it was before is what each mount shows, and what
falls below all the same is moved away, so that the same command mounts again whatever happened meanwhile."""
import contextlib
import errno
import os
import signal
import stat
import subprocess
import sys

import pytest
from inductorfs_testing import compare, places
from inductorfs_testing.processes import run, wait_until
from inductorfs_testing.users import as_user

pytestmark = pytest.mark.usefixtures("root")

ALICE = 23456
ROUNDS = int(os.environ.get("INDUCTORFS_REMOUNTS", "6"))
# As `mkdir -p` of a job in a loop.
MAKER = """
import os, sys
os.setgid({user}), os.setuid({user})
while not os.path.exists(sys.argv[2]):
    try:
        os.makedirs(sys.argv[1] + f"/alice/{{os.getpid()}}", exist_ok=True)
        os.rmdir(sys.argv[1] + f"/alice/{{os.getpid()}}")
        os.rmdir(sys.argv[1] + "/alice")
    except OSError:
        pass
"""


def shown(path):
    found = path.stat()
    return found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)


def make(directory, mode, user=0):
    """As `install -d -m` does."""
    directory.mkdir(exist_ok=True)
    os.chown(directory, user, user)
    directory.chmod(mode)


def makes_directory(path):
    try:
        os.mkdir(path)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "made"


def begin(cluster, place, *more):
    """What the unit runs."""
    errors = place.root / "errors"
    with open(errors, "a") as file:
        return subprocess.Popen([places.program(), "mount", place.cache, "--foreground", "--store", place.store, "--log", place.log,
                                 *cluster.options(), *more], env=place.env(), stderr=file), errors


def await_mount(unit, place, errors):
    def answers():
        assert unit.poll() is None, errors.read_text()
        return place.cli("status", place.cache).code == 0
    wait_until(answers, 30, "the mount")


def end(unit, place, number):
    """The main process is killed, and what is left of the unit is sent this signal: SIGKILL leaves a dead mount, SIGTERM none."""
    unit.kill()
    unit.wait()
    for pid in place.daemons() if number == signal.SIGTERM else place.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            os.kill(pid, number)  # the second one has it wait for no job
    wait_until(lambda: not place.processes(), 20, "the end of the unit's processes")


@pytest.mark.parametrize(("user", "mode"), [(0, 0o1777), (ALICE, 0o750), (0, 0o755)])
def test_what_the_directory_was_is_shown_and_nobody_writes_below(cluster, place, user, mode):
    make(place.cache, mode, user)
    for _ in range(3):
        place.start(*cluster.options())
        assert shown(place.cache) == (user, user, mode)
        place.unmount()
        assert shown(place.cache) == (0, 0, 0o555)
        assert as_user(ALICE, 0, makes_directory, place.cache / "x") == "EACCES"


def test_who_changes_the_directory_says_what_is_shown(cluster, place):
    make(place.cache, 0o700, ALICE)
    place.start(*cluster.options())
    place.unmount()
    make(place.cache, 0o1777)
    for _ in range(2):
        place.start(*cluster.options())
        assert shown(place.cache) == (0, 0, 0o1777)
        place.unmount()
    os.chown(place.cache, ALICE, ALICE)
    place.start(*cluster.options())
    assert shown(place.cache) == (ALICE, ALICE, 0o1777)


def test_options_say_what_is_shown(cluster, place):
    place.start(*cluster.options("--mode", "1777", "--owner", str(ALICE) + ":12"))
    assert shown(place.cache) == (ALICE, 12, 0o1777)
    place.kill_worker()
    wait_until(lambda: place.cli("status", place.cache).code == 0, 30, "the next worker")
    assert shown(place.cache) == (ALICE, 12, 0o1777)
    place.unmount()
    (place.root / "node.toml").write_text('mode = "0750"\nowner = "nobody"\n')
    place.start("--config", place.root / "node.toml", *cluster.options())
    assert shown(place.cache)[0] == 65534 and shown(place.cache)[2] == 0o750
    place.unmount()
    place.start(*cluster.options())
    assert shown(place.cache) == (0, 0, 0o755), "that of the directory"


@pytest.mark.parametrize("words", [("--mode", "777x"), ("--mode", "1023"), ("--mode", "4755"), ("--owner", ":12"), ("--owner", "no-such-user")])
def test_a_wrong_owner_or_mode_is_a_wrong_option(cluster, place, words):
    for command in (("mount", place.cache), ("config", "check")):
        done = place.cli(*command, *words)
        assert done.code == 2 and words[0].lstrip("-") in done.err and words[1] in done.err, done.err


def test_an_ordinary_user_gives_nothing_away(cluster, place):
    done = as_user(ALICE, 0o22, run, [places.program(), "config", "check", "--owner", "root"], dict(os.environ))
    assert done.code == 2 and "--owner" in done.err, done.err


def test_a_directory_that_was_never_below_a_mount_is_not_touched(cluster, place):
    make(place.cache, 0o1777)
    (place.cache / "precious").touch()
    done = place.cli("mount", place.cache, "--store", place.store, *cluster.options())
    assert done.code == 1 and "is not empty (it holds precious" in done.err
    assert shown(place.cache) == (0, 0, 0o1777) and (place.cache / "precious").exists()


def test_what_fell_below_is_moved_and_said(cluster, place):
    """By a job that is root's, or after somebody has opened the directory again."""
    make(place.cache, 0o1777)
    place.start(*cluster.options())
    place.unmount()
    make(place.cache, 0o1777)
    assert as_user(ALICE, 0, makes_directory, place.cache / "alice") == "made"
    (place.cache / "trap").symlink_to("/etc")
    done = place.cli("mount", place.cache, "--store", place.store, "--log", place.log, *cluster.options())
    assert done.code == 0, done.err
    (aside,) = place.root.glob("cache.left-over-*")
    assert str(aside) in done.err and str(aside) in place.log.read_text()
    assert any(str(aside) in line for line in place.status()["warnings"])
    assert sorted(os.listdir(aside)) == ["alice", "trap"] and (aside / "trap").is_symlink()
    assert shown(aside) == (0, 0, 0o700) and shown(aside / "alice")[0] == ALICE
    assert os.listdir(place.cache) == [] and shown(place.cache) == (0, 0, 0o1777)
    place.unmount()
    assert os.listdir(place.cache) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_unit_comes_back_whatever_a_job_does_meanwhile(cluster, place, number):
    """kill -9 of the main process under `mkdir -p MOUNT/alice/x`, and the same command again."""
    make(place.cache, 0o1777)
    stop = place.root / "stop"
    unit, errors = begin(cluster, place)
    await_mount(unit, place, errors)
    makers = [subprocess.Popen([sys.executable, "-c", MAKER.format(user=ALICE), place.cache, stop]) for _ in range(2)]
    try:
        for _ in range(ROUNDS):
            end(unit, place, number)
            unit, errors = begin(cluster, place)
            await_mount(unit, place, errors)
            assert shown(place.cache) == (0, 0, 0o1777)
        assert list(place.root.glob("*left-over*")) == [], "after the first mount nobody can write below"
    finally:
        stop.touch()
        for maker in makers:
            maker.wait(30)
    unit.send_signal(signal.SIGTERM)
    assert unit.wait(30) == 0, errors.read_text() + place.log_tail()
    assert not compare.mounts_below(place.root) and os.listdir(place.cache) == [] and shown(place.cache) == (0, 0, 0o555)
