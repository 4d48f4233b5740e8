# SPDX-License-Identifier: Apache-2.0
"""Several users in one cache directory: the umask of whoever came first makes nobody's job fail, and nobody gets a right that the
directory itself does not give. Each step is a process of that user."""
import contextlib
import errno
import fcntl
import hashlib
import json
import multiprocessing
import os
import pickle
import shutil
import stat

import pytest
from inductorfs_testing import artefacts
from inductorfs_testing.mounts import appears
from inductorfs_testing.processes import Failed, wait_until
from inductorfs_testing.users import as_user, begin_as, result_of

pytestmark = pytest.mark.usefixtures("root")
ONE, TWO, STRANGER, TEAM = 1000, 1001, 1002, 2000
HASH = hashlib.sha256(b"device").hexdigest()


def locked(path):
    """filelock as torch uses it: makes the directory, opens what may be there, and old releases set the mode. 0, or the errno."""
    artefacts.make_directories(path.parent)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    with contextlib.suppress(PermissionError):
        os.fchmod(file, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno
    finally:
        os.close(file)
    return 0


def pgo_state(cache, text):
    """torch/_dynamo/pgo.py: write_local_impl, whose temporary name all processes of a job have in common."""
    path = cache / "dynamo" / "code_state_job_0_tag.pkl"
    assert locked(path.with_name(path.name + ".lock")) == 0
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb") as file:
        file.write(pickle.dumps(text))
    os.replace(temporary, path)
    return path


def files(cache, who):
    """What each user's job writes under the same names, each family in its way."""
    made = [artefacts.write_graph(cache, "graph", "value"), pgo_state(cache, who)]
    for name, text in ((artefacts.code("code", ".py"), "print()"), (artefacts.code("code"), "int x;"),
                       (f"ab/{HASH}.best_config", json.dumps({"by": who})), (f"cache/{HASH}", json.dumps({"by": who})),
                       ("aotautograd/a" + artefacts.torch_hash("key") + "/" + artefacts.torch_hash("content"), "content"),
                       (artefacts.code("code", ".kernel_perf"), "1.0"), ("cache/memo/" + "0" * 32, "value")):
        made.append(artefacts.write_atomic(cache, name, text))
    library = cache / artefacts.code("library", ".so")
    if library.exists():
        library.unlink()
    made.append(artefacts.build_library(cache, "library"))
    kernel = artefacts.triton_compile(cache, "kernel", who)
    made += [kernel / name for name in (*artefacts.TRITON_FILES, "__grp__k.json")]
    for name in ("locks/key.lock", f"triton/0/{artefacts.triton_key('kernel')}/lock", "cache/memo/dir.lock"):
        assert locked(cache / name) == 0, name
    return made


def read_all(made):
    return [path.read_bytes() for path in made]


def new_names(cache, who):
    """Further names in every directory of the other user, and the removal of the other's file."""
    seen = []
    for above, _, names in os.walk(cache, onerror=lambda error: (_ for _ in ()).throw(error)):
        if above == str(cache):
            continue
        path = os.path.join(above, f".{who}.1.tmp")
        with open(path, "w", encoding="ascii") as file:
            file.write(who)
        os.unlink(path)
        seen += [os.path.join(above, name) for name in names]
    return seen


@pytest.fixture
def common(cluster):
    """A mount whose directory everybody may enter, so that its mode alone counts."""
    def mounted(mode=0o1777, owner=0, group=0, name="common", options=()):
        made = cluster.node(name, start=False)
        cluster.directory.chmod(0o755)
        made.root.chmod(0o755)
        os.chown(made.cache, owner, group)
        made.cache.chmod(mode)
        return made.start(*cluster.options(), *options)
    return mounted


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.mark.parametrize("first, second", [(0o077, 0o077), (0o077, 0o022), (0o022, 0o077), (0o022, 0o022)])
@pytest.mark.parametrize("directory", [0o1777, 0o777])
def test_two_users_use_every_family_and_lock_of_one_directory(common, directory, first, second):
    cache = common(directory).cache
    made = as_user(ONE, first, files, cache, "one")
    assert len(as_user(TWO, second, read_all, made)) == len(made)
    as_user(TWO, second, files, cache, "two")
    as_user(ONE, first, read_all, made)
    as_user(ONE, first, files, cache, "one again")
    assert as_user(TWO, second, artefacts.triton_read, cache, "kernel")
    for user, umask in ((TWO, second), (ONE, first)):
        as_user(user, umask, new_names, cache, f"user{user}")


def test_a_lock_is_one_for_all_users(common):
    cache = common().cache
    path = cache / "locks" / "key.lock"

    assert as_user(ONE, 0o077, locked, path) == 0
    with open(path, "rb+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for user in (ONE, TWO):
            assert as_user(user, 0o077, locked, path) == errno.EAGAIN
    assert as_user(TWO, 0o077, locked, path) == 0
    as_user(TWO, 0o077, os.unlink, path)
    assert as_user(ONE, 0o022, locked, path) == 0, "the one who released it may have removed it"


def test_what_a_killed_job_left_keeps_nobody_from_its_work(common):
    cache = common().cache
    library = cache / artefacts.code("library", ".so")
    build = library.with_name(library.stem + "_CxxBuild")

    def killed():
        artefacts.make_directories(build)
        (build / "part.o").write_text("half")
        artefacts.make_directories(cache / "dynamo")
        (cache / "dynamo" / "code_state_job_0_tag.pkl.tmp").write_text("half")

    def next_one():
        for name in os.listdir(build):  # cpp_builder.py: _remove_dir
            os.remove(build / name)
        build.rmdir()
        artefacts.build_library(cache, "library")
        return pickle.loads(pgo_state(cache, "two").read_bytes())

    as_user(ONE, 0o077, killed)
    assert as_user(TWO, 0o022, next_one) == "two"


def test_entries_of_the_cluster_are_replaced_by_any_user_who_may_write_to_the_directory(cluster, common):
    name = artefacts.code("code")
    seeder = common(name="seeder")
    artefacts.write_atomic(seeder.cache, name, "int zero;")
    seeder.sync()
    cache = common().cache
    appears(cache / name)
    assert mode((cache / name).parent) == 0o777
    for writer, reader, content in ((ONE, TWO, "int one;"), (TWO, ONE, "int two;")):
        as_user(writer, 0o077, artefacts.write_atomic, cache, name, content)
        assert as_user(reader, 0o077, (cache / name).read_text) == content


def test_a_directory_of_a_group_is_its_members_alone(common):
    cache = common(0o770, group=TEAM).cache
    made = as_user(ONE, 0o077, files, cache, "one", groups=[TEAM])
    as_user(TWO, 0o022, read_all, made, groups=[TEAM])
    as_user(TWO, 0o022, files, cache, "two", groups=[TEAM])
    as_user(ONE, 0o077, files, cache, "one again", groups=[TEAM])
    with pytest.raises(Failed, match="PermissionError"):
        as_user(STRANGER, 0o022, read_all, made)
    for path in (made[0], made[0].parent, cache / "locks"):
        assert (mode(path) & 0o007, os.stat(path).st_gid) == (0, TEAM), path
    assert (mode(cache / "locks" / "key.lock"), os.stat(cache / "locks" / "key.lock").st_gid) == (0o664, TEAM), "0644 by fchmod"


def test_a_directory_of_one_user_gives_nothing_to_others(common):
    cache = common(0o700, owner=ONE, group=ONE).cache
    made = as_user(ONE, 0o077, files, cache, "one")
    assert {mode(path) for path in made} <= {0o600, 0o700}
    assert {mode(path.parent) for path in made} == {0o700}
    with pytest.raises(Failed, match="PermissionError"):
        as_user(TWO, 0o022, read_all, made)


def test_readers_of_a_directory_write_nothing_there(common):
    cache = common(0o755, owner=ONE, group=ONE).cache
    made = as_user(ONE, 0o077, files, cache, "one")
    as_user(TWO, 0o022, read_all, made)
    for path in (cache / "locks" / "key.lock", made[0], cache / "locks" / "new.lock", made[0].parent / "new"):
        def write(path=path):
            with open(path, "ab"):
                pass
        with pytest.raises(Failed, match="PermissionError"):
            as_user(TWO, 0o022, write)


def test_what_the_superuser_makes_in_a_users_directory_does_not_shut_out_that_user(common):
    cache = common(0o700, owner=ONE, group=ONE).cache
    made = as_user(0, 0o077, files, cache, "root")
    as_user(ONE, 0o022, read_all, made)
    as_user(ONE, 0o022, files, cache, "one")
    as_user(0, 0o077, files, cache, "root again")


def test_what_is_of_no_family_stays_as_its_maker_made_it(common):
    cache = common().cache

    def own():
        os.mkdir(cache / "mine")
        for name in ("mine/uv.lock", "uv.lock", "mine/notes", "gcc.log"):
            (cache / name).write_text("private")
        artefacts.make_directories(cache / "ab")
        (cache / "ab" / ".1.2.tmp").write_text("half")
        os.mkdir(cache / "tmpabcdefgh")
        artefacts.write_graph(cache / "tmpabcdefgh", "k", "value")

    as_user(ONE, 0o077, own)
    assert {mode(cache / name) for name in ("mine", "tmpabcdefgh", "tmpabcdefgh/fxgraph")} == {0o700}
    assert {mode(cache / name) for name in ("mine/uv.lock", "uv.lock", "mine/notes", "gcc.log", "ab/.1.2.tmp")} == {0o600}
    for step in ((cache / "uv.lock").read_text, (cache / "mine" / "notes").read_text, (cache / "ab" / ".1.2.tmp").read_text):
        with pytest.raises(Failed, match="PermissionError"):
            as_user(TWO, 0o022, step)
    with pytest.raises(Failed, match="PermissionError"):
        as_user(TWO, 0o022, shutil.rmtree, cache / "mine")


def test_a_link_that_another_user_planted_is_not_followed(common):
    """A lock, and a temporary name that is written without O_EXCL, as links to a file of the victim's own. The kernel refuses this under
    a sticky bit; here the one who made the link has read it before, and another user follows what the superuser made."""
    cache = common().cache
    victim = cache.parent / "victims"
    victim.write_text("secret")
    os.chown(victim, TWO, TWO)
    as_user(ONE, 0o022, files, cache, "one")
    planted = [cache / "locks" / "planted.lock", cache / "ab" / ".1.2.tmp", cache / "dynamo" / "code_state_job_0_tag.pkl.tmp"]

    def plant():
        for path in planted:
            os.symlink(victim, path)
            assert os.readlink(path) == str(victim)
        os.symlink(victim, cache / "elsewhere")
        os.link(cache / "elsewhere", cache / "locks" / "linked.lock", follow_symlinks=False)
        os.readlink(cache / "elsewhere")
        os.rename(cache / "elsewhere", cache / "locks" / "moved.lock")

    def touch(path):
        with contextlib.suppress(PermissionError), open(path, "wb"):
            return "opened"
        return "refused"

    as_user(ONE, 0o022, plant)
    for path in (*planted, cache / "locks" / "linked.lock", cache / "locks" / "moved.lock"):
        assert as_user(TWO, 0o022, touch, path) == "refused", path
    assert victim.read_text() == "secret"
    os.symlink(victim, cache / "locks" / "roots")
    assert as_user(TWO, 0o022, (cache / "locks" / "roots").read_text) == "secret"


def test_a_chmod_of_an_artefact_or_its_directory_counts(common):
    cache = common().cache
    made = as_user(ONE, 0o077, artefacts.write_graph, cache, "graph", "value")
    as_user(ONE, 0o077, os.chmod, made, 0o600)
    with pytest.raises(Failed, match="PermissionError"):
        as_user(TWO, 0o022, made.read_bytes)
    as_user(ONE, 0o077, os.chmod, made.parent, 0o750)
    with pytest.raises(Failed, match="PermissionError"):
        as_user(TWO, 0o022, os.listdir, made.parent)


def test_a_chmod_of_the_directory_counts_for_what_is_there(common):
    cache = common(0o755, owner=ONE, group=ONE).cache
    as_user(ONE, 0o077, files, cache, "one")
    with pytest.raises(Failed, match="PermissionError"):
        as_user(TWO, 0o077, locked, cache / "locks" / "key.lock")
    as_user(ONE, 0o077, os.chmod, cache, 0o777)
    as_user(TWO, 0o077, files, cache, "two")
    as_user(ONE, 0o077, files, cache, "one again")


def test_each_users_root_is_that_users_alone_and_shows_what_all_made(cluster, common):
    seeder = cluster.quick("seeder", "--trust", "all")
    name = artefacts.code("own")
    artefacts.write_atomic(seeder.cache, name, "int zero;")
    seeder.sync()
    cache = common(0o1777, options=("--trust", "all")).cache
    appears(cache / name)
    roots = {ONE: (cache / "one", 0o755), TWO: (cache / "two", 0o700)}
    for uid, (root, bits) in roots.items():
        as_user(uid, 0o022, os.mkdir, root, bits)
        as_user(uid, 0o022, (root / "fxgraph").exists)  # what torch asks for first
        assert as_user(uid, 0o022, (root / name).read_text) == "int zero;"
        directory = os.stat((root / name).parent)
        assert (directory.st_uid, stat.S_IMODE(directory.st_mode)) == (uid, bits), "of the cluster, in this root"
        assert os.stat(root / name).st_uid == uid
        as_user(uid, 0o077, artefacts.write_atomic, root, name, f"int of_{uid};")
        made = as_user(uid, 0o077, files, root, str(uid))
        as_user(uid, 0o077, read_all, made)
        as_user(uid, 0o077, new_names, root, str(uid))
    assert as_user(TWO, 0o022, (cache / "one" / name).read_text) == f"int of_{ONE};"
    for uid, root in ((ONE, cache / "two"), (TWO, cache / "one"), (STRANGER, cache / "one")):
        with pytest.raises(Failed, match="PermissionError"):
            as_user(uid, 0o022, artefacts.write_atomic, root, name, "int theirs;")
    with pytest.raises(Failed, match="PermissionError"):
        as_user(ONE, 0o022, (cache / "two" / name).read_text)


MANY = 64


def job_in_a_root_of_its_own(root, who, together, seeded):
    """As a job that starts with the others: what the cluster has is there, and what the job makes under the names of all is its own."""
    os.mkdir(root)
    together.wait(60)
    os.path.exists(root / "fxgraph")  # what torch asks for first
    assert (root / seeded).read_text() == "int zero;"
    assert artefacts.triton_writers(artefacts.triton_read(root, "seeded")) == {"seeder"}
    made = [*files(root, who), artefacts.write_graph(root, f"graph of {who}", f"value of {who}")]
    read_all(made)
    assert artefacts.triton_writers(artefacts.triton_read(root, "kernel")) == {who}
    new_names(root, who)
    return str(made[-1].relative_to(root)), {mode(path) for path in made}, {os.stat(path).st_uid for path in made}


def test_64_users_at_once_hit_and_publish_each_in_a_root_of_its_own(cluster, common):
    """Under the policy with which their roots share with all; what follows keeps them apart."""
    seeder = cluster.quick("seeder", "--trust", "all")
    name = artefacts.code("seeded")
    artefacts.write_atomic(seeder.cache, name, "int zero;")
    artefacts.triton_compile(seeder.cache, "seeded", "seeder")
    seeder.sync()
    node = common(0o1777, options=("--trust", "all"))
    cache = node.cache
    appears(cache / name)
    appears(cache / "triton" / "0" / artefacts.triton_key("seeded") / "__grp__k.json")
    together = multiprocessing.get_context("fork").Barrier(MANY)
    users = range(ONE, ONE + MANY)
    begun = [begin_as(uid, 0o077 if uid % 2 else 0o022, job_in_a_root_of_its_own, cache / f"user{uid}", str(uid), together, name)
             for uid in users]
    told = [result_of(one) for one in begun]
    node.sync()
    for uid, (graph, modes, owners) in zip(users, told, strict=True):
        assert owners == {uid}
        assert {bits & 0o044 for bits in modes} == ({0} if uid % 2 else {0o044}), "as that user's umask says"
        assert appears(seeder.cache / graph).read_text() == f"value of {uid}"
    status = node.status()["file_system"]
    assert {(root["path"], root["owner"]) for root in status["first_roots"]} == {(f"user{uid}", uid) for uid in users}
    assert status["roots"] == MANY


def own_job(root, who, together, made_before):
    """What the same user has published from another node is there, and nothing of the other users; then one artefact more."""
    os.makedirs(root, exist_ok=True)
    together.wait(60)
    os.path.exists(root / "fxgraph")
    if made_before:
        wait_until((root / artefacts.graph("what I made", who)).exists, 120, f"what {who} published")
        assert len(os.listdir(root / os.path.dirname(artefacts.graph("what I made", who)))) == 1
    return artefacts.write_graph(root, "what I made", who).stat().st_uid


def test_64_users_at_once_share_each_with_itself_alone(cluster, common):
    """--trust user, the default of root's mount: the same key of all, and on the other node each finds its own candidate."""
    together = multiprocessing.get_context("fork").Barrier(MANY)
    users = range(ONE, ONE + MANY)
    for name in ("one", "other"):
        node = common(0o1777, name=name)
        begun = [begin_as(uid, 0o022, own_job, node.cache / f"user{uid}", str(uid), together, name == "other") for uid in users]
        assert [result_of(one) for one in begun] == list(users)
        node.sync()
