# SPDX-License-Identifier: Apache-2.0
"""The end of a mount: who is in the way, what still goes to the cluster, and that nothing is left anywhere."""
import contextlib
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from inductorfs_testing import artefacts, compare, mounts, old_kernel, places
from inductorfs_testing.mounts import suspended
from inductorfs_testing.processes import Job, besides_waiting, run, wait_until

PROGRAM = places.program()
needs_root = pytest.mark.usefixtures("root")
NOBODY = 65534
DRAIN_PATIENCE = 5.0  # kDrainPatience
RUNTIME = Path("/run/inductorfs") if os.geteuid() == 0 else \
    Path(os.environ["XDG_RUNTIME_DIR"], "inductorfs") if os.environ.get("XDG_RUNTIME_DIR") else Path(f"/tmp/inductorfs-{os.geteuid()}")


def runtime_files(*mountpoints):
    """What lies beside the control sockets of these mounts: other tests' daemons may use the same directory."""
    wanted = {hashlib.sha256(os.fsencode(point)).hexdigest()[:16] for point in mountpoints}
    return sorted(path.name for path in RUNTIME.iterdir() if path.name.split(".")[0] in wanted) if RUNTIME.exists() else []


def nothing_is_left(node):
    assert compare.mounts_below(node.root) == []
    wait_until(lambda: not node.daemons(), 10, "the daemon's end")
    assert runtime_files(node.cache) == []


LINGERING = """import array, os, socket, struct, sys
listener = socket.create_server(("127.0.0.1", 0))
listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2304)
sending = socket.create_connection(listener.getsockname())
peer, _ = listener.accept()
sending.setblocking(False)
try:
    while True:
        sending.send(bytes(65536))
except BlockingIOError:
    sending.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))  # whoever closes it last waits so long
with socket.socket(socket.AF_UNIX) as control:
    control.connect(sys.argv[1])
    try:
        control.sendmsg([b"{"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [sending.fileno()]))])
    except PermissionError:
        os._exit(7)  # the end of a process waits for no peer
    sending.close()  # the last one is under way
    print("sent", flush=True)
    sys.stdin.read()
"""


class Guest:
    """Another user who sends to the control socket what waits for as long as he likes when it is closed, until the end of the block."""

    def __init__(self, node):
        (proxy,) = node.proxies()
        with mounts.stopped(proxy):  # or the guest would be the last to close what it sends
            self._send(node)

    def _send(self, node):
        self.process = subprocess.Popen([sys.executable, "-c", LINGERING, node.guests_socket], user=NOBODY, group=NOBODY, extra_groups=[],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.is_refused = self.process.stdout.readline() != "sent\n"

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.process.kill()
        self.process.communicate()


@needs_root
def test_a_guest_that_sends_what_waits_when_it_is_closed_is_refused_by_the_kernel_if_that_can(cluster):
    node = cluster.node("a")
    with Guest(node) as guest:
        assert guest.is_refused == knows_passrights()
        if guest.is_refused:
            assert guest.process.wait(timeout=30) == 7
    done = node.cli("upgrade", node.cache)
    assert done.code == 0, done.err
    node.unmount()


def knows_passrights():
    """SO_PASSRIGHTS, from Linux 6.16 on."""
    with socket.socket(socket.AF_UNIX) as one:
        try:
            one.setsockopt(socket.SOL_SOCKET, 83, 0)
        except OSError:
            return False
    return True


def is_held(proxy):
    """Whether it sleeps, and not until a guest comes ("0": it runs, and may not have read what the guest has sent)."""
    sleeps_in = Path(f"/proc/{proxy}/wchan").read_text()
    return sleeps_in != "0" and "poll" not in sleeps_in


@pytest.fixture
def unguarded(cluster):
    """A mount of root on a kernel that cannot refuse what guests send along: such as Debian 12 has."""
    node = cluster.node("a", start=False)
    node.enter = [sys.executable, old_kernel.__file__, "passrights"]
    return node.start(*cluster.options())


@needs_root
@pytest.mark.parametrize("end", ["unmount", "SIGTERM", "upgrade"])
def test_a_guest_holds_neither_who_serves_nor_its_end(unguarded, end):
    (proxy,) = unguarded.proxies()
    with Guest(unguarded) as guest:
        assert not guest.is_refused
        wait_until(lambda: is_held(proxy), 10, "the proxy to wait for this one alone")
        assert unguarded.ask({"op": "where"})["mountpoint"] == str(unguarded.cache)
        began = time.monotonic()
        if end == "upgrade":
            done = unguarded.cli("upgrade", unguarded.cache)
            assert done.code == 0, done.err
        if end == "SIGTERM":
            terminate(unguarded)
        else:
            done = unguarded.cli("unmount", unguarded.cache)
            assert done.code == 0, done.err
        wait_until(lambda: unguarded.processes() == [proxy], 10, "the end of all but who closes what the guest has sent")
        assert time.monotonic() - began < 20
        assert compare.mounts_below(unguarded.root) == [] and not os.path.exists(unguarded.guests_socket)
    wait_until(lambda: not os.path.exists(f"/proc/{proxy}"), 10, "the proxy's end, when its guest has gone")


@needs_root
def test_root_takes_the_proxy_from_a_guest_who_holds_it(unguarded):
    """As docs/operations/symptoms.md says."""
    (proxy,) = unguarded.proxies()
    with Guest(unguarded):
        wait_until(lambda: is_held(proxy), 10, "the proxy to wait for this one alone")
        os.kill(proxy, signal.SIGKILL)
        wait_until(lambda: unguarded.proxies() not in ([], [proxy]), 10, "another proxy")
        assert str(unguarded.cache) in unguarded.guest_hears({"op": "where"})


@needs_root
def test_a_proxy_that_was_killed_is_followed_by_another(cluster):
    node = cluster.node("a")
    (first,) = node.proxies()
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: node.proxies() not in ([], [first]), 10, "another proxy")
    assert str(node.cache) in node.guest_hears({"op": "where"})
    node.unmount()
    nothing_is_left(node)


# ---- who is in the way

CWD = "import os, sys; os.chdir(sys.argv[1])"
OPEN = "import sys; held = open(sys.argv[1] + '/held')"
# ctypes, because the mmap module keeps a descriptor of its own.
MAPPED = """import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
fd = os.open(sys.argv[1] + "/held", os.O_RDONLY)
assert libc.mmap(None, 4096, 1, 2, fd, 0) not in (None, ctypes.c_void_p(-1).value), ctypes.get_errno()
os.close(fd)"""
UNSEEN = CWD + """
import ctypes
assert ctypes.CDLL(None).prctl(4, 0, 0, 0, 0) == 0  # PR_SET_DUMPABLE: /proc/PID is root's"""


@contextlib.contextmanager
def user_of(path, how, prefix=()):
    """A process that uses the mount in one way only, until the end of the block."""
    script = how + "\nprint('there', flush=True)\nsys.stdin.read()"
    with subprocess.Popen([*prefix, sys.executable, "-c", script, str(path), "--a-marked-job"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/") as child:
        try:
            if child.stdout.readline() != b"there\n":
                pytest.fail(child.stderr.read().decode())
            yield child
        finally:
            child.kill()


@pytest.mark.parametrize(("how", "told"), [(CWD, "working directory"), (OPEN, "open file"), (MAPPED, "mapped file")])
def test_unmount_says_who_uses_the_mount(cluster, place, how, told):
    place.start(*cluster.options())
    (place.cache / "held").write_text("x" * 5000)
    with user_of(place.cache, how) as user:
        done = place.cli("unmount", place.cache)
        assert done.code == 1 and done.err.count("\n") == 1
        assert f"pid {user.pid} (" in done.err and f", {told})" in done.err and "--lazy" in done.err
        assert os.path.basename(sys.executable) in done.err and "import" in done.err, "its command line"
        assert compare.is_mounted(place.cache) and (place.cache / "held").exists()
    place.unmount()
    nothing_is_left(place)


def test_unmount_names_the_program_that_runs_from_it(cluster, place):
    place.start(*cluster.options())
    shutil.copy2(shutil.which("sleep"), place.cache / "sleeper")
    with subprocess.Popen([place.cache / "sleeper", "1000"], cwd="/") as user:
        try:
            done = place.cli("unmount", place.cache)
            assert done.code == 1 and f"pid {user.pid} ({place.cache}/sleeper 1000, program)"[:60] in done.err
        finally:
            user.kill()
    place.unmount()


SILENT = """import os, socket, sys
os.setresuid(65534, 65534, 65534)
held = []
for _ in range(40):
    held.append(socket.socket(socket.AF_UNIX))
    held[-1].connect(sys.argv[1])
print("there", flush=True)
sys.stdin.read()"""


@needs_root
def test_silent_connections_of_another_user_do_not_delay_unmount(cluster, place):
    """They would hold each of 8 threads for 5 s (kPeerPatience), in five turns."""
    place.start(*cluster.options())
    with user_of(place.guests_socket, SILENT) as stranger:
        began = time.monotonic()
        place.unmount()
        assert time.monotonic() - began < 20
        assert stranger.poll() is None
    nothing_is_left(place)


@needs_root
def test_unmount_says_when_it_may_not_see_who(cluster):
    """An ordinary user's daemon; the process in the way may not be looked at, as those of other users."""
    for path in (cluster.directory, cluster.redis.directory):
        os.chmod(path, 0o755)
    os.chmod(cluster.redis.socket, 0o777)
    node = cluster.node("nobodys", start=False)
    for path in (node.root, node.cache, node.store, node.home, node.tmp):
        os.chown(path, NOBODY, NOBODY)
    program, device = places.copy_programs(cluster.directory), cluster.directory / "fuse"
    (node.root / "job.py").write_text(UNSEEN + "\nopen(sys.argv[2], 'w').close()\nsys.stdin.read()")
    script = node.root / "script"
    script.write_text(f"""set -eu
{program} mount {node.cache} --store {node.store} --remote {cluster.redis.url} {' '.join(map(str, cluster.options()))}
mkfifo {node.tmp}/fifo
{sys.executable} {node.root}/job.py {node.cache} {node.tmp}/there < {node.tmp}/fifo &
exec 3> {node.tmp}/fifo
while ! [ -e {node.tmp}/there ]; do sleep 0.05; done
{program} unmount {node.cache} && exit 1
exec 3>&-
wait
{program} unmount {node.cache}
""")
    setup = f"mknod {device} c 10 229; chmod 666 {device}; mount --bind {device} /dev/fuse; exec \"$@\""
    done = run(["unshare", "-m", "sh", "-c", setup, "sh", "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
                "sh", script], node.env(USER="nobody", LOGNAME="nobody"), seconds=60)
    assert done.code == 0, done.err
    said = besides_waiting(done.err)
    assert said.count("\n") == 1 and "in use by a process of another user" in said and "ask as root" in said


@needs_root
def test_unmount_names_who_works_at_a_further_place(cluster, place):
    elsewhere = place.root / "there"
    place.start("--also", f"precompiled_headers={elsewhere}", *[word for word in cluster.options() if word != "--no-also"])
    with user_of(elsewhere, CWD) as user:
        done = place.cli("unmount", place.cache)
        assert done.code == 1 and f"pid {user.pid} (" in done.err and str(elsewhere) in done.err
        assert compare.is_mounted(place.cache) and compare.is_mounted(elsewhere)
        done = place.cli("unmount", place.cache, "--lazy")
        assert (done.code, done.err) == (0, "")
        assert not compare.is_mounted(place.cache) and not compare.is_mounted(elsewhere)
    nothing_is_left(place)


# ---- what still goes to the cluster

def write_some(place, count=40):
    """Artefacts that are sealed and queued, not yet published. Requires: Redis does not answer."""
    names = {artefacts.code(f"queued {index}"): f"# {index}\n" for index in range(count)}
    for name, content in names.items():
        artefacts.write_atomic(place.cache, name, content)
    wait_until(lambda: place.status()["catalog"]["queued"] >= count, 20, "the queue")
    return names


def missing_in(cluster, names):
    there = set(mounts.published(cluster))
    return [name for name in names if name not in there]


def said(place, event):
    return [line for line in place.log.read_text().splitlines() if f" {event} " in line or line.endswith(f" {event}")]


def terminate(place):
    (pid,) = place.supervisors() or place.daemons()
    os.kill(pid, signal.SIGTERM)
    return time.monotonic()


def ended(place, begin, seconds=30):
    wait_until(lambda: not place.daemons(), seconds, "the daemon's end")
    return time.monotonic() - begin


def test_what_is_queued_goes_out_before_the_end(cluster, place):
    place.start(*cluster.options())
    with suspended(cluster.redis):
        names = write_some(place)
        begin = terminate(place)
        wait_until(lambda: said(place, "mount.unmounting"), 10, "the unmount")
        assert not said(place, "mount.stopped")
    ended(place, begin)
    assert missing_in(cluster, names) == []
    (told,) = said(place, "mount.drained")
    assert "all=true" in told and not said(place, "mount.left_queued")
    nothing_is_left(place)


def test_unmount_too_lets_the_queue_out(cluster, place):
    place.start(*cluster.options())
    with suspended(cluster.redis):
        names = write_some(place)
        command = Job([PROGRAM, "unmount", place.cache], place.env(), place.root / "jobs", "unmount")
        wait_until(lambda: said(place, "mount.unmounting"), 10, "the unmount")
    assert command.wait(30).code == 0
    assert missing_in(cluster, names) == []


def test_without_redis_the_end_waits_for_nothing_and_says_what_is_left(cluster, place):
    place.start(*cluster.options())
    cluster.redis.kill()
    names = write_some(place, 7)
    wait_until(lambda: not place.status()["remote"]["reachable"], 20, "the notice")
    begin = terminate(place)
    assert ended(place, begin) < DRAIN_PATIENCE - 1
    (told,) = said(place, "mount.left_queued")
    assert "groups=7" in told and "unsealed=0" in told
    cluster.redis.start()
    place.start(*cluster.options())
    place.sync()
    assert missing_in(cluster, names) == []


def test_a_redis_that_hangs_cannot_hold_the_end_up(cluster, place):
    place.start(*cluster.options())
    with suspended(cluster.redis):
        names = write_some(place)
        begin = terminate(place)
        assert ended(place, begin) < DRAIN_PATIENCE + 5
        assert said(place, "mount.left_queued")
    place.start(*cluster.options())
    place.sync()
    assert missing_in(cluster, names) == []


def test_a_second_signal_ends_the_wait(cluster, place):
    place.start(*cluster.options())
    with suspended(cluster.redis):
        names = write_some(place)
        terminate(place)
        wait_until(lambda: said(place, "mount.unmounting"), 10, "the unmount")
        second = terminate(place)
        assert ended(place, second) < DRAIN_PATIENCE - 2
        assert said(place, "mount.left_queued")
    place.start(*cluster.options())
    place.sync()
    assert missing_in(cluster, names) == []


# ---- nothing is left

def mount_by_alias(cluster, place):
    alias = place.root / "alias"
    alias.symlink_to(place.cache)
    place.spellings.append(alias)
    done = run([PROGRAM, "mount", alias, "--store", place.store, "--log", place.log, "--remote", cluster.redis.url,
                *cluster.options()], place.env(), 30)
    assert done.code == 0, done.err
    return alias


def test_no_file_stays_beside_the_sockets(cluster, place):
    alias = mount_by_alias(cluster, place)
    assert len(runtime_files(place.cache, alias)) == (4 if os.geteuid() == 0 else 2)
    place.unmount()
    assert runtime_files(place.cache, alias) == []


def test_a_new_start_clears_up_after_kill_9(cluster, place):
    """The killed daemon was named by another spelling of the path than its successor is."""
    alias = mount_by_alias(cluster, place)
    place.kill_daemon()
    assert len(runtime_files(place.cache, alias)) == (4 if os.geteuid() == 0 else 2)
    place.start(*cluster.options())
    place.unmount()
    assert runtime_files(place.cache, alias) == []


def test_any_start_clears_up_after_a_mount_that_never_comes_back(cluster, place):
    place.start(*cluster.options())
    place.kill_daemon()
    run(["umount", "-l", place.cache])
    assert runtime_files(place.cache) != []
    cluster.quick("other")
    assert runtime_files(place.cache) == []


def test_a_start_leaves_the_files_of_living_daemons(cluster, place):
    alias = mount_by_alias(cluster, place)
    before = runtime_files(place.cache, alias)
    other = cluster.quick("other")
    other.unmount()
    assert runtime_files(place.cache, alias) == before and place.cli("status", alias).code == 0


def test_unmount_of_a_dead_mount_clears_up(cluster, place):
    place.start(*cluster.options())
    place.kill_daemon()
    assert place.cli("unmount", place.cache, "--lazy").code == 0
    nothing_is_left(place)


def with_also(cluster, path):
    return ["--also", f"precompiled_headers={path}", *[word for word in cluster.options() if word != "--no-also"]]


@needs_root
@pytest.mark.parametrize("successor", ["same place", "no place", "unmount"])
def test_a_killed_daemons_further_place_goes(cluster, place, successor):
    elsewhere = place.root / "made" / "for" / "it"
    place.start(*with_also(cluster, elsewhere))
    assert compare.is_mounted(elsewhere)
    place.kill_daemon()
    if successor == "unmount":
        assert place.cli("unmount", place.cache, "--lazy").code == 0
    else:
        place.start(*(with_also(cluster, elsewhere) if successor == "same place" else cluster.options()))
        place.unmount()
    assert os.listdir(elsewhere) == []
    nothing_is_left(place)


def test_a_fifo_in_the_mount_holds_up_no_end(cluster):
    """An open(2) of it waits for a writer that never comes."""
    node = cluster.node("node")
    for name in ("fifo", "fxgraph", artefacts.code("fifo")):
        fifo = node.cache / name
        fifo.parent.mkdir(exist_ok=True)
        os.mkfifo(fifo)
        told = node.cli("explain", fifo)
        assert told.code == 0 and told.seconds < 5, told
    node.sync()
    node.unmount()
    assert not node.daemons()
