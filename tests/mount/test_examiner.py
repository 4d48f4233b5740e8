# SPDX-License-Identifier: Apache-2.0
"""The process that looks at others for the worker: it is killed, stopped, and has nothing of the mount's."""
import contextlib
import ctypes
import errno
import os
import signal
import struct
import subprocess
from pathlib import Path

import pytest
from inductorfs_testing import environments, mounts
from inductorfs_testing.environments import Writer
from inductorfs_testing.node import files_of
from inductorfs_testing.places import program
from inductorfs_testing.processes import run, wait_until

pytestmark = pytest.mark.usefixtures("root")
NOBODY = 65534
# linux/capability.h: DAC_OVERRIDE, DAC_READ_SEARCH, KILL, SETGID, SETUID, SYS_PTRACE, LEASE.
RIGHTS = (1, 2, 5, 6, 7, 19, 28)


@pytest.fixture
def packages(cluster):
    cluster.directory.chmod(0o755)
    return environments.make(cluster.directory / "environment")


def mount(cluster, *options):
    """As the documents say: nothing is declared, each job brings its environment along."""
    node = cluster.node("a", start=False)
    node.cache.chmod(0o1777)
    return node.start("--writers", "learned", "--trust", "all", *options, *mounts.QUICK)


def examiner(node, but=()):
    return wait_until(lambda: [pid for pid in node.examiners() if pid not in but], what="an examiner")[0]


def sync(node):
    done = node.cli("sync", node.cache, "--timeout", "60", seconds=70)
    assert done.code == 0, done


@contextlib.contextmanager
def no_examiner(node):
    """None looks, and none is started: whoever starts them stands still."""
    supervisor = node.supervisors()[0]
    os.kill(supervisor, signal.SIGSTOP)
    try:
        for pid in node.examiners():
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not node.examiners(), what="the end of the examiner")
        yield
    finally:
        os.kill(supervisor, signal.SIGCONT)


def test_what_is_written_while_examiners_are_killed_is_shared(cluster, packages):
    """Each program is asked about by whichever there is; no one notices."""
    node = mount(cluster)
    shared, killed = [], []
    for round_ in range(4):
        with Writer(node.cache, packages, "", NOBODY) as writer:
            shared.append(writer.write(f"print('before {round_}')"))
            sync(node)
            killed.append(examiner(node, killed))
            os.kill(killed[-1], signal.SIGKILL)
            shared.append(writer.write(f"print('after {round_}')"))
            sync(node)
    assert mounts.published(cluster) == sorted(shared), node.log.read_text()
    assert len(set(killed)) == 4 and node.counters()["writers.identified"] > 0
    wait_until(lambda: node.log.read_text().count("supervisor.companion_ended name=examiner") == 4, what="the log to tell of each end")
    node.unmount()
    assert not node.processes()


def test_an_examiner_that_stands_still_is_replaced_and_holds_nobody_up(cluster, packages):
    node = mount(cluster)
    with Writer(node.cache, packages, "", NOBODY) as writer:
        first = writer.write("print('first')")
        sync(node)
    stopped = examiner(node)
    os.kill(stopped, signal.SIGSTOP)
    with Writer(node.cache, packages, "", NOBODY) as writer:
        second = writer.write("print('while it stands still')")
        sync(node)
    done = run(["stat", node.cache / first], seconds=20)
    assert done.code == 0 and done.seconds < 5, done
    examiner(node, [stopped])
    assert stopped not in node.examiners()
    assert "mount.companion_replaced name=examiner" in node.log.read_text()
    assert mounts.published(cluster) == sorted([first, second]), node.log.read_text()
    node.unmount()


def test_a_program_that_no_examiner_can_look_at_keeps_what_it_makes(cluster, packages):
    """It is told that it is not known, and stays so: what it has made is there for it. One that was known stays known."""
    node = mount(cluster)
    with Writer(node.cache, packages, "", NOBODY) as known:
        mine = known.write("print('mine')")
        sync(node)
        with contextlib.ExitStack() as ended:
            with no_examiner(node):
                writer = ended.enter_context(Writer(node.cache, packages, "", NOBODY))
                for index in range(3):
                    kept = writer.write(f"print('nobody looks {index}')")
                    assert writer.read(kept) == f"print('nobody looks {index}')"
                known.write("print('again')")
            examiner(node)
            assert writer.read(kept) == "print('nobody looks 2')"
            assert known.read(mine) == "print('mine')"
    assert "host.job_unknown" in node.log.read_text()
    node.unmount()
    assert not node.processes()


def test_each_worker_has_its_own(cluster, packages):
    """What a program was told stays: it finds what it has written."""
    node = mount(cluster, "--crash-limit", "0")
    with Writer(node.cache, packages, "", NOBODY) as writer:
        name = writer.write("print('mine')")
        sync(node)
        seen = [examiner(node)]
        for _ in range(3):
            node.next_worker(node.kill_worker())
            seen.append(examiner(node, seen))
            assert (node.cache / name).stat().st_size > 0
            writer.write(f"print({len(seen)})")
            sync(node)
        assert len(mounts.published(cluster)) == 4, node.log.read_text()
    wait_until(lambda: len(node.examiners()) == 1, what="the end of those of earlier workers")
    node.unmount()
    assert not node.processes()


def without_filters():
    """As a container that allows no filter of system calls: prctl(PR_SET_SECCOMP) says EPERM from now on (linux/seccomp.h, filter.h)."""
    libc = ctypes.CDLL(None, use_errno=True)
    number = {"x86_64": 157, "aarch64": 167}[os.uname().machine]
    steps = [(0x20, 0, 0, 0), (0x15, 0, 3, number), (0x20, 0, 0, 16), (0x15, 0, 1, 22), (0x06, 0, 0, 0x00050000 | errno.EPERM), (0x06, 0, 0, 0x7fff0000)]
    filter_ = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    whole = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(filter_)))
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, whole, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def test_it_is_told_where_it_can_have_no_filter(cluster, packages):
    node = cluster.node("a", start=False)
    done = subprocess.run([program(), "mount", node.cache, "--store", node.store, "--log", node.log, *cluster.options()], env=node.env(),
                          preexec_fn=without_filters, capture_output=True, text=True, timeout=60)
    told = "who looks at processes may make all system calls: the kernel has no filters of system calls, or the container allows none"
    assert done.returncode == 0 and told in done.stderr, done
    assert any(told in warning for warning in node.status()["warnings"]) and told in node.log.read_text()
    node.unmount()


def test_it_has_nothing_of_the_mounts(cluster, packages):
    """No device, store, log, memory of takeovers or connection to the cluster: one socket, and one for each question."""
    node = mount(cluster)
    with Writer(node.cache, packages, "", NOBODY) as writer:
        writer.write("print('x')")
        sync(node)
    pid = examiner(node)
    files = list(files_of(pid).values())
    strangers = [name for name in files if name != "/dev/null" and not name.startswith(("socket:", "anon_inode:", "pipe:"))]
    assert not strangers, strangers
    assert "/dev/fuse" in files_of(node.worker()).values() and "/dev/fuse" not in files
    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    assert status["NoNewPrivs"] == "1"
    own = int(Path("/proc/self/status").read_text().partition("CapEff:\t")[2].split()[0], 16)
    for kind in ("CapPrm", "CapEff"):
        assert int(status[kind], 16) == own & sum(1 << number for number in RIGHTS), status[kind]
    assert int(status["CapInh"], 16) == int(status["CapAmb"], 16) == 0
    node.unmount()
