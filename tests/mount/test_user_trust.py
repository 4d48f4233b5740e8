# SPDX-License-Identifier: Apache-2.0
"""Whose artefacts a user's jobs run: --trust, with real daemons of root, processes of several users, and two nodes."""
import mmap
import os
import pwd
import subprocess
import sys

import pytest
from inductorfs_testing import artefacts, places
from inductorfs_testing.mounts import appears
from inductorfs_testing.processes import run, wait_until
from inductorfs_testing.users import as_user

pytestmark = pytest.mark.usefixtures("root")
ALICE, BOB = 54321, 54322
PATIENT = ("--lookup-patience", "5000")  # the tests are about what is found, not about how fast a busy host is
SOURCE = artefacts.code("kernel")
TEXT = "int hers;"


@pytest.fixture
def nodes(cluster):
    """Two nodes whose mounts everybody may write to."""
    def started(*options, mode=0o1777):
        made = []
        for name in "ab":
            node = cluster.node(name, start=False)
            cluster.directory.chmod(0o755)
            node.root.chmod(0o755)
            node.cache.chmod(mode)
            made.append(node.start(*cluster.options(), *PATIENT, *options))
        return made
    return started


def make_root(node, name, user, mode=0o755, gid=None):
    root = node.cache / name
    os.mkdir(root)
    os.chown(root, user, user if gid is None else gid)
    os.chmod(root, mode)
    as_user(user, 0o022, (root / "fxgraph").exists)  # what torch asks for first
    return root


def write(root, user, name=SOURCE, text=TEXT):
    as_user(user, 0o022, artefacts.write_atomic, root, name, text)


def shared_with(node):
    return {item["path"]: item["shared_with"] for item in node.status()["file_system"]["first_roots"]}


def test_a_user_runs_what_the_same_user_made_on_any_node(nodes):
    a, b = nodes()
    write(make_root(a, "alice", ALICE), ALICE)
    a.sync()
    hers = make_root(b, "work", ALICE)
    assert as_user(ALICE, 0o022, appears(hers / SOURCE).read_text) == TEXT
    for root in (make_root(b, "bob", BOB), make_root(b, "team", 0), b.cache, make_root(a, "bob", BOB), a.cache):
        assert not (root / SOURCE).exists(), f"{root} is not hers"
    assert shared_with(b) == {"bob": f"user=#{BOB}", "team": "user=root", "work": f"user=#{ALICE}"}


def test_names_count_and_not_numbers(nodes):
    """A user who has a name on this host: another number, as on a host with users of its own, is another user."""
    named = next(user for user in pwd.getpwall() if user.pw_uid != 0)
    a, _ = nodes()
    make_root(a, "named", named.pw_uid)
    assert shared_with(a)["named"] == f"user={named.pw_name}"


def test_the_first_lookups_of_a_user_find_what_the_cluster_has(nodes):
    """Nothing of a user is followed before he comes: his first job must not compile for that."""
    a, b = nodes()
    write(make_root(a, "alice", ALICE), ALICE)
    a.sync()
    root = make_root(b, "alice", ALICE)
    assert as_user(ALICE, 0o022, (root / SOURCE).read_text) == TEXT, "with no wait"


def test_what_another_user_puts_into_a_root_stays_on_its_host(nodes):
    a, b = nodes()
    root = make_root(a, "alice", ALICE)
    as_user(ALICE, 0, os.mkdir, (root / SOURCE).parent)  # with a umask that lets others in
    write(root, BOB, text="int his;")
    a.sync()
    told = a.explain(root / SOURCE)
    assert f"user {BOB} made it in a cache root of user {ALICE}" in told and "--trust" in told, told
    assert a.status()["file_system"]["foreign"] == 1
    hers = make_root(b, "alice", ALICE)
    write(hers, ALICE)
    b.sync()
    assert (root / SOURCE).read_text() == "int his;", "the local file stands"


def in_place(path):
    with open(path, "r+") as file:
        file.write("int his; ")


def mapped(path):
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as pages:
        pages[:3] = b"his"
        pages.flush()


@pytest.mark.parametrize("mode, umask, groups, meddle", [
    (0o755, 0, (), in_place), (0o755, 0, (), mapped), (0o755, 0, (), None), (0o775, 0o002, (ALICE,), in_place), (0o775, 0o002, (ALICE,), None)])
def test_what_another_user_wrote_or_named_in_a_users_root_stays_on_its_host(cluster, nodes, mode, umask, groups, meddle):
    """Who owns a file does not say who made it: her jobs' umask, or her group, lets him write to it and rename it."""
    a, b = nodes()
    root, other = make_root(a, "alice", ALICE, mode), artefacts.code("another kernel")
    as_user(ALICE, umask, artefacts.write_atomic, root, SOURCE, TEXT)
    as_user(ALICE, umask, (root / other).parent.mkdir)
    a.sync()
    hers = make_root(b, "alice", ALICE)
    assert appears(hers / SOURCE).read_text() == TEXT
    if meddle:
        temporary = (root / other).with_name(".4711.tmp")
        as_user(ALICE, umask, temporary.write_text, TEXT)
        as_user(BOB, 0o022, meddle, temporary, groups=groups)
        as_user(ALICE, 0o022, os.rename, temporary, root / other)
    else:
        as_user(BOB, 0o022, os.rename, root / SOURCE, root / other, groups=groups)
    last = artefacts.code("what comes later")
    write(root, ALICE, last, "int later;")
    a.sync()
    assert appears(hers / last).read_text() == "int later;"
    assert not (hers / other).exists(), f"code of user {BOB} in the name of user {ALICE}"
    told = a.explain(root / other)
    who = "any user may have written to it" if meddle is mapped else f"user {BOB} has written to it, or has given it its name"
    assert who in told and "--trust" in told, told
    a.unmount()
    a.start(*cluster.options(), *PATIENT)
    a.sync()
    assert not (hers / other).exists(), "the mark stays with the file"


MAPS = """
import mmap, sys
with open(sys.argv[1], "r+b") as file:
    pages = mmap.mmap(file.fileno(), 0)
print("mapped", flush=True)
sys.stdin.readline()
pages[:3] = b"his"
pages.flush()
print("written", flush=True)
"""


@pytest.mark.parametrize("narrowed", ["moved", "root", "file"])
def test_what_a_stranger_had_mapped_before_he_was_kept_out_stays_on_its_host(nodes, narrowed):
    """The kernel tells of no page who wrote it, and a mapping outlives each change of rights, and the worker."""
    a, b = nodes()
    root, private = make_root(a, "alice", ALICE), make_root(a, "private", ALICE, 0o700)
    other, last = artefacts.code("another kernel"), artefacts.code("what comes later")
    for directory in (root, private):
        as_user(ALICE, 0o022, (directory / other).parent.mkdir)
    temporary = (root / other).with_name(".4711.tmp")
    as_user(ALICE, 0, temporary.write_text, TEXT)
    hers = make_root(b, "alice", ALICE)
    with subprocess.Popen([sys.executable, "-c", MAPS, temporary], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, user=BOB, group=BOB,
                          extra_groups=[]) as stranger:
        assert stranger.stdout.readline() == "mapped\n"
        if narrowed == "moved":
            as_user(ALICE, 0o022, os.rename, temporary, (private / other).with_name(temporary.name))
            temporary = (private / other).with_name(temporary.name)
        elif narrowed == "root":
            as_user(ALICE, 0o022, os.chmod, root, 0o700)
        else:
            as_user(ALICE, 0o022, os.chmod, temporary, 0o644)
            a.kill_worker()
        stranger.stdin.write("\n")
        stranger.stdin.flush()
        assert stranger.stdout.readline() == "written\n"
    as_user(ALICE, 0o022, os.rename, temporary, temporary.with_name(os.path.basename(other)))
    write(root, ALICE, last, "int later;")
    a.sync()
    appears(hers / last)
    assert not (hers / other).exists(), f"code of user {BOB} in the name of user {ALICE}"
    told = a.explain(temporary.with_name(os.path.basename(other)))
    assert "any user may have written to it through a shared mapping" in told, told


def ask_as(user, *words):
    return as_user(user, 0o022, run, [places.program(), *map(str, words)], {"PATH": "/usr/bin:/bin"}, 60)


def test_nobody_is_told_what_a_directory_has_that_is_closed_to_him(nodes):
    a, _ = nodes()
    root = make_root(a, "secret", ALICE)
    write(root, ALICE)
    a.sync()
    for path in (root / SOURCE, root / "is it there"):
        os.chmod(root, 0o755)
        assert ask_as(BOB, "explain", path).code == 0
        os.chmod(root, 0o700)
        refused = ask_as(BOB, "explain", path)
        assert refused.code != 0 and f"does not let the user {BOB} in" in refused.err and "digest" not in refused.out, refused.out + refused.err
        assert ask_as(ALICE, "explain", path).code == 0
    assert "secret" not in ask_as(BOB, "status", "--json", a.cache).out
    assert "secret" in ask_as(ALICE, "status", "--json", a.cache).out


def test_all_share_with_all_under_trust_all(nodes):
    a, b = nodes("--trust", "all")
    write(make_root(a, "alice", ALICE), ALICE)
    a.sync()
    assert as_user(BOB, 0o022, appears(make_root(b, "bob", BOB) / SOURCE).read_text) == TEXT
    assert set(shared_with(b).values()) == {"everybody"}


def test_roots_own_directory_shows_what_root_made_in_such_a_one_alone(cluster, nodes):
    a, b = nodes()
    (open_to_all,) = [cluster.node("c", start=False)]
    open_to_all.root.chmod(0o755)
    open_to_all.cache.chmod(0o1777)
    open_to_all.start(*cluster.options(), *PATIENT, "--trust", "all")
    write(make_root(open_to_all, "alice", ALICE), ALICE)
    other = artefacts.code("of a user in the mountpoint")
    write(a.cache, ALICE, other)
    roots = artefacts.code("of root")
    write(make_root(a, "team", 0), 0, roots)
    open_to_all.sync()
    a.sync()
    appears(b.cache / SOURCE)
    appears(b.cache / other)
    appears(make_root(b, "team", 0) / roots)
    assert not (b.cache / "team" / SOURCE).exists() and not (b.cache / "team" / other).exists(), "root would run it"
    assert not (b.cache / roots).exists(), "it is root's alone"


@pytest.mark.parametrize("owner", [0, ALICE])
def test_what_another_user_wrote_stays_on_its_host_although_its_owner_is_changed_at_once(nodes, owner):
    """Before it is looked at: it counts who wrote."""
    a, b = nodes()
    root = make_root(a, "mine", owner)
    (root / SOURCE).parent.mkdir()
    os.chown((root / SOURCE).parent, owner, owner)
    (root / SOURCE).parent.chmod(0o777)  # as a job with umask 0 makes it
    as_user(BOB, 0o022, (root / SOURCE).write_text, TEXT)
    os.chown(root / SOURCE, owner, owner)
    sound = artefacts.code("of the owner")
    write(root, owner, sound)
    a.sync()
    appears(make_root(b, "mine", owner) / sound)
    assert not (b.cache / "mine" / SOURCE).exists(), "the owner's jobs would run it"


def test_a_directory_that_others_may_write_to_shares_with_nobody(nodes):
    a, b = nodes()
    write(make_root(a, "alice", ALICE), ALICE)
    a.sync()
    root = make_root(b, "alice", ALICE, 0o1777)
    assert not (root / SOURCE).exists()
    told = shared_with(b)["alice"]
    assert told.startswith("nobody: everybody may write") and "chmod o-w" in told, told
    os.chmod(root, 0o755)
    assert appears(root / SOURCE).read_text() == TEXT


def test_a_group_shares_under_trust_group(nodes):
    a, b = nodes("--trust", "group")
    one, other = pwd.getpwnam("sync"), pwd.getpwnam("nobody")
    team = other.pw_gid
    assert one.pw_gid == team and one.pw_uid != other.pw_uid, "Debian's users without files of their own"
    write(make_root(a, "one", one.pw_uid, 0o2775, team), one.pw_uid)
    a.sync()
    root = make_root(b, "other", other.pw_uid, 0o2775, team)
    assert as_user(other.pw_uid, 0o022, appears(root / SOURCE).read_text) == TEXT
    assert not (make_root(b, "outsider", ALICE, 0o2775, team) / SOURCE).exists(), "his directory got the group from above"
    open_to_all = make_root(b, "open", one.pw_uid, 0o2777, team)
    assert not (open_to_all / SOURCE).exists(), "anybody may have put something there"
    told = shared_with(b)
    assert told["other"] == "group=nogroup" and "is not in its group (nogroup)" in told["outsider"], told
    assert "everybody may write" in told["open"] and "chmod o-w" in told["open"], told
    os.chmod(open_to_all, 0o2775)
    assert appears(open_to_all / SOURCE).read_text() == TEXT, "as soon as the mode allows it"
    os.chmod(open_to_all, 0o2777)
    wait_until(lambda: not (open_to_all / SOURCE).exists(), what="and no longer than that")


def test_a_root_goes_with_its_owner(nodes):
    """What the kernel has kept for the one owner is not shown to the next."""
    a, b = nodes()
    write(make_root(a, "alice", ALICE), ALICE)
    a.sync()
    root = make_root(b, "root", ALICE)
    assert appears(root / SOURCE).read_text() == TEXT
    os.chown(root, BOB, BOB)
    wait_until(lambda: not (root / SOURCE).exists(), what="the names of the owner before are gone")
    os.chown(root, ALICE, ALICE)
    assert appears(root / SOURCE).read_text() == TEXT


@pytest.mark.parametrize("end", ["worker", "mount"])
def test_what_is_shared_outlives_the_daemon(cluster, nodes, end):
    a, b = nodes()
    hers = make_root(a, "alice", ALICE)
    write(hers, ALICE)
    a.sync()
    root = make_root(b, "alice", ALICE)
    bobs = make_root(b, "bob", BOB)
    assert appears(root / SOURCE).read_text() == TEXT
    if end == "worker":
        worker = b.kill_worker()
        b.next_worker(worker)
        assert (root / SOURCE).read_text() == TEXT, "with no wait"
    else:
        b.unmount()
        b.start(*cluster.options(), *PATIENT)
        as_user(ALICE, 0o022, (root / "fxgraph").exists)
        assert as_user(ALICE, 0o022, (root / SOURCE).read_text) == TEXT, "with no wait"
    assert not (bobs / SOURCE).exists()


def test_the_scopes_of_users_are_announced(nodes):
    """Others see what a scope stands for (`explain` of a node that shares nothing with it)."""
    a, _ = nodes("--probe-interval", "1")
    wait_until(lambda: a.counters()["remote.scopes_announced"] > 0, what="the mountpoint's are announced")
    before = a.counters()["remote.scopes_announced"]
    make_root(a, "alice", ALICE)
    wait_until(lambda: a.counters()["remote.scopes_announced"] > before, what="those of the user too")


def test_a_path_in_the_cluster_of_two_users_is_each_ones_own(cluster, nodes):
    """Both wait for a cluster that is away; one of them deletes hers again."""
    a, b = nodes()
    hers, his = make_root(a, "alice", ALICE), make_root(a, "bob", BOB)
    cluster.redis.suspend()
    write(hers, ALICE, text="int hers;")
    write(his, BOB, text="int his;")
    os.remove(hers / SOURCE)
    cluster.redis.resume()
    a.sync()
    assert appears(make_root(b, "bob", BOB) / SOURCE).read_text() == "int his;"
    assert not (hers / SOURCE).exists()
