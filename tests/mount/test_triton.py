# SPDX-License-Identifier: Apache-2.0
"""What Triton does with its files, in a mount for which nothing is declared and with the variables that `inductorfs env` prints."""
import json
import os
import pwd
import shutil
from contextlib import contextmanager

import pytest
from inductorfs_testing import artefacts, environments
from inductorfs_testing.environments import Writer
from inductorfs_testing.fixtures import lack
from inductorfs_testing.processes import wait_until
from inductorfs_testing.users import as_user

DEFAULT = ("--writers", "learned")  # else a node of these tests has --writers all
KEY = artefacts.triton_key("one")
ORDINARY = "nobody"


@pytest.fixture(params=[0, ORDINARY])
def user(request):
    """The job's: root's mount is for all users of the host, and an ordinary user has a mount of his own."""
    if request.param and os.geteuid() != 0:
        lack("root, whose mount is for all users of the host")
    return pwd.getpwnam(request.param).pw_uid if request.param else os.geteuid()


@pytest.fixture
def packages(cluster):
    cluster.directory.chmod(0o755)
    return environments.make(cluster.directory / "environment")


@pytest.fixture
def nodes(cluster):
    made = [cluster.node(name, start=False) for name in ("a", "b")]
    for node in made:
        node.root.chmod(0o755)
        node.cache.chmod(0o1777)
        node.start(*DEFAULT)
    return made


def variables(node, user):
    """As the user's shell has them after eval "$(inductorfs env M)", and with the directories that it names."""
    def told():
        printed = json.loads(node.cli("env", node.cache, "--format", "json").out)
        for directory in printed["directories"]:
            os.makedirs(directory, exist_ok=True)
        return printed["variables"]
    return as_user(user, 0o022, told) if os.geteuid() == 0 else told()


def directories(node, user):
    """TRITON_CACHE_DIR as it is printed, and as users choose it: the keys stand directly in a root of the mount."""
    printed = variables(node, user)
    root = printed["TORCHINDUCTOR_CACHE_DIR"]
    return [printed["TRITON_CACHE_DIR"], f"{root}/kernels", f"{root}/x/y/z", f"{root}/triton"]


@contextmanager
def job(node, packages, user, below=None):
    with Writer(below or node.cache, packages, user=user) as made:
        yield made


def test_a_job_compiles_and_the_next_process_and_node_hit(nodes, packages, user):
    a, b = nodes
    for directory in directories(a, user):
        with job(a, packages, user) as first:
            first.compile(directory, "one")
            assert first.kernel(directory, "one") == ["one"], directory
        with job(a, packages, user) as second:
            assert second.kernel(directory, "one") == ["one"], directory
    a.sync()
    for directory in directories(b, user):
        with job(b, packages, user) as other:
            wait_until(lambda here=directory, who=other: who.kernel(here, "one") == ["one"], what=f"a hit in {directory}")


@pytest.mark.parametrize("typed", ["kernels", "./kernels", "../{name}/kernels", "."])
def test_a_relative_directory_hits(nodes, packages, typed):
    a, b = nodes
    user = os.geteuid()
    for node in nodes:
        (node.cache / "work").mkdir()
    typed = typed.format(name="work")
    with job(a, packages, user, a.cache / "work") as first:
        first.compile(typed, "one")
    with job(a, packages, user, a.cache / "work") as second:
        assert second.kernel(typed, "one") == ["one"]
    whole = os.path.normpath(a.cache / "work" / typed)
    with job(a, packages, user) as third:
        assert third.kernel(whole, "one") == ["one"], "in another working directory"
    a.sync()
    with job(b, packages, user, b.cache / "work") as other:
        wait_until(lambda: other.kernel(typed, "one") == ["one"], what="a hit on the other node")


def test_dumps_are_there_for_everybody_and_stay(nodes, packages, user):
    node, _ = nodes
    root = variables(node, user)["TORCHINDUCTOR_CACHE_DIR"]
    dump, override = f"{root}/dump/{KEY}", f"{root}/override/{KEY}"
    with job(node, packages, user) as first, job(node, packages, user) as second:
        first.dump(f"{root}/dump", "one")
        assert second.read(f"{dump}/k.ttir") == "one wrote k.ttir", "while the process lives"
        assert sorted(os.listdir(dump)) == ["k.ptx", "k.ttir"]
    assert sorted(os.listdir(dump)) == ["k.ptx", "k.ttir"]
    shutil.copytree(dump, override)
    with open(f"{override}/k.ttir", "w") as file:
        file.write("edited")
    told = node.explain(f"{dump}/k.ttir")
    assert "no group file" in told, told
    for _ in range(2):
        node.unmount()
        node.start(*DEFAULT)
        with job(node, packages, user) as reader:
            assert reader.read(f"{dump}/k.ttir") == "one wrote k.ttir"
            assert reader.read(f"{override}/k.ttir") == "edited"
            assert reader.read(f"{override}/k.ptx") == "one wrote k.ptx"
    shutil.rmtree(f"{root}/dump")
    assert not os.path.exists(f"{root}/dump")


def test_a_name_of_tempfiles_form_says_why_nothing_is_shared(nodes, packages):
    node, _ = nodes
    user = os.geteuid()
    with job(node, packages, user) as first:
        first.compile(node.cache / "tmp_compile", "one")
        assert first.kernel(node.cache / "tmp_compile", "one") == ["one"]
    told = node.cli("status", node.cache).out
    assert "tmp_compile: its name has the form of Python's temporary directories" in told, told
