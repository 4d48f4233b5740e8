# SPDX-License-Identifier: Apache-2.0
"""A disk of which one call fails (tests/support/faulty_store.cc), and the jobs of a node whose store lies on it. Root."""
import contextlib
import functools
import hashlib
import multiprocessing
import os
import signal
import subprocess
import tempfile
from pathlib import Path

from . import artefacts, places
from .disks import Disk
from .processes import PATIENCE, Failed, wait_until

PROGRAM = Path(os.environ.get("INDUCTORFS_FAULTY_STORE", places.REPOSITORY / "build" / "tests" / "support" / "faulty_store"))
FORK = multiprocessing.get_context("fork")


class FaultyDisk(Disk):
    """`options`: --no-attributes, and then it takes no orders."""

    def __init__(self, path, *options):
        super().__init__(path)
        self._options = options

    def mount(self):
        files = self.path.with_name(self.path.name + ".files")
        files.mkdir(exist_ok=True)
        self._server = subprocess.Popen([PROGRAM, files, self.path, *self._options])
        wait_until(lambda: os.path.ismount(self.path), what="the disk that fails")

    def __exit__(self, *arguments):
        super().__exit__(*arguments)
        self._server.kill()
        self._server.wait(20)

    @contextlib.contextmanager
    def silent(self):
        """No call of this disk is answered."""
        self._server.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._server.send_signal(signal.SIGCONT)

    def counts(self):
        """{kind of call: how many there were}"""
        return {kind: int(count) for kind, count in map(str.split, os.getxattr(self.path, "user.counts").decode().splitlines())}

    def fail(self, kind, number, how, end=""):
        """`how`: an errno, or `short`. `end`: of those from now on whose path ends so."""
        os.setxattr(self.path, "user.order", f"{kind} {number} {how} {end}".encode())

    def hit(self):
        return os.getxattr(self.path, "user.hit").decode(errors="replace")


class Told:
    """What programs were told of what they made: {name: digests that it may have}, the names whose absence nobody can rule out, since the
    call that was to make them failed, the names that were removed, the seeds of whole Triton sets, {name that was changed when it
    was shared: what other nodes may go on to see}, and {name: digests that it may have on this host alone}."""

    def __init__(self):
        self.files, self.doubtful, self.removed, self.sets, self.changed, self.here = {}, set(), [], [], {}, {}

    def may_be(self, name, content):
        if name not in self.files:
            self.doubtful.add(name)
        self.files.setdefault(name, []).append(digest(content))

    def is_now(self, name, content):
        self.files[name] = [digest(content)]
        self.doubtful.discard(name)
        self.here.pop(name, None)

    def may_go(self, name):
        self.doubtful.add(name)

    def gone(self, name):
        self.files.pop(name, None)
        self.doubtful.discard(name)
        self.removed.append(name)

    def shared(self):
        """Of it what other nodes see; they keep what is removed here. What is doubtful they may lack, and have it whole or not at all."""
        part = Told()
        part.files = {name: digests for name, digests in self.files.items() if not name.startswith("own/")}
        part.doubtful = self.doubtful & part.files.keys()
        for name in self.changed.keys() & part.files.keys():
            part.files[name] = part.files[name] + self.changed[name]
        part.sets = self.sets
        return part


class Writer:
    """One program, which notes what it was told. Its contents are other ones for each tag."""

    def __init__(self, cache, tag, told):
        self._cache, self._tag, self._told = cache, tag, told

    def write_all(self):
        """(what it was told, what was refused)"""
        refused = []
        for step in (self._private, self._edited, self._linked, self._moved, self._changed, self._graphs, self._code, self._library, self._kernel, self._removed):
            try:
                step()
            except OSError as error:
                refused.append(f"{step.__name__}: {error}")
        return self._told, refused

    def _content(self, name, size=200):
        line = f"{self._tag} {name} ".encode()
        return (line * (size // len(line) + 1))[:size]

    def _put(self, name, content):
        """Written, synced and renamed: acknowledged from then on."""
        final = self._cache / name
        artefacts.make_directories(final.parent)
        temporary = final.with_name(f".{os.getpid()}.{self._tag}.tmp")
        write_whole(temporary, content)
        self._told.may_be(name, content)
        os.rename(temporary, final)
        self._told.is_now(name, content)
        return final

    def _private(self):
        final = self._put(f"own/{self._tag}/file", self._content("file"))
        os.setxattr(final, "user.mine", b"value")
        assert os.getxattr(final, "user.mine") == b"value"
        directory = os.open(final.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _edited(self):
        name, first, second = f"own/{self._tag}/edited", self._content("first"), self._content("second", 2000)
        final = self._put(name, first)
        for size in range(len(second) + 1):  # a call that fails may leave any part of it
            self._told.may_be(name, first + second[:size])
        with open(final, "ab", buffering=0) as file:
            if file.write(second) == len(second):
                os.fsync(file.fileno())
                self._told.is_now(name, first + second)

    def _linked(self):
        name, content = f"own/{self._tag}/linked", self._content("linked")
        final = self._put(name, content)
        for kind, make in (("hard", os.link), ("soft", os.symlink)):
            self._told.may_be(f"{name}.{kind}", content)
            make(final, f"{final}.{kind}")
            self._told.is_now(f"{name}.{kind}", content)

    def _moved(self):
        content, old, new = self._content("moved", 70_000), f"own/{self._tag}/old", f"own/{self._tag}/new"
        self._put(f"{old}/moved", content)
        self._told.may_go(f"{old}/moved")
        self._told.may_be(f"{new}/moved", content)
        os.rename(self._cache / old, self._cache / new)
        self._told.is_now(f"{new}/moved", content)
        self._told.gone(f"{old}/moved")

    def _changed(self):
        """A graph of the program before it, in place: this host has bytes of its own there from then on."""
        name = next((name for name in self._told.files if name.startswith("fxgraph/") and name not in {*self._told.changed, *self._told.doubtful}), None)
        if name is None:
            return
        self._told.changed[name] = list(self._told.files[name])
        content, added = (self._cache / name).read_bytes(), self._content("added")
        for size in range(len(added) + 1):
            self._told.may_be(name, content + added[:size])
        with open(self._cache / name, "ab", buffering=0) as file:
            if file.write(added) == len(added):
                os.fsync(file.fileno())
                self._told.is_now(name, content + added)

    def _graphs(self):
        for size in (300, 300_000):
            content = self._content(f"graph {size}", size)
            self._put(artefacts.graph(f"{self._tag} {size}", content), content)

    def _code(self):
        self._put(artefacts.code(f"{self._tag} code"), self._content("code"))

    def _library(self):
        """As the compiler writes it: in place, and the end of its directory tells that it is whole."""
        name = artefacts.code(f"{self._tag} library", ".so")
        final = self._cache / name
        artefacts.make_directories(final.parent)
        build = final.with_name(final.stem + "_CxxBuild")
        build.mkdir()
        content = library() + self._content("library")
        self._told.may_be(name, content)
        self._told.here[name] = beginnings(content)
        write_whole(final, content)
        build.rmdir()
        self._told.is_now(name, content)

    def _kernel(self):
        directory = artefacts.triton_compile(self._cache, self._tag, self._tag)
        self._told.sets.append(self._tag)
        for name in artefacts.TRITON_FILES:
            self._told.is_now(str(directory.relative_to(self._cache) / name), artefacts.triton_child(name, self._tag))

    def _removed(self):
        """A file of its own, and one that the cluster has had of the program before it."""
        own = f"own/{self._tag}/removed"
        self._put(own, self._content("removed"))
        before = [name for name in self._told.files if name.endswith(".cpp") and name not in self._told.doubtful and name != artefacts.code(f"{self._tag} code")]
        for name in (own, *before):
            self._told.may_go(name)
            os.unlink(self._cache / name)
            self._told.gone(name)


def write_whole(path, content):
    with open(path, "wb", buffering=0) as file:
        rest = memoryview(content)
        while rest:
            rest = rest[file.write(rest):]
        os.fsync(file.fileno())


@functools.cache
def library():
    """A shared object. What stands behind its end is nothing to a linker."""
    with tempfile.NamedTemporaryFile(suffix=".so") as made:
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", made.name], input=b"int answer(void) { return 42; }\n", check=True, timeout=60)
        return Path(made.name).read_bytes()


def beginnings(content):
    """The digest of each, the whole among them."""
    read = hashlib.sha256()
    digests = {read.hexdigest()}
    for at in range(len(content)):
        read.update(content[at:at + 1])
        digests.add(read.hexdigest())
    return digests


def digest(content):
    return hashlib.sha256(content).hexdigest()


def look(cache, told):
    """What a program finds of all that was told: {"wrong": names, "absent": names, "failed": errors}."""
    found = {"wrong": [], "absent": [], "failed": []}

    def note(name, is_right):
        try:
            if not is_right():
                found["wrong"].append(name)
        except FileNotFoundError:
            if name not in told.doubtful:
                found["absent"].append(name)
        except OSError as error:
            found["failed"].append(f"{name}: {error}")

    for name, digests in told.files.items():
        note(name, lambda: digest((cache / name).read_bytes()) in {*digests, *told.here.get(name, ())})
    for name in told.removed:
        note(f"removed {name}", lambda: not os.path.lexists(cache / name))
    for seed in told.sets:
        note(f"set {seed}", lambda: whole_set(cache, seed))
    return found


def whole_set(cache, seed):
    children = artefacts.triton_read(cache, seed)
    if children is None:
        raise FileNotFoundError(seed)
    return artefacts.triton_writers(children) == {seed} and set(children) == set(artefacts.TRITON_FILES)


def in_child(function, *arguments, seconds=30):
    """What another process answers. One that hangs is a failure: it is killed."""
    here, there = FORK.Pipe(duplex=False)
    child = FORK.Process(target=lambda: there.send(function(*arguments)))
    child.start()
    there.close()
    try:
        if not here.poll(seconds * PATIENCE):
            raise Failed(f"{function.__qualname__}: hung for {seconds * PATIENCE} s")
        return here.recv()
    finally:
        child.kill()
        child.join(10)
