# SPDX-License-Identifier: Apache-2.0
"""Processes of several environments in one root of a mount that was told of none (--writers learned), with packages that nobody
can run: what each sees, over kill -9 of the worker, unmount and a file system of packages that does not answer."""
import contextlib
import os
import shutil
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from inductorfs_testing import artefacts, environments
from inductorfs_testing.environments import Writer
from inductorfs_testing.hung_files import hung_files
from inductorfs_testing.processes import run, wait_until

LEARNED = ("--writers", "learned")


@pytest.fixture(name="packages")
def two_environments(cluster):
    """Those of two virtual environments with other contents."""
    cluster.directory.chmod(0o755)
    made = [environments.make(cluster.directory / f"environment{number}") for number in (1, 2)]
    (made[1] / "torch/version.py").write_text("__version__ = '9.9.10+test'\ncuda = None\n")
    return made


def branches(node):
    return [root for root in node.status()["file_system"]["first_roots"] if "environment" in root]


def test_each_process_publishes_under_its_own_environment(cluster, packages):
    a, b = (cluster.node(name, options=LEARNED) for name in ("a", "b"))
    for node in (a, b):
        (node.cache / "team").mkdir()
    with Writer(a.cache / "team", packages[0]) as one, Writer(a.cache / "team", packages[1]) as two:
        own, other = one.write("one"), two.write("two")
        assert one.read(own) == "one" and two.read(other) == "two"
        assert one.read(other) is None and two.read(own) is None
    a.sync()
    with Writer(b.cache / "team", packages[0]) as one, Writer(b.cache / "team", packages[1]) as two:
        assert one.read("fxgraph/none") is None and two.read("fxgraph/none") is None  # as torch asks first
        wait_until(lambda: one.read(own) == "one", 20, "what the first environment has published")
        wait_until(lambda: two.read(other) == "two", 20, "what the second environment has published")
        assert one.read(other) is None and two.read(own) is None
    assert sorted(root["path"] for root in branches(b)) == ["team", "team"]
    assert (b.cache / "team" / own).read_text() == "one", "a program without torch sees all of them"
    assert (b.cache / "team" / other).read_text() == "two"


@pytest.mark.parametrize("by_a_shell", [False, True])
@pytest.mark.parametrize("root", [".", "team"])
def test_what_is_removed_stays_away_from_the_next_job(cluster, packages, root, by_a_shell):
    """As torch's cache tests and users do: all of the directory, after a job has found what the cluster has."""
    a, b = (cluster.node(name, options=LEARNED) for name in ("a", "b"))
    for node in (a, b):
        (node.cache / root).mkdir(exist_ok=True)
    with Writer(a.cache / root, packages[0]) as one:
        graph, code = one.write_graph("one"), one.write("two")
    a.sync()
    with Writer(b.cache / root, packages[0]) as one:
        for name, text in ((graph, "one"), (code, "two")):
            wait_until(lambda name=str(name), text=text: one.read(name) == text, 20, f"{name} of the cluster")
        if not by_a_shell:
            one.remove(".")
            assert one.read(graph) is None and one.read(code) is None
    if by_a_shell:
        for entry in os.scandir(b.cache / root):
            shutil.rmtree(entry.path)
    with Writer(b.cache / root, packages[0]) as next_one:
        assert next_one.read(graph) is None and next_one.read(code) is None
    with Writer(a.cache / root, packages[0]) as elsewhere:
        assert elsewhere.read(graph) == "one" and elsewhere.read(code) == "two"


@pytest.mark.usefixtures("root")
def test_images_with_the_same_sizes_and_times_are_two_environments(cluster):
    """As images of containers are made: squashfs with times of 0, one update later at the same place, and equal but for the bytes of a library."""
    a, b = (cluster.node(name, options=LEARNED) for name in ("a", "b"))
    cluster.directory.chmod(0o755)
    images, place = [], cluster.directory / "image"
    for library in ("TORCH", "OTHER"):
        made = environments.make(cluster.directory / library)
        (made / "torch/lib/libtorch_cpu.so").write_text(library)
        images.append(cluster.directory / f"{library}.squashfs")
        run(["mksquashfs", cluster.directory / library, images[-1], "-all-time", "0", "-mkfs-time", "0", "-all-root", "-quiet", "-no-progress"], seconds=60)
    packages = place / made.relative_to(cluster.directory / library)
    place.mkdir()

    @contextlib.contextmanager
    def image(number):
        assert run(["mount", "-o", "loop,ro", images[number], place]).code == 0
        try:
            yield packages
        finally:
            wait_until(lambda: run(["umount", place]).code == 0, 20, "nobody to use the image")

    with image(0) as first, Writer(a.cache, first) as job:
        made = job.write_graph("first")
        assert job.read(made) == "first"
    a.sync()
    for node in (a, b):
        with image(0) as first, Writer(node.cache, first) as job:
            wait_until(lambda job=job: job.read(made) == "first", 20, "what the first image has made")
        with image(1) as second, Writer(node.cache, second) as job:
            assert job.read(made) is None, node.name


@pytest.mark.parametrize("forgets", ["the kernel", "the mount"])
@pytest.mark.parametrize("root", ["", "team"])
def test_a_shell_lists_and_removes_what_jobs_have_looked_up_although_it_is_forgotten(cluster, packages, root, forgets):
    """Of all environments. The kernel drops what it knows below a name when a job of another environment asks for that name, or when it needs memory."""
    a, b = (cluster.node(name, options=LEARNED) for name in ("a", "b"))
    for node in (a, b):
        (node.cache / root).mkdir(exist_ok=True)
    made = []
    for one in packages:
        with Writer(a.cache / root, one) as job:
            job.compile("kernels", "kernel")
            made.append((job.write_graph("graph"), job.write("code")))
    a.sync()

    def found(job, names):
        return [job.read(name) for name in names], job.kernel("kernels", "kernel")

    for one, names in zip(packages, made, strict=True):
        with Writer(b.cache / root, one) as job:
            wait_until(lambda job=job, names=names: None not in found(job, names)[0] and found(job, names)[1], 20, "what the cluster has")
    if forgets == "the mount":
        b.unmount()
        b.start(*LEARNED)
    top = b.cache / root
    assert {"fxgraph", made[0][1][:2], "kernels"} <= set(os.listdir(top))
    assert os.listdir(top / "kernels") == [artefacts.triton_key("kernel")]
    for entry in (*os.scandir(top / "kernels"), *(entry for entry in os.scandir(top) if entry.name != "kernels")):
        shutil.rmtree(entry.path)
    for one, names in zip(packages, made, strict=True):
        with Writer(b.cache / root, one) as job:
            assert found(job, names) == ([None, None], None)
    for one, names in zip(packages, made, strict=True):
        with Writer(a.cache / root, one) as job:
            assert None not in found(job, names)[0] and found(job, names)[1]


def test_what_a_shell_makes_stays_here_and_explain_says_why(cluster):
    node = cluster.node("a", options=LEARNED)
    name = artefacts.code("copied")
    artefacts.write_atomic(node.cache, name, "int zero;")
    node.sync()
    assert "neither torch nor Triton" in node.explain(name)
    assert node.status()["facts"]["writers"] == "learned"


def test_a_worker_that_is_killed_changes_nothing(cluster, packages):
    node = cluster.node("a", options=LEARNED)
    (node.cache / "team").mkdir()
    with Writer(node.cache / "team", packages[0]) as one, Writer(node.cache / "team", packages[1]) as two:
        own, other = one.write("one"), two.write("two")
        for _ in range(3):
            before = node.worker()
            os.kill(before, signal.SIGKILL)
            wait_until(lambda: node.daemons() and node.daemons() != [before], 20, "the next worker")
            assert one.read(own) == "one" and two.read(other) == "two"
            assert one.read(other) is None and two.read(own) is None
        more = one.write("more")
        assert one.read(more) == "more" and two.read(more) is None
    node.unmount()
    node.start(*LEARNED)
    with Writer(node.cache / "team", packages[0]) as one, Writer(node.cache / "team", packages[1]) as two:
        assert one.read(own) == "one" and two.read(other) == "two" and two.read(own) is None


def test_a_process_that_sets_a_variable_finds_what_it_wrote_over_a_crash(cluster, packages):
    node = cluster.node("a", options=LEARNED)
    (node.cache / "team").mkdir()
    with Writer(node.cache / "team", packages[0]) as job:
        own = job.write("own")
        job.set("TRITON_DEFAULT_FP_FUSION", "0")
        before = node.worker()
        os.kill(before, signal.SIGKILL)
        wait_until(lambda: node.daemons() and node.daemons() != [before], 20, "the next worker")
        assert job.read(own) == "own", "the job itself"
        assert job.read_by_child(own) == "own", "a process that it starts after the crash"
        assert job.read(job.write("more")) == "more"
        assert node.cli("upgrade", node.cache).code == 0
        assert job.read(own) == "own" and job.read_by_child(own) == "own"
    with Writer(node.cache / "team", packages[0], variables={"TRITON_DEFAULT_FP_FUSION": "0"}) as other:
        assert other.read(own) is None, "the variable makes another environment"


def test_a_mount_in_a_container_parts_nobody_from_what_he_wrote(cluster, packages):
    """A volume that comes to a job, in the middle of its life."""
    node = cluster.node("a", options=LEARNED)
    (node.cache / "team").mkdir()
    place = cluster.directory / "place"
    place.mkdir()
    with Writer(node.cache / "team", packages[0], change="namespace") as job:
        own = job.write("own")
        job.set("TRITON_DEFAULT_FP_FUSION", "0")
        assert job.read_by_child(own) == "own"
        subprocess.run(["nsenter", "-t", str(job.pid), "-m", "mount", "-t", "tmpfs", "tmpfs", place], check=True, timeout=20)
        assert job.read(own) == "own" and job.read_by_child(own) == "own"


def test_a_root_is_removed_with_all_that_is_in_it(cluster, packages):
    node = cluster.node("a", options=LEARNED)
    root = node.cache / "team"
    for again in range(2):
        root.mkdir()
        with Writer(root, packages[0]) as one, Writer(root, packages[1]) as two:
            assert one.write(f"same {again}") == two.write(f"same {again}")
        shutil.rmtree(root)
        assert not root.exists() and "team" not in os.listdir(node.cache)


def test_status_names_the_variable_that_tells_environments_apart_and_warns_of_none(cluster, packages):
    node = cluster.node("a", options=LEARNED)
    (node.cache / "team").mkdir()
    with Writer(node.cache / "team", packages[0]) as one, Writer(node.cache / "team", packages[0], variables={"TRITON_DEFAULT_FP_FUSION": "0"}) as two:
        one.write("one")
        two.write("two")
        status = node.status()
    told = [root["environment"] for root in status["file_system"]["first_roots"] if root["path"] == "team"]
    assert len(told) == 2 and sum("with TRITON_DEFAULT_FP_FUSION=0" in text for text in told) == 1, told
    assert not [warning for warning in status["warnings"] if "TORCHINDUCTOR_CACHE_DIR" in warning]


def test_packages_that_do_not_answer_hold_nobody_up(cluster, packages):
    node = cluster.node("a", options=(*LEARNED, "--hang-timeout", "2"))
    worker = node.worker()
    (node.cache / "team").mkdir()
    with hung_files(packages[0], cluster.directory / "hung") as hang:
        with Writer(node.cache / "team", cluster.directory / "hung") as stuck, Writer(node.cache / "team", packages[1]) as fine:
            hang()
            begun = time.monotonic()
            path = stuck.write("stuck")
            assert time.monotonic() - begun < 30, "a wait of its own for what is not read, and no more"
            assert stuck.read(path) == "stuck", "it works as on a local disk"
            assert node.daemons() == [worker], "a request that waits for packages is no request that hangs"
            synced = node.cli("sync", node.cache, "--timeout", 60, seconds=80)
            assert synced.code == 3 and "the environment is not known of 1 program of uid 0: it could not be looked at in time" in synced.err
            assert [(item["user"], item["processes"]) for item in node.status()["unknown_programs"]] == [(0, 1)]
            assert "1 program of uid 0: it could not be looked at in time" in node.cli("status", node.cache).out
            begun = time.monotonic()
            assert fine.read(fine.write("fine")) == "fine"
            assert time.monotonic() - begun < 10
    assert "host.job_unknown" in node.log.read_text()


def test_many_that_come_before_their_packages_are_read_wait_together(cluster, packages):
    node = cluster.node("a", options=LEARNED)
    (node.cache / "team").mkdir()
    with hung_files(packages[0], cluster.directory / "hung") as hang, contextlib.ExitStack() as ends, ThreadPoolExecutor(40) as together:
        jobs = [ends.enter_context(Writer(node.cache / "team", cluster.directory / "hung")) for _ in range(40)]
        hang()
        begun = time.monotonic()
        assert set(together.map(lambda job: job.read("fxgraph/none"), jobs)) == {None}
        assert time.monotonic() - begun < 30, "the kernel asks for one name one after another; 5 s each would be 200"
        assert sum(item["processes"] for item in node.status()["unknown_programs"]) == 40
