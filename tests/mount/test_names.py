# SPDX-License-Identifier: Apache-2.0
"""Every operation on names, done on the mount and on a plain directory of the same disk: results, errors and effects must be equal. Each is
done to files of three origins: `private` ones, of no known family; `sealed` ones, that this node made and published;
`cluster` ones, that another node made."""
import os
import shutil
import socket
import stat

from inductorfs_testing.twin import EXCHANGE, FIRST, NOREPLACE, SECOND, attempt, renameat2, same


def test_create(places):
    def operation(place):
        def create(path, mode, flags=os.O_CREAT | os.O_EXCL | os.O_WRONLY):
            descriptor = os.open(path, flags, mode)
            try:
                return os.write(descriptor, b"text")
            finally:
                os.close(descriptor)
        return [attempt(create, place.one, 0o644), attempt(create, place.work / "new", 0o666),
                attempt(create, place.work / "none" / "new", 0o644), attempt(create, place.one / "below", 0o644),
                attempt(create, place.work, 0o644, os.O_CREAT | os.O_WRONLY), attempt(create, place.one.parent / "x", 0o755),
                attempt(create, place.one, 0o644, os.O_CREAT | os.O_WRONLY), attempt(create, place.work / "ro", 0o400)]
    same(places, operation)


def test_open_flags(places):
    def operation(place):
        os.symlink(place.one.name, place.one.parent / "link")

        def opened(path, flags):
            os.close(os.open(path, flags))
            return "opened"
        return [attempt(opened, place.one, os.O_DIRECTORY), attempt(opened, place.one.parent, os.O_DIRECTORY),
                attempt(opened, place.one.parent, os.O_WRONLY), attempt(opened, place.one.parent / "link", os.O_NOFOLLOW),
                attempt(opened, place.one.parent / "link", os.O_RDWR), attempt(opened, place.one / "x", os.O_RDONLY),
                attempt(opened, place.one, os.O_RDONLY | os.O_CREAT), attempt(opened, place.one, os.O_PATH)]
    same(places, operation)


def test_mkdir(places):
    def operation(place):
        return [attempt(os.mkdir, place.work / "a"), attempt(os.mkdir, place.work / "a"),
                attempt(os.mkdir, place.work / "b" / "c"), attempt(os.mkdir, place.one), attempt(os.mkdir, place.one / "x"),
                attempt(os.mkdir, place.one.parent), attempt(os.mkdir, place.work / "mode", 0o700),
                attempt(os.mkdir, place.work / "sticky", 0o1777), attempt(os.makedirs, place.work / "x/y/z"),
                attempt(os.mkdir, place.one.parent / "sub")]
    same(places, operation)


def test_rename(places):
    def operation(place):
        work = place.work
        for name in ("empty", "other", "full", "full/sub"):
            os.mkdir(work / name)
        return [attempt(os.rename, place.one, work / "moved"), attempt(os.rename, place.one, work / "moved"),
                attempt(os.rename, work / "moved", work / "empty"), attempt(os.rename, work / "empty", work / "moved"),
                attempt(os.rename, work / "empty", work / "other"), attempt(os.rename, work / "other", work / "full"),
                attempt(os.rename, work / "full", work / "full" / "sub" / "x"),
                attempt(os.rename, work / "full", work / "renamed"), attempt(os.rename, work / "moved", place.two),
                attempt(os.rename, place.two, place.two), attempt(os.rename, place.two, work / "none" / "x"),
                place.two.read_bytes() == FIRST]
    assert same(places, operation)[-1] is True


def test_rename_of_a_directory_with_files(places):
    """One that shows entries of the cluster cannot be moved, as on overlayfs (docs/semantics/file-operations.md): mv copies."""
    if not places[0].one.parent.name.startswith("directory"):
        assert attempt(os.rename, places[0].one.parent, places[0].work / "moved") == "OSError 18"

    def operation(place):
        shutil.move(place.one.parent, place.work / "moved")
        told = [(place.work / "moved" / place.one.name).read_bytes() == FIRST,
                os.path.lexists(place.one.parent), os.path.lexists(place.one)]
        (place.work / "moved" / "new").write_text("x")
        told += [sorted(os.listdir(place.work / "moved"))]
        shutil.move(place.work / "moved", place.one.parent)
        return [*told, place.one.read_bytes() == FIRST]
    same(places, operation)


def test_rename_without_replacing(places):
    def operation(place):
        return [attempt(renameat2, place.one, place.two, NOREPLACE), attempt(renameat2, place.one, place.work / "x", NOREPLACE),
                attempt(renameat2, place.one, place.work / "y", NOREPLACE),
                attempt(renameat2, place.work / "x", place.work, NOREPLACE)]
    assert same(places, operation)[0] == "FileExistsError 17"


def test_rename_with_exchange(places):
    def operation(place):
        (place.work / "directory").mkdir()
        (place.work / "directory" / "inside").write_text("inside")
        (place.work / "file").write_text("file")
        return [attempt(renameat2, place.one, place.two, EXCHANGE), place.one.read_bytes() == SECOND,
                place.two.read_bytes() == FIRST, attempt(renameat2, place.one, place.work / "file", EXCHANGE),
                attempt(renameat2, place.one, place.work / "none", EXCHANGE),
                attempt(renameat2, place.work / "directory", place.two, EXCHANGE),
                place.two.is_dir() and (place.two / "inside").read_text(),
                attempt(renameat2, place.one, place.two, NOREPLACE | EXCHANGE)]
    assert same(places, operation)[:3] == [0, True, True]


def test_unlink(places):
    def operation(place):
        return [attempt(os.unlink, place.one), attempt(os.unlink, place.one), attempt(os.unlink, place.work),
                attempt(os.unlink, place.two / "x"), os.path.lexists(place.one), attempt(os.stat, place.one)]
    same(places, operation)


def test_a_removed_name_can_be_made_again(places):
    def operation(place):
        os.unlink(place.one)
        place.one.write_bytes(b"again")
        os.rename(place.one, place.two)
        place.one.mkdir()
        return [place.two.read_bytes(), attempt(os.rmdir, place.one)]
    same(places, operation)


def test_open_file_outlives_its_name(places):
    def operation(place):
        told = []
        with open(place.one, "r+b") as file:
            os.unlink(place.one)
            told += [file.read() == FIRST, os.fstat(file.fileno()).st_size, os.fstat(file.fileno()).st_nlink]
            file.seek(0)
            file.write(b"written after unlink")
            file.flush()
            file.seek(0)
            told += [file.read(20), attempt(os.ftruncate, file.fileno(), 5), os.fstat(file.fileno()).st_size]
        with open(place.work / "new", "w+b") as file:
            os.unlink(place.work / "new")
            file.write(b"x" * 100_000)
            file.flush()
            file.seek(0)
            told += [len(file.read()), attempt(os.rmdir, place.work)]
        os.mkdir(place.work)
        return told
    assert same(places, operation)[0] is True


def test_open_file_outlives_its_replacement(places):
    def operation(place):
        with open(place.one, "rb") as old:
            os.rename(place.two, place.one)
            with open(place.one, "rb") as new:
                return [old.read() == FIRST, new.read() == SECOND]
    assert same(places, operation) == [True, True]


def test_rmdir(places):
    def operation(place):
        os.makedirs(place.work / "full" / "sub")
        return [attempt(os.rmdir, place.work / "full"), attempt(os.rmdir, place.one), attempt(os.rmdir, place.one.parent),
                attempt(os.rmdir, place.work / "full" / "sub"), attempt(os.rmdir, place.work / "full"),
                attempt(os.rmdir, place.work / "full"), attempt(os.unlink, place.one), attempt(os.unlink, place.two),
                attempt(os.rmdir, place.one.parent), os.path.lexists(place.one.parent), attempt(os.mkdir, place.one.parent),
                sorted(os.listdir(place.one.parent))]
    same(places, operation)


def test_symlinks(places):
    def operation(place):
        (place.work / "sub").mkdir()
        return [attempt(os.symlink, "../" + os.path.relpath(place.one, place.root), place.work / "relative"),
                (place.work / "relative").read_bytes() == FIRST, attempt(os.symlink, "x" * 3000, place.work / "long"),
                attempt(os.symlink, "nowhere", place.work / "dangling"), attempt(os.stat, place.work / "dangling"),
                attempt(os.symlink, "x", place.one), attempt(os.readlink, place.one), attempt(os.symlink, "sub", place.work / "dir"),
                (place.work / "dir").is_dir(), attempt(os.rmdir, place.work / "dir"), attempt(os.symlink, "loop", place.work / "loop"),
                attempt(os.stat, place.work / "loop"), attempt(os.unlink, place.work / "loop"),
                attempt(os.rename, place.work / "dangling", place.work / "moved"), os.readlink(place.work / "moved")]
    same(places, operation)


def test_hard_links(places):
    def operation(place):
        told = [attempt(os.link, place.one, place.work / "second"), os.stat(place.one).st_nlink,
                os.path.samefile(place.one, place.work / "second"), attempt(os.link, place.one, place.two),
                attempt(os.link, place.work, place.root / "x"), attempt(os.link, place.root / "none", place.work / "x")]
        with open(place.work / "second", "ab") as file:
            file.write(b"through the second name")
        told += [place.one.read_bytes()[-10:], attempt(os.unlink, place.one), os.stat(place.work / "second").st_nlink,
                 attempt(os.rename, place.work / "second", place.one), place.one.read_bytes()[-10:]]
        return told
    same(places, operation)


def test_special_files(places):
    def operation(place):
        os.mkfifo(place.work / "fifo", 0o640)
        with socket.socket(socket.AF_UNIX) as server:
            here = os.getcwd()
            os.chdir(place.work)  # a socket's path is short
            try:
                server.bind("socket")
            finally:
                os.chdir(here)
        reader = os.open(place.work / "fifo", os.O_RDONLY | os.O_NONBLOCK)
        writer = os.open(place.work / "fifo", os.O_WRONLY)
        os.write(writer, b"through")
        told = os.read(reader, 100)
        os.close(reader)
        os.close(writer)
        return [told, stat.S_ISSOCK(os.stat(place.work / "socket").st_mode)]
    same(places, operation)


NAMES = [bytes([byte]) + b"x" for byte in range(1, 256) if byte != ord("/")] + [
    b"n" * 255, b"...", b"-rf", b" ", b"a\nb", "名前".encode(), b"\xff\xfe", b"%s%n", b"*?[", b".hidden", b"a'\"\\$`"]


def test_names_of_any_byte(places):
    def operation(place):
        work = os.fsencode(place.work)
        told = [attempt(os.mkdir, work + b"/" + b"n" * 256), attempt(os.stat, work + b"/" + b"n" * 256)]
        for name in NAMES:
            with open(work + b"/" + name, "wb") as file:
                file.write(name)
        told.append(sorted(os.listdir(work)) == sorted(NAMES))
        os.mkdir(work + b"/d")
        for name in NAMES:
            os.rename(work + b"/" + name, work + b"/d/" + name)
        told.append(sorted(os.listdir(work + b"/d")) == sorted(NAMES))
        for name in NAMES[::2]:
            os.unlink(work + b"/d/" + name)
        return told
    assert same(places, operation)[-1] is True


def descend(directory, levels):
    """A descriptor of the lowest of that many new directories with names of 102 bytes."""
    directory = os.open(directory, os.O_RDONLY)
    for level in range(levels):
        name = f"{level:02}" + "d" * 100
        os.mkdir(name, dir_fd=directory)
        below = os.open(name, os.O_RDONLY, dir_fd=directory)
        os.close(directory)
        directory = below
    return directory


def test_deep_paths(places):
    def operation(place):
        directory = descend(place.work, 38)  # nearly PATH_MAX below the root
        file = os.open("bottom", os.O_CREAT | os.O_RDWR, dir_fd=directory)
        os.write(file, b"deep")
        told = [os.pread(file, 10, 0), os.listdir(directory), os.stat("bottom", dir_fd=directory).st_size]
        os.close(file)
        os.unlink("bottom", dir_fd=directory)
        os.close(directory)
        told.append(attempt(os.stat, str(place.work) + "/d" * 2100))
        shutil.rmtree(place.work)
        os.mkdir(place.work)
        return told
    same(places, operation)


def test_a_path_beyond_the_limit_is_refused(places):
    mounted, _ = places
    assert attempt(descend, mounted.work, 60) == "OSError 36"  # docs/semantics/file-operations.md: ENAMETOOLONG
    shutil.rmtree(mounted.work)
