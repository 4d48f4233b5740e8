# SPDX-License-Identifier: Apache-2.0
"""Cache roots below the mountpoint: each shares with all others, and is a directory like any other to the programs that use it."""
import errno
import json
import os
import shutil
import subprocess
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from inductorfs_testing import artefacts, environments, mounts
from inductorfs_testing.environments import Writer
from inductorfs_testing.mounts import appears
from inductorfs_testing.processes import SANITIZER, run, wait_until


@pytest.fixture
def nodes(cluster):
    return cluster.quick("a"), cluster.quick("b")


def fill(root):
    """One artefact of each kind; their names below any root, with what they hold."""
    made = [artefacts.write_atomic(root, artefacts.code("code"), "int one;"), artefacts.write_graph(root, "graph", "pickle"),
            artefacts.build_library(root, "library")]
    return {str(path.relative_to(root)): path.read_bytes() for path in made}


def shows(root, made):
    """To a job that uses the directory as torch does: it asks for its graphs first."""
    os.path.exists(root / "fxgraph")
    for name, text in made.items():
        assert appears(root / name).read_bytes() == text
    return True


@pytest.mark.parametrize("writer, reader", [("alice", ""), ("", "bob"), ("team/job7", "a b/c\n d"), ("x" * 255, "y/" * 8)])
def test_what_one_root_publishes_every_root_shows(nodes, writer, reader):
    a, b = nodes
    made = fill(a.cache / writer)
    a.sync()
    (b.cache / reader).mkdir(parents=True, exist_ok=True)
    assert shows(b.cache / reader, made)


def test_a_name_of_any_bytes_may_be_a_root(nodes):
    a, b = nodes
    made = fill(a.cache / "alice")
    a.sync()
    root = os.fsencode(b.cache) + b"/\xff\xfe\x01"
    os.mkdir(root)
    os.path.exists(root + b"/fxgraph")
    for name, text in made.items():
        appears(b.cache / name)
        with open(root + b"/" + name.encode(), "rb") as file:
            assert file.read() == text
    assert b.status()["file_system"]["roots"] == 1
    told = b.cli("status", b.cache).out
    assert "\\x01 (of uid 0, shared with user=root)" in told and "\x01" not in told, "a terminal gets no control characters"


def test_triton_hits_in_a_directory_of_any_name(nodes):
    a, b = nodes
    directory = artefacts.triton_compile(a.cache, "kernel", "writer")
    a.sync()
    appears(b.cache / directory.relative_to(a.cache) / "__grp__k.json")
    own = b.cache / "torch_compile_cache" / "0123456789" / "rank_0_0" / "triton_cache"
    own.mkdir(parents=True)
    group = json.loads((own / directory.name / "__grp__k.json").read_text())
    children = [os.fspath(own / directory.name / name) for name in group["child_paths"]]
    assert sorted(group["child_paths"].values()) == sorted(children)
    assert all(map(os.path.exists, children))


def test_the_kernel_answers_in_a_root_as_in_the_mountpoint(nodes):
    a, b = nodes
    made = fill(a.cache / "alice")
    a.sync()
    (b.cache / "bob").mkdir()

    def costs(root):
        before = b.requests()
        shows(root, made)
        after = b.requests()
        return {name: count - before.get(name, 0) for name, count in after.items() if count != before.get(name, 0)}

    # The first look fetches and the second one fills the kernel's pages, unless the daemon has it forget some in between.
    for root in (b.cache / "bob", b.cache):
        assert shows(root, made) and shows(root, made)
    wait_until(lambda: costs(b.cache / "bob") == costs(b.cache), what="a look in the root to cost as much as one in the mountpoint")


def test_rm_makes_a_root_fresh(nodes):
    a, b = nodes
    made = fill(a.cache / "alice")
    a.sync()
    for name in ("one", "two"):
        (b.cache / name).mkdir()
        shows(b.cache / name, made)
    (b.cache / "one" / "notes").write_text("mine")
    subprocess.run(["rm", "-rf", b.cache / "one"], check=True, timeout=60)
    assert not (b.cache / "one").exists()
    shows(b.cache / "two", made)
    (b.cache / "one").mkdir()
    assert shows(b.cache / "one", made)
    assert not (b.cache / "one" / "notes").exists()


def test_a_root_goes_under_a_running_job(nodes):
    a, b = nodes
    made = fill(a.cache / "alice")
    a.sync()
    (b.cache / "job").mkdir()
    shows(b.cache / "job", made)
    with open(b.cache / "job" / next(iter(made)), "rb") as file:
        shutil.rmtree(b.cache / "job")
        assert file.read() == next(iter(made.values()))
        again = fill(b.cache / "job")
    assert shows(b.cache / "job", again)
    b.sync()


def work_until(root, end, who, shared):
    """A job that goes on whatever happens to its directory, in which anything but an absent name is wrong; how often it got through. What
    is deleted in a root stays so until it is written again, or the root itself goes."""
    rounds = 0
    while not end.exists():
        try:
            made = artefacts.write_graph(root, f"{who} {rounds}", f"{who} wrote {rounds}")
            artefacts.triton_compile(root, f"kernel of {who}", who)
            os.path.exists(root / "fxgraph")
            assert artefacts.triton_writers(artefacts.triton_read(root, "shared") or {}) <= {"writer"}
            if not (root / shared).exists():
                artefacts.write_atomic(root, shared, "int shared;")
            assert (root / shared).read_bytes() == b"int shared;"
            assert made.read_text() == f"{who} wrote {rounds}"
            rounds += 1
            (end.parent / who).write_text("." * rounds)
        except FileNotFoundError:
            os.makedirs(root, exist_ok=True)
    return rounds


def remove_under_jobs(root, got_through):
    """Removes it again when one of the jobs has got through in the meantime."""
    def rounds():
        return sum(path.stat().st_size for path in got_through if path.exists())

    for _ in range(30):
        before = rounds()
        run(["rm", "-rf", root], seconds=60)  # a job makes it anew meanwhile: ENOTEMPTY
        wait_until(lambda: rounds() > before, 20, "a job's next round", pause=0.001)
    wait_until(lambda: all(path.exists() for path in got_through), 20, "a round of each job")


def test_a_root_goes_again_and_again_under_jobs_that_work_in_it(nodes, tmp_path):
    a, b = nodes
    shared, end = artefacts.code("shared"), tmp_path / "end"
    artefacts.write_atomic(a.cache / "alice", shared, "int shared;")
    artefacts.triton_compile(a.cache / "alice", "shared", "writer")
    a.sync()
    for root in (b.cache, b.cache / "job", b.cache / "neighbour"):
        root.mkdir(exist_ok=True)
        os.path.exists(root / "fxgraph")  # what torch asks for first
        appears(root / shared)
    worker = b.worker()
    with ProcessPoolExecutor(4, get_context("fork")) as pool:
        jobs = [pool.submit(work_until, b.cache / "job", end, f"job{number}", shared) for number in range(3)]
        neighbour = pool.submit(work_until, b.cache / "neighbour", end, "neighbour", shared)
        try:
            remove_under_jobs(b.cache / "job", [tmp_path / f"job{number}" for number in range(3)])
        finally:
            end.touch()
        done = [job.result(60) for job in (*jobs, neighbour)]
    assert all(done), done
    b.sync()
    assert b.worker() == worker
    # What a compile was cut off in goes with its process (KeySets::drop_dead_sets); until then its key directory is not empty.
    wait_until(lambda: run(["rm", "-rf", b.cache / "job"], seconds=60).code == 0, 30, "the root to go", pause=0.2)
    assert not (b.cache / "job").exists()
    made = [artefacts.graph(f"neighbour {number}", f"neighbour wrote {number}") for number in range(done[-1])]
    assert all((b.cache / "neighbour" / name).exists() for name in made), "what stands beside stays"
    (b.cache / "job").mkdir()
    os.path.exists(b.cache / "job" / "fxgraph")
    assert (b.cache / "job" / shared).read_text() == "int shared;"


def test_every_byte_may_be_in_the_name_of_a_root(nodes):
    a, b = nodes
    made = {}
    for byte in set(range(1, 256)) - {ord("/")}:
        root = Path(os.fsdecode(os.fsencode(b.cache) + b"/root" + bytes([byte]) + b"/job"))
        made[byte] = artefacts.write_graph(root, f"key {byte}", f"value {byte}").relative_to(root)
    b.sync()
    for byte, name in made.items():
        assert appears(a.cache / name).read_text() == f"value {byte}"
    assert b.status()["file_system"]["roots"] == len(made)
    told = b.cli("status", b.cache).out
    assert not {letter for letter in told if ord(letter) < 32 and letter != "\n"}


def test_a_file_may_stand_where_a_root_should(nodes):
    a, b = nodes
    fill(a.cache / "alice")
    a.sync()
    (b.cache / "root").write_text("a file")
    with pytest.raises(NotADirectoryError):
        fill(b.cache / "root")
    assert (b.cache / "root").read_text() == "a file"


def test_status_names_the_roots_and_whose_they_are(nodes):
    _, b = nodes
    assert "roots" not in b.cli("status", b.cache).out, "while only the mountpoint is used"
    for name, owner in (("alice", 0), ("team/job7", 54321)):
        (b.cache / name).mkdir(parents=True)
        os.chown(b.cache / name, owner, owner)
        (b.cache / name / "fxgraph").mkdir()
    status = b.status()["file_system"]
    assert status["roots"] == 2
    assert status["first_roots"] == [{"path": "alice", "owner": 0, "shared_with": "user=root"},
                                     {"path": "team/job7", "owner": 54321, "shared_with": "user=#54321"}]
    told = b.cli("status", b.cache).out
    assert "alice (of uid 0, shared with user=root)" in told
    assert "team/job7 (of uid 54321, shared with user=#54321)" in told


def test_a_root_that_shows_entries_is_copied_and_not_moved(nodes):
    a, b = nodes
    made = fill(a.cache / "alice")
    a.sync()
    (b.cache / "bob").mkdir()
    shows(b.cache / "bob", made)
    (b.cache / "bob" / "notes").write_text("mine")
    with pytest.raises(OSError) as refused:
        os.rename(b.cache / "bob", b.cache / "carol")
    assert refused.value.errno == errno.EXDEV
    assert run(["rsync", "-a", f"{b.cache}/bob/", b.cache / "carol"], seconds=60).code == 0
    assert run(["rm", "-rf", b.cache / "bob"], seconds=60).code == 0
    assert shows(b.cache / "carol", made)
    assert (b.cache / "carol" / "notes").read_text() == "mine"


@pytest.mark.parametrize("how", ["copy", "rename"])
def test_a_root_keeps_its_kernels_at_its_next_place(nodes, how):
    """The group file that Triton wrote names the files at the place before."""
    a, _ = nodes
    old, new = a.cache / "old", a.cache / "new"
    artefacts.triton_compile(old, "kernel", "mine")
    if how == "copy":
        subprocess.run(["rsync", "-a", f"{old}/", new], check=True)
        shutil.rmtree(old)
    else:
        os.rename(old, new)
    assert artefacts.triton_writers(artefacts.triton_read(new, "kernel")) == {"mine"}


def test_other_programs_find_no_directories_that_nobody_made(nodes, tmp_path):
    """The tree of a program that has nothing to do with torch, with the names of two characters that the cluster has."""
    a, b = nodes
    made = fill(a.cache / "alice")
    a.sync()
    shows(b.cache, made)
    names = sorted({name.split("/")[0] for name in made} - {"fxgraph"}) + ["cache", "triton", "locks", "dynamo"]
    tree = tmp_path / "tree"
    for index, name in enumerate(names):
        (tree / "dirs" / name).mkdir(parents=True)
        (tree / "dirs" / name / "own").write_text(str(index))
        (tree / "files").mkdir(exist_ok=True)
        (tree / "files" / name).write_text(str(index))
    for copy in ("cp -a {0} {1}", "rsync -a {0} {1}", "tar c -C {0}/.. tree | tar x -C {1}"):
        target = b.cache / "share" / copy.split()[0]
        target.mkdir(parents=True)
        done = run(["sh", "-c", copy.format(tree, target)], seconds=60)
        assert (done.code, done.err) == (0, "")
        assert run(["diff", "-r", tree, target / "tree"], seconds=60).code == 0
        assert run(["mv", target / "tree", target / "moved"], seconds=60).code == 0
        assert run(["rm", "-r", target / "moved"], seconds=60).code == 0


def test_nothing_of_a_fresh_cache_is_shared(nodes):
    """torch's fresh_cache: a directory that tempfile has named."""
    a, b = nodes
    made = fill(a.cache / "alice")
    a.sync()
    shows(b.cache, made)
    (b.cache / "tmpab_1xyz9").mkdir()
    for name in made:
        assert not (b.cache / "tmpab_1xyz9" / name).exists()


def test_a_root_made_before_an_upgrade_goes_on(nodes):
    a, b = nodes
    name = artefacts.code("later")
    (b.cache / "bob" / name).parent.mkdir(parents=True)
    assert not (b.cache / "bob" / name).exists()
    old = b.worker()
    b.kill_worker()
    b.next_worker(old)
    artefacts.write_atomic(a.cache / "alice", name, "int later;")
    a.sync()
    wait_until((b.cache / "bob" / name).exists, 15, "the entry in the root")


ROUND, ROUNDS, ROOTS, AT_ONCE = 900, 5, 100, 4


def write_and_end(cache, number):
    """A process whose one artefact is all that it does; its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            directory = cache / f"root{number % ROOTS}" / "ab"
            temporary = directory / f".{os.getpid()}.1.tmp"
            temporary.write_text(f"int by_{os.getpid()};")
            temporary.rename(directory / f"cab{artefacts.torch_hash(str(number))[:49]}.cpp")
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def short_processes(cache):
    """One after another from each of several processes; the exit codes of these, which are 0 when every one was 0."""
    children = []
    for first in range(AT_ONCE):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = max(write_and_end(cache, number) for number in range(first, ROUND, AT_ONCE))
            finally:
                os._exit(code)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def resident(node):
    (pid,) = node.daemons()
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS:"))


def test_thousands_of_short_processes_in_many_roots(cluster):
    """More than the mount remembers (WritersOptions::process_limit), all of which have ended before anybody could ask them. They have
    no torch: what they wrote stays here, and `status` says so. A job beside them publishes as ever."""
    packages = environments.make(cluster.directory / "environment")
    node = cluster.node("a", start=False)
    node.start("--writers", "matching", "--python", cluster.directory / "environment/bin/python", *mounts.QUICK)
    for number in range(ROOTS):
        (node.cache / f"root{number}" / "ab").mkdir(parents=True)
    sizes = []
    for _ in range(ROUNDS):
        assert short_processes(node.cache) == [0] * AT_ONCE
        sizes.append(resident(node))
    counters = node.counters()
    assert counters["writers.processes"] <= 4096 < counters["writers.identified"]
    # The names of each round are the same, so that what grows is what is kept of the processes: 1.5 KiB of 4,096 of them.
    assert SANITIZER or sizes[-1] - sizes[0] < 8 << 20, sizes
    with Writer(node.cache / "root0", packages) as job:
        name = job.write("print('a job beside them')")
        node.sync()
    assert mounts.published(cluster) == [name]
    status = node.status()["file_system"]
    assert (status["foreign"], status["roots"]) == (ROUND * ROUNDS, ROOTS)
    assert all("has neither torch nor Triton loaded" in why for why in status["foreign_reasons"]), status["foreign_reasons"]
    assert f"{ROUND * ROUNDS} artefacts stay here" in node.cli("status", node.cache).out
