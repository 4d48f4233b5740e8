# SPDX-License-Identifier: Apache-2.0
"""What a program that knows local disks expects of names, modes and attributes, where the cluster or a restart plays a part."""
import contextlib
import errno
import os
import shutil
import stat
import subprocess
from pathlib import Path

from inductorfs_testing import artefacts
from inductorfs_testing.mounts import appears, remount
from inductorfs_testing.processes import run, wait_until
from inductorfs_testing.twin import EXCHANGE, attempt, renameat2

NOBODY = 65534
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


# ---- modes

def test_a_writer_with_umask_077_hides_nothing_from_other_users_of_other_nodes(cluster, root):
    a, b = cluster.quick("a"), cluster.quick("b")
    cluster.directory.chmod(0o755)
    before = os.umask(0o077)
    try:
        graph = artefacts.write_graph(a.cache, "k", "value").relative_to(a.cache)
        library = artefacts.build_library(a.cache, "library").relative_to(a.cache)
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(a.store / "files" / "view" / graph).st_mode) == 0o600
    assert [stat.S_IMODE(os.stat(a.cache / name).st_mode) for name in (graph, library)] == [0o644, 0o744], "of this node either"
    a.sync()
    assert stat.S_IMODE(os.stat(appears(b.cache / graph)).st_mode) == 0o644
    assert stat.S_IMODE(os.stat(appears(b.cache / library)).st_mode) == 0o755
    os.chmod(b.root, 0o755)
    done = run([*AS_NOBODY, "cat", b.cache / graph], seconds=20)
    assert (done.code, done.out) == (0, "value"), done.err
    assert run([*AS_NOBODY, "cmp", b.cache / library, b.cache / library], seconds=20).code == 0


# ---- hard links that nobody has looked up yet

def hard_links(root: Path):
    (root / "b").write_text("text")
    for name in "cde":
        os.link(root / "b", root / name)


def use_hard_links(root: Path):
    """What a program does that knows one of four names, while it has the file open."""
    def links(name):
        return attempt(lambda: os.stat(root / name).st_nlink)
    with open(root / "b", "rb+", buffering=0) as held:
        told = [os.fstat(held.fileno()).st_nlink]
        os.unlink(root / "b")
        told += [os.fstat(held.fileno()).st_nlink, links("c"), attempt(os.link, root / "c", root / "f"), links("f")]
        held.write(b"TE")
        told += [(root / "d").read_text(), links("d"), attempt(os.rename, root / "d", root / "c"), sorted(os.listdir(root))]
        with open(root / "new", "w") as other:
            other.write("new")
        os.rename(root / "new", root / "c")
        told += [links("f"), (root / "e").read_text(), os.fstat(held.fileno()).st_nlink]
        for name in "def":
            told.append(attempt(os.unlink, root / name))
        told += [os.fstat(held.fileno()).st_nlink, held.read(), sorted(os.listdir(root))]
    return told


def test_hard_links_are_counted_by_the_disk_after_a_remount(cluster, tmp_path):
    a = cluster.quick("a")
    hard_links(tmp_path)
    hard_links(a.cache)
    assert a.cli("unmount", a.cache).code == 0
    remount(a, cluster)
    assert use_hard_links(a.cache) == use_hard_links(tmp_path)
    (orphans,) = a.store.rglob("orphans")
    # The last close returns before the kernel sends FORGET, by which the deleted file goes.
    wait_until(lambda: os.listdir(orphans) == [], 20, "the deleted file to go")


def test_hard_links_are_counted_by_the_disk_after_the_kernel_forgot_them(cluster, root):
    a = cluster.quick("a")
    names = [f"n{index:04}" for index in range(3000)]

    def forget():
        """The kernel lets go what nobody has open."""
        Path("/proc/sys/vm/drop_caches").write_text("2")
    (a.cache / names[0]).write_text("text")
    for name in names[1:]:
        os.link(a.cache / names[0], a.cache / name)
    forget()
    with open(a.cache / names[7], "rb") as held:
        left = len(names)
        for name in names[:2000]:
            os.unlink(a.cache / name)
            left -= 1
            if left % 250 == 0:
                forget()
                assert (os.fstat(held.fileno()).st_nlink, os.stat(a.cache / names[-1]).st_nlink) == (left, left)
        assert held.read() == b"text"
    for name in names[2000:]:
        os.unlink(a.cache / name)
    assert os.listdir(a.cache) == []


# ---- extended attributes

def files_of_all_kinds(root: Path):
    (root / "directory").mkdir()
    (root / "directory" / "file").write_text("text")
    os.symlink("file", root / "directory" / "link")
    os.mkfifo(root / "directory" / "fifo")
    os.setxattr(root / "directory" / "file", "user.mine", b"1")


def copies(source: Path, target: Path):
    """What programs tell that copy attributes, and what is there afterwards."""
    told = []
    for program in (["rsync", "-aX", "--delete"], ["cp", "--recursive", "--preserve=all"],
                    ["sh", "-c", 'tar --xattrs --xattrs-include="*" -C "$1" -cf - directory | tar --xattrs --xattrs-include="*" -C "$2" -xf -', "tar"]):
        (target / "directory").mkdir(parents=True)
        (target / "directory" / "extra").write_text("")
        if program[0] != "rsync":
            (target / "directory" / "extra").unlink()
            (target / "directory").rmdir()
        ends = [source, target] if program[0] == "sh" else [source / "directory", target]
        done = run([*program, *ends], seconds=60)
        told.append((done.code, done.out, done.err, sorted(os.listdir(target / "directory")),
                     os.readlink(target / "directory" / "link"), os.getxattr(target / "directory" / "file", "user.mine")))
        shutil.rmtree(target / "directory")
    return told


def test_programs_that_copy_attributes_copy_from_the_mount_and_into_it(cluster, tmp_path):
    a = cluster.quick("a")
    plain, target = tmp_path / "plain", tmp_path / "target"
    plain.mkdir()
    target.mkdir()
    (a.cache / "target").mkdir()
    files_of_all_kinds(plain)
    files_of_all_kinds(a.cache)
    for name in ("", "directory", "directory/file", "directory/link", "directory/fifo"):
        listed = [os.listxattr(root / name, follow_symlinks=False) for root in (a.cache, plain)]
        assert listed[0] == listed[1], name
    as_on_a_disk = copies(plain, target)
    assert [done[:3] for done in as_on_a_disk] == [(0, "", "")] * 3
    assert copies(a.cache, target) == as_on_a_disk
    assert copies(plain, a.cache / "target") == as_on_a_disk
    assert os.getxattr(a.cache / "directory" / "file", "user.inductorfs.family") == b"other"


# ---- deep paths

PATH_LIMIT = 4090  # LocalTree::kPathLimit


def descend(stack, top, name, count):
    """Makes `count` directories below each other, step by step: their paths may be of any length. The deepest one's descriptor."""
    descriptor = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    stack.callback(os.close, descriptor)
    for _ in range(count):
        os.mkdir(name, dir_fd=descriptor)
        descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=descriptor)
        stack.callback(os.close, descriptor)
    return descriptor


def test_a_rename_by_descriptor_makes_no_path_that_nothing_reaches(cluster):
    a = cluster.quick("a")
    for name in ("long", "longer"):
        (a.cache / name).mkdir()
    with contextlib.ExitStack() as stack:
        descend(stack, a.cache / "long", "l" * 200, 10)
        deep = descend(stack, a.cache / "longer", "m" * 200, 12)
        os.mkdir("inner", dir_fd=deep)
        for rename in (lambda: os.rename(a.cache / "long", "moved", dst_dir_fd=deep),
                       lambda: renameat2(a.cache / "long", f"/proc/self/fd/{deep}/inner", EXCHANGE)):
            assert attempt(rename) == f"OSError {errno.ENAMETOOLONG}"
        inner = os.open("inner", os.O_RDONLY | os.O_DIRECTORY, dir_fd=deep)
        stack.callback(os.close, inner)
        os.rename("inner", a.cache / "moved", src_dir_fd=deep)  # to a shorter one
        os.rename(a.cache / "moved", "back", dst_dir_fd=deep)  # and one that fits
    # What can be made by steps has the same limit.
    with contextlib.ExitStack() as stack:
        (a.cache / "steps").mkdir()
        descriptor = descend(stack, a.cache / "steps", "n" * 200, (PATH_LIMIT - len("steps")) // 201)
        left = (PATH_LIMIT - len("steps")) % 201 - 1
        assert attempt(os.mkdir, "x" * (left + 1), dir_fd=descriptor) == f"OSError {errno.ENAMETOOLONG}"
        os.mkdir("x" * left, dir_fd=descriptor)
    assert a.cli("unmount", a.cache).code == 0
    remount(a, cluster)
    for name in ("long", "longer", "steps"):
        shutil.rmtree(a.cache / name)
    assert os.listdir(a.cache) == []


def test_a_path_that_nothing_reaches_is_set_aside_at_the_next_mount(cluster):
    """No call of a program makes such a path: without this the mount failed for good, and so did `inductorfs check`."""
    a = cluster.quick("a")
    name = artefacts.write_atomic(a.cache, artefacts.code("x"), "bytes").relative_to(a.cache)
    (a.cache / "deep").mkdir()
    a.sync()
    assert a.cli("unmount", a.cache).code == 0
    (view,) = a.store.rglob("view")
    with contextlib.ExitStack() as stack:
        deep = descend(stack, view / "deep", "m" * 200, 25)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=deep))
    subprocess.run(["chown", "-R", "--reference", a.store, view / "deep"], check=True, timeout=60)
    assert a.cli("check", "--store", a.store).code == 1
    remount(a, cluster)
    assert (a.cache / name).read_bytes() == b"bytes"
    (told,) = a.status()["file_system"]["refused"]
    assert told.startswith("deep/mmm") and "set aside as files/set-aside/1" in told
    assert a.counters()["recovery.set_aside"] == 1
    shutil.rmtree(a.cache / "deep")
    assert a.cli("unmount", a.cache).code == 0
    (aside,) = a.store.rglob("set-aside")
    assert os.listdir(aside) == ["1"]
    assert a.cli("check", "--store", a.store).code == 0
    assert "set-aside/1" in a.cli("check", "--store", a.store).out
    subprocess.run(["rm", "-rf", a.store], check=True)  # which walks by descriptors
