# SPDX-License-Identifier: Apache-2.0
"""A writer whose packages cannot be read: its artefacts stay private, and nobody else's wait for that."""
import contextlib
import os
import signal
from pathlib import Path

import pytest
from inductorfs_testing import compare, environments, mounts, places
from inductorfs_testing.environments import Writer
from inductorfs_testing.hung_files import hung_files
from inductorfs_testing.processes import run, wait_until

NOBODY = 65534


def no_more():
    """It is as it is."""


def fifo(packages):
    (packages / "torch/version.py").unlink()
    os.mkfifo(packages / "torch/version.py")


# Each gives where its packages are to the writer, what the writer does to its view before it loads them, what makes the reading of
# them hang, and the reason that is told.

@contextlib.contextmanager
def version_that_is_a_fifo(packages, _):
    fifo(packages)
    yield packages, "", no_more, "torch/version.py is not a regular file"


@contextlib.contextmanager
def library_without_end(packages, _):
    os.truncate(packages / "triton/_C/libtriton.so", 1 << 43)
    yield packages, "", no_more, "libtriton.so has more than"


@contextlib.contextmanager
def file_system_that_hangs(packages, directory):
    with hung_files(packages, directory / "hung") as hang:
        yield directory / "hung", "", hang, "its file system does not answer"


@contextlib.contextmanager
def file_system_that_takes_requests_and_answers_none(packages, directory):
    with hung_files(packages, directory / "hung", signal.SIGUSR1) as hang:
        yield directory / "hung", "", hang, "its file system does not answer"


@contextlib.contextmanager
def mount_namespace(packages, _):
    fifo(packages)
    yield packages, "namespace", no_more, "torch/version.py is not a regular file"


@contextlib.contextmanager
def change_of_root(packages, _):
    fifo(packages)
    yield packages, "chroot", no_more, "torch/version.py is not a regular file"


ATTACKS = [version_that_is_a_fifo, library_without_end, file_system_that_hangs,
           file_system_that_takes_requests_and_answers_none, mount_namespace, change_of_root]


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_what_one_writer_has_loaded_holds_nobody_up(cluster, attack):
    cluster.directory.chmod(0o755)
    packages = environments.make(cluster.directory / "environment")
    node = cluster.node("a", start=False)
    node.cache.chmod(0o1777)
    node.start("--writers", "matching", "--python", cluster.directory / "environment/bin/python", *mounts.QUICK)
    with contextlib.ExitStack() as stack:
        theirs = environments.make(cluster.directory / "theirs")
        seen, change, hang, why = stack.enter_context(attack(theirs, cluster.directory))
        hostile = stack.enter_context(Writer(node.cache, seen, change, NOBODY))
        other = stack.enter_context(Writer(node.cache, packages))
        hang()
        kept = [hostile.write(f"print('hostile {i}')") for i in range(3)]
        shared = [other.write(f"print('other {i}')") for i in range(3)]
        wait_until(lambda: mounts.published(cluster) == sorted(shared), 10, "the other one's artefacts in the cluster")
        done = node.cli("sync", node.cache, "--timeout", "60", seconds=70)
        assert done.code == 0, done
        for name in kept:
            told = node.explain(name)
            assert "stays here: the writer" in told and why in told, told
        # What is written last must not keep the mount either. It is published at the end, or after the next mount, if its
        # writer was looked at before that ended here: no promise.
        hostile.write("print('hostile at the end')")
        late = other.write("print('other at the end')")
        for writer in (hostile, other):
            writer.end()  # who is still in the mount may keep it
        ended = node.cli("unmount", node.cache, seconds=40)
        assert ended.code == 0 and ended.seconds < 25, ended
        assert not compare.is_mounted(node.cache)
        wait_until(lambda: not node.processes(), what="the daemon's end")
        assert mounts.published(cluster) in (sorted(shared), sorted([*shared, late])), node.log.read_text()


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("end", ["crash", "upgrade"])
def test_a_look_that_the_kernel_keeps_keeps_no_worker(cluster, end):
    """A file system has taken the request of a look at a writer, so that not even SIGKILL ends who looks: a child of the examiner."""
    cluster.directory.chmod(0o755)
    packages = environments.make(cluster.directory / "environment")
    node = cluster.node("a", start=False)
    node.cache.chmod(0o1777)
    node.start("--writers", "matching", "--python", cluster.directory / "environment/bin/python", *mounts.QUICK)
    theirs = environments.make(cluster.directory / "theirs")
    with hung_files(theirs, cluster.directory / "hung", signal.SIGUSR1) as hang:
        with Writer(node.cache, cluster.directory / "hung", "", NOBODY) as hostile, Writer(node.cache, packages) as other:
            hang()
            hostile.write("print('hostile')")
            shared = [other.write("print('before')")]
            worker = node.worker()
            wait_until(lambda: mounts.published(cluster) == shared, what="the end of the look at the other one")
            assert len(node.examiner_children()) > 0, "it still looks"
            if end == "crash":
                os.kill(worker, signal.SIGSEGV)
            else:
                done = node.cli("upgrade", node.cache, seconds=30)
                assert done.code == 0, done
            # Whoever uses the mount waits for the next worker in the kernel, not in this test.
            wait_until(lambda: node.daemons() not in ([], [worker]), 15, "the next worker")
            done = run(["stat", "-f", node.cache], seconds=15)
            assert done.code == 0, done
            shared.append(other.write("print('after')"))
            wait_until(lambda: mounts.published(cluster) == sorted(shared), 15, "the other one's artefacts in the cluster")
        ended = node.cli("unmount", node.cache, seconds=40)
        assert ended.code == 0 and ended.seconds < 25, ended
        wait_until(lambda: not node.processes(), what="the supervisor's end")


ELF = b"\x7fELF"


def tool(path, content):
    """A file that begins as a program does; nobody runs it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(ELF + content)
    return path


def packages_with_ptxas(directory):
    packages = environments.make(directory)
    tool(packages / "triton/backends/nvidia/bin/ptxas", b"ptxas 13.2")
    return packages


def settle(node):
    done = node.cli("sync", node.cache, "--timeout", "60", seconds=70)
    assert done.code == 0, done


@pytest.mark.usefixtures("root")
def test_a_tool_counts_by_its_content(cluster):
    """TRITON_PTXAS_PATH is set in NVIDIA's images."""
    packages = packages_with_ptxas(cluster.directory / "environment")
    node = cluster.node("a", start=False)
    node.start("--writers", "matching", "--python", cluster.directory / "environment/bin/python", *mounts.QUICK)
    same = tool(cluster.directory / "cuda/bin/ptxas", b"ptxas 13.2")
    other = tool(cluster.directory / "other/bin/ptxas", b"ptxas 12.8")
    absent = cluster.directory / "absent/ptxas"
    kept, shared = {}, []
    for path in (None, same, other, absent):
        variables = {"TRITON_PTXAS_PATH": str(path)} if path else {}
        with Writer(node.cache, packages, variables=variables) as writer:
            shared.append(writer.write(f"print('{path}')"))  # generated code depends on no variable
            graph = writer.write_graph(f"graph of {path}")
            if path in (None, same):
                shared.append(graph)
            else:
                kept[path] = graph
            settle(node)
    wait_until(lambda: mounts.published(cluster) == sorted(shared), 10, "what was made with the usual ptxas in the cluster")
    told = node.explain(kept[other])
    assert f'TRITON_PTXAS_PATH is "{other}" (sha256:' in told and "unset for this mount" in told, told
    told = node.explain(kept[absent])
    assert f"TRITON_PTXAS_PATH names a file that is not known: {absent} does not exist" in told, told


@pytest.mark.usefixtures("root")
def test_a_mount_from_a_jobs_environment_declares_its_variables(cluster):
    packages = packages_with_ptxas(cluster.directory / "environment")
    mine = tool(cluster.directory / "mine/ptxas", b"ptxas 12.8")
    theirs = tool(cluster.directory / "theirs/ptxas", b"ptxas 12.8")
    node = cluster.node("a", start=False)
    done = run([places.program(), "mount", node.cache, "--store", node.store, "--log", node.log, "--remote", node.remote,
                "--writers", "matching", "--python", cluster.directory / "environment/bin/python", *mounts.QUICK],
               {**node.env(), "TRITON_PTXAS_PATH": str(mine), "DISABLE_PTXAS_OPT": "0"}, seconds=60)
    assert done.code == 0, done
    assert node.status()["facts"]["environment"] == {"TRITON_PTXAS_PATH": str(mine)}
    done = node.cli("upgrade", node.cache, seconds=30)  # from an environment without the variable
    assert done.code == 0, done
    assert node.status()["facts"]["environment"] == {"TRITON_PTXAS_PATH": str(mine)}
    with Writer(node.cache, packages, variables={"TRITON_PTXAS_PATH": str(theirs)}) as like, Writer(node.cache, packages) as plain:
        shared = like.write_graph("like the mount")
        kept = plain.write_graph("without the variable")
        settle(node)
    assert mounts.published(cluster) == [shared]
    told = node.explain(kept)
    assert "TRITON_PTXAS_PATH is unset in the writer" in told, told


@pytest.mark.usefixtures("root")
def test_sync_exits_with_3_until_something_is_shared(cluster):
    packages = environments.make(cluster.directory / "environment")
    other = environments.make(cluster.directory / "other")
    (other / "torch/version.py").write_text("__version__ = '7.7.7'\ncuda = None\n")
    node = cluster.node("a", start=False)
    node.start("--writers", "matching", "--python", cluster.directory / "environment/bin/python", *mounts.QUICK)

    def sync(*options):
        return node.cli("sync", node.cache, "--timeout", "60", *options, seconds=70)

    settle(node)  # nothing was written
    with Writer(node.cache, other) as foreign, Writer(node.cache, packages) as writer:
        foreign.write("print('foreign')")
        done = sync()
        assert (done.code, done.out.count("\n"), done.err.count("\n")) == (3, 1, 1), done
        assert done.err.startswith(f"inductorfs: nothing that was written is shared: {node.cache}: the writer") and str(other) in done.err, done
        assert sync("--json").code == 3 and mounts.published(cluster) == []
        shared = writer.write("print('shared')")
        done = sync()
        assert (done.code, done.err) == (0, "") and "kept 1 artefact on this host: the writer" in done.out, done
    assert mounts.published(cluster) == [shared]


# A file under its final name, from a process that ends with it.
SHORT = """
import os, sys
sys.path.insert(0, sys.argv[1])
from inductorfs_testing import artefacts
os.chdir(sys.argv[2])
os.setgid(65534)
os.setuid(65534)
artefacts.write_atomic(".", artefacts.code(sys.argv[3], ".py"), sys.argv[3])
"""


@pytest.mark.usefixtures("root")
def test_many_short_processes_push_out_no_reason_of_another_user(cluster):
    """The reason why a file stays here can name its process, so that each one has another."""
    cluster.directory.chmod(0o755)
    environments.make(cluster.directory / "environment")
    other = environments.make(cluster.directory / "other")
    (other / "torch/version.py").write_text("__version__ = '7.7.7'\ncuda = None\n")
    node = cluster.node("a", start=False)
    node.cache.chmod(0o1777)
    node.start("--writers", "matching", "--python", cluster.directory / "environment/bin/python", *mounts.QUICK)

    def reasons():
        return node.status()["file_system"]["foreign_reasons"]

    with Writer(node.cache, other) as writer:
        writer.write("print('other')")
        wait_until(lambda: any(str(other) in reason for reason in reasons()), what="the reason for the other environment's file")
    for number in range(25):
        done = run([environments.INTERPRETER, "-B", "-c", SHORT, Path(environments.__file__).parent.parent, node.cache, str(number)])
        assert done.code == 0, done
    assert any(str(other) in reason for reason in reasons()), reasons()
    assert len(reasons()) == 20  # kReasonsKept, src/vfs/origin/marks.cc
