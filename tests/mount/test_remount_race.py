# SPDX-License-Identifier: Apache-2.0
"""All processes of a mount are killed while jobs write by path, and it is mounted again: the jobs get ENOTCONN until the new mount
is there, and never write into the directory below."""
import contextlib
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from inductorfs_testing import old_kernel, places
from inductorfs_testing.compare import mount_lines
from inductorfs_testing.mounts import kept_from_sweeps, tmpfs
from inductorfs_testing.processes import run, wait_until

needs_root = pytest.mark.usefixtures("root")
NOBODY = 65534
ROUNDS = 4
# The last one by os.makedirs, when the mount dies between its mkdir of a directory that is there and its question whether that is one.
ERRORS = {"ENOTCONN", "ECONNABORTED", "EEXIST"}
# Makes directories and files there without a pause; says how many it made, and at the end which ones, and its errors.
WRITER = """
import errno, json, os, sys
root, progress, stop = sys.argv[1:]
kept, errors, number = set(), set(), 0
with open(progress, "wb", buffering=0) as told:
    while not os.path.exists(stop):
        name = f"{os.getpid()}-{number % 20}/{number % 400}"
        try:
            os.makedirs(os.path.dirname(f"{root}/{name}"), exist_ok=True)
            with open(f"{root}/{name}", "w") as file:
                file.write(name)
        except OSError as error:
            errors.add(errno.errorcode[error.errno])
            continue
        kept.add(name)
        number += 1
        os.pwrite(told.fileno(), number.to_bytes(8, "little"), 0)
print(json.dumps([sorted(kept), sorted(errors)]))
"""
KERNELS = {"this": [], "old": [sys.executable, old_kernel.__file__, "beneath"]}


class Writers:
    """Two processes that write below `root`; `enter` is the command that starts them elsewhere."""

    def __init__(self, root: Path, directory: Path, enter=()):
        directory.mkdir()
        directory.chmod(0o777)
        self._stop, self._progress = directory / "stop", [directory / str(number) for number in range(2)]
        self._children = [subprocess.Popen([*enter, sys.executable, "-c", WRITER, str(root), str(progress), str(self._stop)],
                                           stdout=subprocess.PIPE, text=True) for progress in self._progress]

    def __enter__(self):
        self.go_on()
        return self

    def __exit__(self, *_):
        for child in self._children:
            child.kill()
            child.communicate()

    def _numbers(self):
        return [int.from_bytes(path.read_bytes(), "little") if path.exists() else 0 for path in self._progress]

    def go_on(self):
        """Waits until each has written some more."""
        before = self._numbers()
        wait_until(lambda: all(new > old + 5 for old, new in zip(before, self._numbers(), strict=True)), 20, "the writers to write")

    def end(self):
        """The names that they wrote, and the errors that they saw."""
        self._stop.touch()
        told = [json.loads(child.communicate(timeout=30)[0]) for child in self._children]
        return {name for names, _ in told for name in names}, {error for _, errors in told for error in errors}


def mounts_at(path, process="self"):
    return [line for line in mount_lines(process) if line.split(" ")[4] == str(path)]


def layers(path, process="self"):
    return len(mounts_at(path, process))


def mount_again(node, cluster, *more, enter=()):
    """At the first try, as the unit does it."""
    done = run([*enter, places.program(), "mount", node.cache, "--store", node.store, "--log", node.log, "--remote", cluster.redis.url,
                *cluster.options(*more)], node.env(), seconds=60)
    assert (done.code, done.err) == (0, ""), done.err


def start_unit(node, cluster):
    """As systemd does after the main process was killed."""
    journal = node.root / "journal"
    with open(journal, "ab") as file:
        unit = subprocess.Popen([places.program(), "mount", str(node.cache), "--foreground", "--store", str(node.store),
                                 *map(str, cluster.options())], env=node.env(), stderr=file)
    wait_until(lambda: unit.poll() is not None or node.cli("status", node.cache).code == 0, 30, "the unit")
    assert unit.poll() is None, journal.read_text()
    return unit


def touched(directory):
    """Another value after any name was made in the directory, or removed."""
    return directory.stat().st_mtime_ns


def all_is_there(root, names):
    lost = [name for name in names if not (root / name).exists() or (root / name).read_text() != name]
    assert not lost, f"{len(lost)} of {len(names)}, one is {lost[0]}"


@needs_root
@pytest.mark.parametrize("kernel", KERNELS)
def test_nobody_writes_below_a_mount_that_was_killed(cluster, place, kernel):
    enter = KERNELS[kernel]
    bare = touched(place.cache)
    mount_again(place, cluster, enter=enter)
    with Writers(place.cache, place.root / "writers") as writers:
        for _ in range(ROUNDS):
            place.kill_daemon()
            mount_again(place, cluster, enter=enter)
            assert layers(place.cache) == (2 if kernel == "old" else 1)
            writers.go_on()
        names, errors = writers.end()
    assert errors <= ERRORS, errors
    all_is_there(place.cache, names)
    place.unmount()
    assert layers(place.cache) == 0 and os.listdir(place.cache) == []
    assert touched(place.cache) == bare, "a job wrote into the directory below"


@needs_root
def test_a_mount_that_root_cannot_look_below_comes_back_each_time(cluster, place):
    """As an ordinary user's."""
    with tmpfs(place.root / "around") as around:
        subprocess.run(["mount", "--make-unbindable", around], check=True)
        place.cache = around / "cache"
        place.cache.mkdir(mode=0o750)
        place.spellings = [place.cache]
        place.start(*cluster.options())
        with Writers(place.cache, place.root / "writers") as writers:
            for _ in range(ROUNDS):
                place.kill_daemon()
                place.start(*cluster.options())
                assert layers(place.cache) == 1
                writers.go_on()
            names, _ = writers.end()
        roots = [place.cache, *around.glob("cache.left-over-*")]
        lost = [name for name in names if not any((root / name).exists() for root in roots)]
        assert not lost and place.cache.stat().st_mode & 0o7777 == 0o750
        assert place.cli("unmount", place.cache).code == 0
        assert layers(place.cache) == 0 and os.listdir(place.cache) == []


@needs_root
def test_nobody_writes_below_the_mount_of_a_unit_that_was_killed(cluster, place):
    bare = touched(place.cache)
    units = [start_unit(place, cluster)]
    with Writers(place.cache, place.root / "writers") as writers:
        for _ in range(ROUNDS):
            place.kill_daemon()
            units[-1].wait(20)
            units.append(start_unit(place, cluster))
            writers.go_on()
        names, _ = writers.end()
    all_is_there(place.cache, names)
    units[-1].terminate()
    assert units[-1].wait(30) == 0
    assert layers(place.cache) == 0 and touched(place.cache) == bare


@contextlib.contextmanager
def others_that_sweep(node, cluster):
    """Mounts of another node begin without a pause, and are refused after they have looked what dead daemons left."""
    inside = node.cache / "inside"
    inside.mkdir()
    stop = node.root / "stop"
    command = [places.program(), "mount", str(inside), "--store", str(node.root / "no-store"), *map(str, cluster.options())]
    again = f"until test -e {stop}; do {shlex.join(map(str, command))}; done"
    child = subprocess.Popen(["sh", "-c", again], env=node.env(), stderr=subprocess.PIPE, text=True)
    try:
        yield
    finally:
        stop.touch()
        told = child.communicate(timeout=60)[1]
    assert "must not lie in an inductorfs mount" in told, told[:1000]


@needs_root
def test_nobody_writes_below_a_further_place_of_a_mount_that_was_killed(cluster, place):
    """While other mounts of the host begin, which remove what no mount shows any more."""
    other = cluster.quick("other")
    elsewhere = place.root / "there"
    elsewhere.mkdir()
    bare = touched(elsewhere)
    more = ["--also", f"precompiled_headers={elsewhere}"]
    options = cluster.options
    cluster.options = lambda *given: [word for word in options(*given) if word != "--no-also"]
    mount_again(place, cluster, *more)
    with others_that_sweep(other, cluster), Writers(elsewhere, place.root / "writers") as writers:
        for _ in range(ROUNDS):
            place.kill_daemon()
            mount_again(place, cluster, *more)
            assert layers(elsewhere) == 1
            writers.go_on()
        names, errors = writers.end()
    assert errors <= ERRORS, errors
    all_is_there(place.cache / "precompiled_headers", names)
    place.unmount()
    assert touched(elsewhere) == bare, "a job wrote into the directory below"


@needs_root
def test_a_place_of_a_mount_that_is_gone_goes_with_the_next_mount(cluster, place):
    elsewhere = place.root / "there"
    elsewhere.mkdir()
    options = [word for word in cluster.options("--also", f"precompiled_headers={elsewhere}") if word != "--no-also"]
    place.start(*options)
    place.kill_daemon()
    with kept_from_sweeps(elsewhere):
        subprocess.run(["umount", "--lazy", place.cache], check=True)
        cluster.quick("other")
        assert layers(elsewhere) == 1
    cluster.quick("third")
    wait_until(lambda: layers(elsewhere) == 0, what="the place to go")


@needs_root
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_mount_that_is_killed_while_it_starts_can_come_back(cluster, place, kernel):
    enter = KERNELS[kernel]
    bare = touched(place.cache)
    mount_again(place, cluster, enter=enter)
    with Writers(place.cache, place.root / "writers") as writers:
        for points in (["a worker"], ["a worker", "a mount"], ["a mount", "a mount", "a worker"]):
            place.kill_daemon()
            for point in points:
                before = mounts_at(place.cache)
                start = subprocess.Popen([*enter, places.program(), "mount", str(place.cache), "--store", str(place.store),
                                          *map(str, cluster.options())], env=place.env(), stderr=subprocess.DEVNULL)
                changed = place.daemons if point == "a worker" else lambda old=before: mounts_at(place.cache) != old
                wait_until(changed, 20, point, pause=0.001)
                while start.poll() is None or place.supervisors() or place.daemons():
                    place.kill_daemon()
            mount_again(place, cluster, enter=enter)
            assert layers(place.cache) == (2 if kernel == "old" else 1)
            writers.go_on()
        names, errors = writers.end()
    assert errors <= ERRORS, errors
    all_is_there(place.cache, names)
    place.unmount()
    assert layers(place.cache) == 0 and touched(place.cache) == bare


@needs_root
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_start_that_fails_leaves_a_dead_mount(cluster, place, kernel):
    enter = KERNELS[kernel]
    elsewhere = place.root / "there"
    elsewhere.mkdir()
    bare = [touched(place.cache), touched(elsewhere)]
    command = [*enter, places.program(), "mount", place.cache, "--store", place.store, "--also", f"precompiled_headers={elsewhere}",
               *[word for word in cluster.options() if word != "--no-also"]]
    assert run(command, place.env()).code == 0
    place.kill_daemon()
    place.control_socket.unlink(missing_ok=True)  # any mount of this user that begins or ends removes those of dead daemons
    place.control_socket.mkdir()
    for _ in range(2):
        done = run(command, place.env())
        assert done.code == 1 and str(place.control_socket) in done.err, done.err
        wait_until(lambda: not place.processes(), 20, "the daemon's end")
        for path in (place.cache, elsewhere):
            with pytest.raises(OSError, match="Transport endpoint is not connected"):
                (path / "x").touch()
    place.control_socket.rmdir()
    assert run(command, place.env()).code == 0
    place.unmount()
    assert [touched(place.cache), touched(elsewhere)] == bare


@needs_root
def test_unmount_takes_all_layers_of_a_mount_that_was_killed(cluster, place):
    enter = KERNELS["old"]
    mount_again(place, cluster, enter=enter)
    place.kill_daemon()
    mount_again(place, cluster, enter=enter)
    place.kill_daemon()
    assert layers(place.cache) == 2
    assert place.cli("unmount", place.cache, "--lazy").code == 0
    assert layers(place.cache) == 0
    mount_again(place, cluster, enter=enter)
    place.kill_daemon()
    mount_again(place, cluster, enter=enter)
    place.next_worker(place.kill_worker())
    run(["umount", "-l", place.cache])
    wait_until(lambda: not place.processes() and layers(place.cache) == 0, 20, "the daemon's end")


@needs_root
def test_owner_and_mode_are_those_of_the_directory_below_the_dead_mount(cluster, place):
    os.chown(place.cache, NOBODY, NOBODY)
    place.cache.chmod(0o3770)
    mount_again(place, cluster)
    for _ in range(2):
        place.kill_daemon()
        mount_again(place, cluster)
        found = place.cache.stat()
        assert (found.st_uid, found.st_gid, found.st_mode & 0o7777) == (NOBODY, NOBODY, 0o3770)
    place.unmount()


@contextlib.contextmanager
def namespace_of_users(cluster):
    """The command that enters a mount namespace with a /dev/fuse that everybody may open, as nobody; and its process."""
    device = cluster.directory / "fuse"
    script = f"mknod {device} c 10 229; chmod 666 {device}; mount --bind {device} /dev/fuse; echo ready; exec sleep 600"
    holder = subprocess.Popen(["unshare", "-m", "sh", "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "ready\n"
        yield ["nsenter", f"--mount=/proc/{holder.pid}/ns/mnt", "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"], holder.pid
    finally:
        holder.kill()
        holder.communicate()


LOST = """
import json, os, sys
roots, lost = json.loads(sys.argv[1]), []
for name in json.load(sys.stdin):
    files = [f"{root}/{name}" for root in roots if os.path.exists(f"{root}/{name}")]
    if not any(open(file).read() == name for file in files):
        lost.append(name)
print(json.dumps(lost))
"""


@needs_root
@pytest.mark.parametrize("used", [True, False], ids=["used", "unused"])
def test_an_ordinary_users_mount_comes_back_each_time(cluster, used):
    """fusermount3 mounts nothing over a dead mount, so for some milliseconds the directory shows. What comes there is kept beside it."""
    os.chmod(cluster.directory, 0o755)
    os.chmod(cluster.redis.directory, 0o755)
    os.chmod(cluster.redis.socket, 0o777)
    node = cluster.node("nobodys", start=False)
    for path in (node.root, node.cache, node.store, node.home, node.tmp):
        os.chown(path, NOBODY, NOBODY)
    node.cache.chmod(0o750)
    program = places.copy_programs(cluster.directory)
    with namespace_of_users(cluster) as (enter, holder), contextlib.ExitStack() as stack:
        def mount():
            done = run([*enter, program, "mount", node.cache, "--store", node.store, "--remote", cluster.redis.url, *cluster.options()],
                       node.env(USER="nobody", LOGNAME="nobody"), seconds=60)
            assert done.code == 0, done.err
            assert layers(node.cache, holder) == 1
            return done.err

        mount()
        writers = stack.enter_context(Writers(node.cache, cluster.directory / "writers", enter)) if used else None
        warnings = []
        for _ in range(ROUNDS):
            node.kill_daemon()
            warnings.append(mount())
            if writers:
                writers.go_on()
        asides = sorted(node.root.glob("cache.left-over-*"))
        assert [bool(warning) for warning in warnings].count(True) == len(asides)
        for aside in asides:
            assert any(f" are in {aside} now" in warning for warning in warnings), warnings
        if writers:
            names, errors = writers.end()
            assert errors <= ERRORS | {"ENOENT"}, errors  # the last for a directory that was covered just now
            roots = json.dumps([str(path) for path in (node.cache, *asides)])
            told = subprocess.run([*enter, sys.executable, "-c", LOST, roots], input=json.dumps(sorted(names)), text=True, capture_output=True)
            assert json.loads(told.stdout) == [], told.stderr
        assert run([*enter, "stat", "-c", "%u %a", node.cache]).out == f"{NOBODY} 750\n"
        assert run([*enter, program, "unmount", node.cache], node.env()).code == 0
        assert layers(node.cache, holder) == 0 and os.listdir(node.cache) == []
        assert mount() == ""
        assert run([*enter, program, "unmount", node.cache], node.env()).code == 0
        wait_until(lambda: not node.processes(), 20, "the daemon's end")
