# SPDX-License-Identifier: Apache-2.0
"""What a program that knows local disks expects of names, modes and attributes, where the cluster or a restart plays a part."""
import os
import shutil
import stat
from pathlib import Path

from inductorfs_testing import artefacts
from inductorfs_testing.mounts import appears, remount
from inductorfs_testing.processes import run
from inductorfs_testing.twin import attempt

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
    assert stat.S_IMODE(os.stat(a.cache / graph).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(a.cache / library).st_mode) == 0o700
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
    assert os.listdir(orphans) == []


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
