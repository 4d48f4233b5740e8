# SPDX-License-Identifier: Apache-2.0
"""Root's mount in the default directories of users who ask for it by `inductorfs env`, and of nobody else."""
import json
import os
import re
import shutil
import signal
import subprocess

import pytest
from inductorfs_testing import compare, places
from inductorfs_testing.processes import run, wait_until
from test_further_places import DEFAULT, NAME, NOBODY, acting_as, default_places, mount, shared, victim  # noqa: F401

pytestmark = pytest.mark.usefixtures("root")
AS_USER = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


class User:
    """An ordinary user of root's mount, which all may write to."""

    def __init__(self, cluster, place, shared):
        self.program, self.place, self.shared = places.copy_programs(cluster.directory), place, shared
        self.torch, self.root = shared / f"torchinductor_{NAME}", place.cache / NAME

    def act(self, *words, **variables):
        return run([*AS_USER, self.program, *words], self.place.env(TMPDIR=str(self.shared), LOGNAME=NAME, **variables), seconds=60)

    def env(self):
        """What `inductorfs env` says beside the variables."""
        done = self.act("env", self.place.cache)
        assert done.code == 0 and f"TORCHINDUCTOR_CACHE_DIR={self.root}" in done.out, done
        return done.err

    def shown(self):
        return [path for path in compare.mounts_below(self.shared) if not path.startswith(f"{self.shared}/torchinductor_root/")]


@pytest.fixture
def user(cluster, place, shared):  # noqa: F811
    place.cache.chmod(0o1777)
    mount(cluster, place, shared)
    return User(cluster, place, shared)


def test_root_has_a_directory_of_its_own_where_all_may_write(user, place):
    def named(form):
        return json.loads(place.cli("env", place.cache, "--format", "json").out)["variables"]["TORCHINDUCTOR_CACHE_DIR"] if form == "json" else \
            re.search(r"TORCHINDUCTOR_CACHE_DIR='?([^'\n]*)", place.cli("env", place.cache, "--format", form).out)[1]

    assert [named(form) for form in ("sh", "json", "docker")] == [f"{place.cache}/root"] * 2 + [str(place.cache)], "a container's user is not known"
    place.cache.chmod(0o755)
    assert named("sh") == str(place.cache)


def test_who_asks_for_the_variables_has_the_places(user, place):
    assert user.shown() == [], "nobody has asked"
    assert [user.env(), user.env()] == ["", ""]
    assert user.shown() == default_places(user.torch)
    headers = user.torch / "precompiled_headers"
    with acting_as(NOBODY):
        (headers / "x.h").write_text("theirs")
    own = user.root / "precompiled_headers"
    assert [(path.stat().st_uid, path.stat().st_mode & 0o022) for path in (user.root, own, own / "x.h")] == [(NOBODY, 0)] * 3
    assert {place.status()["also"][index]["path"] for index in range(3)} == set(default_places(user.shared / "torchinductor_root"))
    with subprocess.Popen([*AS_USER, "sleep", "60"], cwd=headers) as job:
        refused = place.cli("unmount", place.cache)
        assert refused.code == 1 and str(headers) in refused.err, refused
        job.kill()
    place.unmount()
    assert compare.mounts_below(place.root) == [] and os.listdir(headers) == []


def own_headers(user, victim):  # noqa: F811
    with acting_as(NOBODY):
        (user.torch / "precompiled_headers").mkdir(parents=True)
        (user.torch / "precompiled_headers" / "x.h").write_text("a job may need it")
    return f"{user.torch}/precompiled_headers holds what jobs made without the mount"


def a_link(user, victim):  # noqa: F811
    with acting_as(NOBODY):
        user.torch.symlink_to(victim)
    return f"{user.torch} is a link"


def a_link_at_the_place(user, victim):  # noqa: F811
    with acting_as(NOBODY):
        user.torch.mkdir()
        (user.torch / "precompiled_headers").symlink_to(victim)
    return f"{user.torch}/precompiled_headers is a link"


def roots_directory(user, victim):  # noqa: F811
    user.torch.mkdir()
    return f"{user.torch} belongs to the user 0"


def roots_source(user, victim):  # noqa: F811
    with acting_as(NOBODY):
        user.root.mkdir()
    (user.root / "precompiled_headers").mkdir()
    return f"{user.root}/precompiled_headers is not the user's own"


def a_source_for_all(user, victim):  # noqa: F811
    with acting_as(NOBODY):
        (user.root / "precompiled_headers").mkdir(parents=True)
        (user.root / "precompiled_headers").chmod(0o777)
    return f"{user.root}/precompiled_headers may be written to by others"


@pytest.mark.parametrize("prepare", [own_headers, a_link, a_link_at_the_place, roots_directory, roots_source, a_source_for_all])
def test_what_is_in_the_way_stays_and_is_told(user, place, victim, prepare):  # noqa: F811
    why = prepare(user, victim)
    headers = user.torch / "precompiled_headers"
    told = user.env()
    assert told.startswith(f"inductorfs: {headers} shows no mount") and why in told, told
    assert str(headers) not in user.shown()
    assert os.listdir(victim) == ["secret"]
    assert f"\nwarning  {headers} shows no mount" in user.act("doctor", place.cache, TORCHINDUCTOR_CACHE_DIR=user.root).out
    status = user.act("status", place.cache, TORCHINDUCTOR_CACHE_DIR=user.root)
    assert f"{headers} shows no mount" in status.out, status


def test_a_place_that_its_user_renames_again_and_again_has_a_limit(user, place):
    for count in range(6):
        told = user.env()
        if told:
            break
        with acting_as(NOBODY):
            user.torch.rename(user.shared / f"moved{count}")
    assert "too many places were renamed" in told and 1 < count < 6, told
    assert str(user.torch / "precompiled_headers") not in user.shown()
    place.unmount()
    assert compare.mounts_below(place.root) == []


def test_a_user_who_removes_the_directory_can_write_at_the_place(user):
    """Where a directory that was removed is shown nothing can be made."""
    user.env()
    headers = user.torch / "precompiled_headers"
    with acting_as(NOBODY):
        shutil.rmtree(user.root)
    wait_until(lambda: user.shown() == [], what="the places to go")
    assert user.env() == "" and user.shown() == default_places(user.torch)
    with acting_as(NOBODY):
        (headers / "ab").mkdir()
        (user.root / "precompiled_headers" / "ab" / "x.h").write_text("theirs")
        assert (headers / "ab" / "x.h").read_text() == "theirs"
        user.root.rename(user.place.cache / "old")
        user.root.mkdir()
    assert user.env() == ""
    assert os.listdir(headers) == [] and user.shown() == default_places(user.torch)


@pytest.mark.parametrize("end", ["worker", "daemon", "unmount"])
def test_the_places_come_back_with_the_mount(cluster, place, shared, user, end):  # noqa: F811
    user.env()
    there = default_places(user.torch)
    before = place.status()["pid"]
    if end == "worker":
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: place.status()["pid"] != before, 10, "the next worker")
        assert user.shown() == there
    else:
        place.kill_daemon() if end == "daemon" else place.unmount()
        mount(cluster, place, shared)
        wait_until(lambda: user.shown() == there, what="the places of the new mount")
    with acting_as(NOBODY):
        (user.torch / DEFAULT[0] / "x.h").write_text("theirs")
    assert (user.root / DEFAULT[0] / "x.h").exists() and user.env() == ""


def test_a_mount_without_further_places_has_none_for_users(cluster, place, shared):  # noqa: F811
    place.cache.chmod(0o1777)
    mount(cluster, place, shared, "--no-also")
    user = User(cluster, place, shared)
    assert "--no-also" in user.env() and compare.mounts_below(shared) == []
