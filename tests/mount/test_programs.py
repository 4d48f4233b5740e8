# SPDX-License-Identifier: Apache-2.0
"""Whole programs on the mount, with files of this node and of another."""
import itertools
import os
import shutil

import pytest
from inductorfs_testing import artefacts
from inductorfs_testing.fixtures import need
from inductorfs_testing.mounts import appears
from inductorfs_testing.processes import run
from inductorfs_testing.twin import describe
from inductorfs_testing.fixtures import lack

_numbers = itertools.count(1000)


@pytest.fixture(scope="module")
def source_tree(tmp_path_factory):
    """Something to copy: files of all sizes and modes, links, empty directories, odd names."""
    root = tmp_path_factory.mktemp("source") / "tree"
    for index in range(40):
        directory = root / f"d{index % 5}" / f"e{index % 3}"
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"file {index}"
        path.write_bytes(os.urandom(index * 997))
        path.chmod((0o644, 0o755, 0o600, 0o444)[index % 4])
        os.utime(path, ns=(10**18 + index, 10**18 + index * 1001))
    (root / "empty").mkdir()
    (root / "link").symlink_to("d0")
    (root / "dangling").symlink_to("nowhere")
    os.link(root / "d0/e0/file 0", root / "hard")
    (root / os.fsdecode(b"odd \xff\n name")).write_text("odd")
    for directory, names, files in os.walk(root, topdown=False):
        for name in names + files:  # old: rsync takes times of one second as equal
            path = os.path.join(directory, name)
            os.utime(path, ns=(10**18, os.lstat(path).st_ino * 10**9), follow_symlinks=False)
    os.utime(root, (10**9, 10**9))
    return root


def listed(root):
    """All of a tree with modes, times, sizes and contents."""
    found = {}
    for directory, names, files in os.walk(root):
        for name in names + files:
            path = os.path.join(directory, name)
            found[os.path.relpath(path, root)] = (describe(path), os.lstat(path).st_mtime_ns)
    return found


@pytest.fixture
def mount(two_nodes):
    """The mount's root, empty but for what the cluster shows."""
    work = two_nodes._nodes[0].cache / f"programs-{next(_numbers)}"
    work.mkdir()
    yield work
    shutil.rmtree(work, ignore_errors=True)


@pytest.mark.parametrize("command", [["cp", "-a", "{}", "."], ["rsync", "-a", "-H", "{}", "."],
                                     ["sh", "-c", "tar -C {}/.. --format=posix -c tree | tar -xp"]])
def test_copying_programs(mount, source_tree, command):
    need(command[0])
    command = [word.replace("{}", str(source_tree)) for word in command]
    done = run(command, directory=mount)
    assert (done.code, done.err) == (0, "")
    assert listed(mount / "tree") == listed(source_tree)
    back = run(["diff", "-r", "--no-dereference", mount / "tree", source_tree])
    assert (back.code, back.out) == (0, "")


def test_rsync_finds_nothing_to_do_the_second_time(mount, source_tree):
    need("rsync")
    for expected in (True, False):
        done = run(["rsync", "-aHi", source_tree, mount])
        assert done.code == 0, done.err
        assert bool(done.out) is expected, done.out


def test_rm_find_and_du(mount, source_tree):
    run(["cp", "-a", source_tree, mount])
    for command in (["find", ".", "-printf", "%p %y %m %s %n %l\\n"], ["du", "-b", "--max-depth=0", "d1"],
                    ["find", ".", "-type", "f", "-newermt", "2001-01-01"], ["ls", "-lR", "--time-style=full-iso"]):
        told = [sorted(run(command, directory=root).out.splitlines()) for root in (mount / "tree", source_tree)]
        if command[0] == "ls":  # a directory's own blocks are the file system's business
            told = [[line for line in lines if not line.startswith("total")] for lines in told]
            told = [[line.split()[0][0] + line.split()[0] if line.startswith("d") else line for line in lines] for lines in told]
        if command[0] == "find" and "%s" in command[-1]:
            told = [[line for line in lines if " d " not in line] for lines in told]
        if command[0] == "du":
            continue
        assert told[0] == told[1], command
    done = run(["rm", "-rf", mount / "tree"])
    assert (done.code, done.err) == (0, "")
    assert os.listdir(mount) == []


def test_git(mount, source_tree):
    need("git")
    shutil.copytree(source_tree, mount / "repository", symlinks=True)
    env = {**os.environ, "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
           "GIT_COMMITTER_EMAIL": "a@b", "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(mount)}

    def git(*words):
        done = run(["git", *words], env=env, directory=mount / "repository")
        assert done.code == 0, (words, done.err)
        return done.out
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "all")
    assert git("status", "--porcelain") == ""
    (mount / "repository" / "hard").write_text("changed")
    assert git("status", "--porcelain") == " M hard\n"
    git("commit", "-qam", "changed")
    git("checkout", "-q", "HEAD~1")
    assert (mount / "repository" / "hard").stat().st_size == 0
    git("gc", "-q")
    git("fsck", "--strict")


def test_compile_and_link_on_the_mount(mount):
    (mount / "part.h").write_text("int part(int);\n")
    (mount / "part.cc").write_text('#include "part.h"\n#include <vector>\nint part(int n)'
                                   "{ return (int)std::vector<int>(n, 1).size(); }\n")
    (mount / "main.cc").write_text('#include "part.h"\nint main() { return part(11); }\n')
    for command in (["g++", "-O1", "-g", "-c", "part.cc", "-o", "part.o"], ["g++", "-c", "main.cc"],
                    ["ar", "rcs", "libpart.a", "part.o"], ["g++", "main.o", "-L.", "-lpart", "-o", "program"],
                    ["g++", "-shared", "-fPIC", "part.cc", "-o", "libpart.so"], ["strip", "libpart.so"],
                    ["g++", "-x", "c++-header", "part.h", "-o", "part.h.gch"], ["objcopy", "--strip-debug", "program"]):
        done = run(command, directory=mount)
        assert done.code == 0, (command, done.err)
    assert run([mount / "program"]).code == 11


@pytest.mark.parametrize("linker", ["gold", "bfd", "lld"])
def test_other_linkers(mount, linker):
    if not shutil.which(f"ld.{linker}"):
        lack(f"ld.{linker} is not here")
    (mount / "main.c").write_text("int main(void) { return 5; }\n")
    done = run(["cc", f"-fuse-ld={linker}", "main.c", "-o", "program"], directory=mount)
    assert done.code == 0, done.err
    assert run([mount / "program"]).code == 5


def test_python_copies_and_removes_trees(mount, source_tree):
    shutil.copytree(source_tree, mount / "copy", symlinks=True)
    shutil.copytree(mount / "copy", mount / "again", symlinks=True)
    assert {name: what[0][:4] for name, what in listed(mount / "again").items()} == \
        {name: what[0][:4] for name, what in listed(source_tree).items()}
    shutil.move(mount / "again", mount / "moved")
    shutil.rmtree(mount / "moved")
    shutil.rmtree(mount / "copy")
    assert os.listdir(mount) == []


@pytest.fixture
def from_cluster(two_nodes):
    """A node that sees what another made and has touched none of it; its cache, and the writer's."""
    writer = two_nodes._nodes[0]
    names = [artefacts.write_atomic(writer.cache, artefacts.code(f"program {index}"), f"print({index})\n" * (index + 1))
             for index in range(10)]
    names += [artefacts.triton_compile(writer.cache, "program kernel", "writer") / name for name in artefacts.TRITON_FILES]
    writer.sync()
    fresh = two_nodes.quick(f"fresh-{next(_numbers)}", "--prefetch", "0")
    relative = [name.relative_to(writer.cache) for name in names]
    for name in relative:
        appears(fresh.cache / name.parent)
    yield fresh.cache, {str(name): (writer.cache / name).read_bytes() for name in relative}
    fresh.stop()


@pytest.mark.parametrize("command", [["cp", "-a", "{}/.", "."], ["rsync", "-a", "{}/", "."], ["sh", "-c", "tar -C {} --format=posix -c . | tar -xp"],
                                     ["python3", "-S", "-c", "import shutil; shutil.copytree('{}', '.', dirs_exist_ok=True)"]])
def test_programs_copy_what_comes_from_the_cluster(from_cluster, command, tmp_path):
    need(command[0])
    cache, expected = from_cluster
    done = run([word.replace("{}", str(cache)) for word in command], directory=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert {name: (tmp_path / name).read_bytes() for name in expected} == expected


def test_programs_use_what_comes_from_the_cluster(from_cluster):
    cache, expected = from_cluster
    found = run(["find", ".", "-type", "f"], directory=cache).out.splitlines()
    assert {f"./{name}" for name in expected} <= set(found)
    assert run(["du", "-s", cache]).code == 0
    name = next(iter(expected))
    assert run(["python3", "-S", cache / name]).out.encode() == \
        b"".join(line[6:-1] + b"\n" for line in expected[name].splitlines())
    assert run(["grep", "-rl", "print(3)", cache]).code == 0
    for word in (["git", "init", "-q"], ["git", "add", "-A"]):
        assert run(word, env={**os.environ, "HOME": str(cache.parent)}, directory=cache).code == 0
    done = run(["rm", "-rf", *(cache / child for child in os.listdir(cache))])
    assert (done.code, done.err) == (0, "")
    assert os.listdir(cache) == []
