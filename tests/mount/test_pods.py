# SPDX-License-Identifier: Apache-2.0
"""A daemon in a pid namespace in which its callers have no number, as the container of a sidecar is: the kernel tells it pid 0 for
each of them."""
import contextlib
import json
import os

import pytest
from inductorfs_testing import artefacts, environments, mounts
from inductorfs_testing.containers import Container, run_in_container, sidecar
from inductorfs_testing.environments import Writer
from inductorfs_testing.mounts import appears
from inductorfs_testing.processes import run, wait_until

pytestmark = pytest.mark.usefixtures("root")

SEED = "kernel"
WHERE = artefacts.triton_key(SEED)
# What a job leaves: a graph, generated code, a C++ library that the linker writes in place, and a kernel.
COMPILE = """
from inductorfs_testing import artefacts
graph = artefacts.write_graph(cache, "key", "text")
code = artefacts.write_atomic(cache, artefacts.code("print()", ".py"), "print()")
library = artefacts.build_library(cache, "library")
kernel = artefacts.triton_compile(cache, "kernel", "pod")
result = [str(path.relative_to(cache)) for path in (graph, code, library)]
"""
KERNEL = sorted(f"triton/@/{WHERE}/{name}" for name in (*artefacts.TRITON_FILES, "__grp__k.json"))
REMEDY = "mount with --writers pod if all processes that use this mount have its environment"


@pytest.fixture
def at(cluster):
    """Where a job's container sees the mount."""
    cluster.directory.chmod(0o755)
    directory = cluster.directory / "in the container"
    directory.mkdir()
    return directory


@pytest.fixture
def pod(cluster):
    """Makes nodes whose daemons are in namespaces of their own."""
    with contextlib.ExitStack() as stack:
        def make(name, without=""):
            node = cluster.node(name, start=False)
            node.enter = stack.enter_context(sidecar(node.root, without))
            stack.callback(node.stop)
            return node
        yield make


def with_file(cluster, *writers):
    """Options of a mount with facts by a file."""
    path = cluster.directory / "facts.json"
    return ["--fingerprint", artefacts.fingerprint(path), *mounts.QUICK, *writers]


def sync(node):
    return node.cli("sync", node.cache, "--timeout", "60", seconds=70)


def shared(cluster, names):
    wait_until(lambda: mounts.published(cluster) == sorted(names), 15, f"{sorted(names)} in the cluster, which has {mounts.published(cluster)}")


def namespace_of(process):
    return os.readlink(f"/proc/{process}/ns/pid")


def test_the_kernel_gives_such_a_daemon_no_number_of_its_callers(cluster, pod, at):
    node = pod("a").start(*with_file(cluster, "--writers", "pod"))
    within = run_in_container(node.cache, at, COMPILE + "\nresult = os.readlink('/proc/self/ns/pid')")
    assert len({within, namespace_of(node.worker()), namespace_of("self")}) == 3, "three namespaces, none of them the other's"
    told = node.counters()["writers.other_namespace"]
    assert told > 0
    done = run([*node.enter, "sh", "-c", 'mkdir -p "${1%/*}" && echo > "$1"', "sh", node.cache / artefacts.code("inside", ".py")])
    assert done.code == 0, done
    assert node.counters()["writers.other_namespace"] == told, "a process in the daemon's namespace has a number"


def test_without_a_declaration_nothing_is_shared_and_that_is_said(cluster, pod, at):
    node = pod("a").start(*with_file(cluster, "--writers", "matching"))
    names = run_in_container(node.cache, at, COMPILE)
    done = sync(node)
    assert done.code == 3, done
    assert done.err.count("\n") == 1 and done.err.startswith(f"inductorfs: nothing that was written is shared: {node.cache}: "), done
    assert "in another PID namespace than the daemon" in done.err and REMEDY in done.err and "hostPID" in done.err
    assert done.out.startswith("published 0 groups; kept 7 artefacts on this host: its writer is in another PID namespace"), done
    assert mounts.published(cluster) == []
    [warning] = [text for text in node.status()["warnings"] if "PID namespace" in text]
    assert warning.startswith("nothing that jobs in another PID namespace write is shared") and REMEDY in warning, warning
    assert warning in node.cli("status", node.cache).out
    for name in (*names, f"triton/0/{WHERE}/k.json"):
        assert "stays here: its writer is in another PID namespace" in node.explain(name)


def test_a_pod_shares_what_its_processes_write(cluster, pod, at):
    node = pod("a").start(*with_file(cluster, "--writers", "pod"))
    names = run_in_container(node.cache, at, COMPILE)
    done = sync(node)
    assert (done.code, done.err) == (0, ""), done
    shared(cluster, [*names, *KERNEL])
    assert node.status()["facts"]["writers"] == "pod" and not [text for text in node.status()["warnings"] if "PID" in text]
    reader = cluster.quick("b")
    appears(reader.cache / "triton")
    assert artefacts.triton_writers(wait_until(lambda: artefacts.triton_read(reader.cache, SEED))) == {"pod"}


def test_a_pod_shares_with_nodes_that_examine_their_writers(cluster, pod, at, tmp_path):
    """The facts of one sidecar come from a file that was made in the image of the jobs, those of the other one are learned from its
    own image."""
    packages = environments.make(tmp_path / "environment")
    python = tmp_path / "environment/bin/python"
    facts = tmp_path / "facts.json"
    blind = pod("a", without=str(tmp_path / "environment"))
    assert not json.loads(blind.cli("fingerprint", "--json", "--python", python).out)["facets"]["torch"]["known"]
    made = blind.enter
    blind.enter = []  # the image of the jobs
    done = blind.cli("fingerprint", "--json", "--python", python)
    assert done.code == 0, done
    facts.write_text(done.out)
    blind.enter = made
    blind.start("--fingerprint", facts, "--writers", "pod", *mounts.QUICK)
    learned = pod("b").start("--python", python, "--writers", "pod", *mounts.QUICK)
    host = cluster.node("c", start=False).start("--python", python, "--writers", "matching", *mounts.QUICK)
    names = []
    for number, node in enumerate((blind, learned)):
        names.append(artefacts.graph(f"key {number}", "text"))
        with Container(node.cache, at) as job:
            job.run(f"artefacts.write_graph(cache, 'key {number}', 'text')\nresult = None")
        done = sync(node)
        assert (done.code, done.err) == (0, ""), done
    with Writer(host.cache, packages) as writer:
        names.append(writer.write_graph("by the host"))
    assert sync(host).code == 0
    shared(cluster, names)
    for node in (blind, learned, host):
        for name in names:
            appears(node.cache / name)


def test_a_mount_for_a_pod_looks_at_no_writer_that_it_could_see(cluster):
    node = cluster.quick("a", "--writers", "pod")
    graph = artefacts.write_graph(node.cache, "key", "text")
    assert sync(node).code == 0
    shared(cluster, [str(graph.relative_to(node.cache))])


def test_what_was_written_in_place_is_complete_by_no_pause(cluster, pod, at):
    """As where writers are examined: a job that is killed in the middle of a file leaves nothing for others."""
    node = pod("a").start(*with_file(cluster, "--writers", "pod"))
    name = artefacts.code("half", ".py")
    run_in_container(node.cache, at, f"path = cache / {name!r}\npath.parent.mkdir(parents=True)\npath.write_text('half')\nresult = None")
    names = run_in_container(node.cache, at, COMPILE)
    assert sync(node).code == 0
    shared(cluster, [*names, *KERNEL])
    assert "written in place under its final name" in node.explain(name)


def test_every_user_of_a_pod_publishes(cluster, pod, at):
    node = pod("a")
    node.cache.chmod(0o1777)
    node.start(*with_file(cluster, "--writers", "pod"))
    with Container(node.cache, at, user=65534) as job:
        names = job.run(COMPILE)
    assert sync(node).code == 0
    shared(cluster, [*names, *KERNEL])


PUT = """
content = json.dumps({{**artefacts.TRITON_METADATA, "writer": {writer!r}}}) if {name!r} == "k.json" else {writer!r} + " wrote it"
artefacts.triton_put(cache / "triton/0" / artefacts.triton_key("kernel"), {name!r}, content)
result = None
"""
GROUP = """
directory = cache / "triton/0" / artefacts.triton_key("kernel")
paths = {name: str(directory / name) for name in artefacts.TRITON_FILES}
artefacts.triton_put(directory, "__grp__k.json", json.dumps({"child_paths": paths}))
result = artefacts.triton_read(cache, "kernel") is not None
"""
READ = """
read = artefacts.triton_read(cache, "kernel")
result = read and sorted(artefacts.triton_writers(read))
"""


def put(job, writer, *names):
    for name in names:
        job.run(PUT.format(writer=writer, name=name))


# A second process of the same container, with another number.
FORK = """
if os.fork() == 0:
    artefacts.triton_compile(cache, "kernel", "second")
    os._exit(0)
result = os.waitstatus_to_exitcode(os.wait()[1])
"""


@pytest.mark.parametrize("writers", ["pod", "all"])
def test_two_processes_of_a_pod_that_compile_one_key_leave_one_set(cluster, pod, at, writers):
    node = pod("a").start(*with_file(cluster, "--writers", writers))
    with Container(node.cache, at) as job:
        put(job, "first", "k.json", "k.ttir")
        assert job.run(FORK) == 0
        assert job.run(READ) == ["second"]
        put(job, "first", "k.source")
        assert job.run(GROUP) is True
        assert job.run(READ) == ["second"], "one writer's, although another has put its own"
    assert sync(node).code == 0
    shared(cluster, KERNEL)
    reader = cluster.quick("b")
    appears(reader.cache / "triton")
    assert artefacts.triton_writers(wait_until(lambda: artefacts.triton_read(reader.cache, SEED))) == {"second"}


@pytest.mark.parametrize("end", ["crash", "upgrade"])
def test_a_pending_set_outlives_the_worker(cluster, pod, at, end):
    node = pod("a").start(*with_file(cluster, "--writers", "pod"))
    with Container(node.cache, at) as job:
        put(job, "pod", "k.json", "k.ttir")
        assert node.status()["file_system"]["contested"] == 1
        worker = node.worker()
        if end == "crash":
            node.kill_worker()
        else:
            assert node.cli("upgrade", node.cache, seconds=30).code == 0
        node.next_worker(worker)
        put(job, "pod", "k.source")
        assert job.run(GROUP) is True
    assert sync(node).code == 0
    shared(cluster, KERNEL)


def test_half_a_set_of_an_ended_pod_is_no_part_of_another_ones(cluster, pod, at):
    """Two containers whose processes have the same number there."""
    node = pod("a").start(*with_file(cluster, "--writers", "pod"))
    with Container(node.cache, at) as job:
        put(job, "first", "k.json", "k.ttir")
    with Container(node.cache, at) as job:
        put(job, "second", "k.json", "k.ttir", "k.source")
        job.run(GROUP)
        assert job.run(READ) is None, "nothing tells that no file is the first one's"
        assert job.run("result = (cache / 'triton/0' / artefacts.triton_key('kernel') / 'k.source').read_text()") == "second wrote it"
    assert sync(node).code == 0
    assert mounts.published(cluster) == []


def test_a_mapping_that_the_kernel_writes_back_is_no_sign_of_another_namespace(cluster):
    node = cluster.node("a", start=False).start(*with_file(cluster, "--writers", "matching"))
    done = run(["/usr/bin/python3", "-c", "import mmap, os, sys\nos.makedirs(os.path.dirname(sys.argv[1]), exist_ok=True)\n"
                "file = open(sys.argv[1], 'w+b')\nfile.truncate(4096)\nview = mmap.mmap(file.fileno(), 4096)\nview[:4] = b'text'\nview.flush()",
                node.cache / artefacts.code("mapped", ".py")])
    assert done.code == 0, done
    assert node.requests()["fuse.write"] == 1 and node.counters().get("writers.other_namespace", 0) == 0
    assert not [text for text in node.status()["warnings"] if "PID" in text]
