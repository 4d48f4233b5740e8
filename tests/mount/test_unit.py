# SPDX-License-Identifier: Apache-2.0
"""The unit of systemd: who the OOM killer takes first, and what the processes of a mount may do."""
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from inductorfs_testing import compare, places
from inductorfs_testing.fixtures import lack
from inductorfs_testing.processes import run, wait_until
from inductorfs_testing.takeovers import healthy

UNIT = Path(__file__).resolve().parents[2] / "systemd" / "inductorfs@.service"
USER_UNIT = UNIT.parent / "user" / UNIT.name
CAPABILITIES = ["chown", "fowner", "fsetid", "dac_override", "dac_read_search", "kill", "setgid", "setuid", "ipc_lock", "sys_ptrace",
                "lease", "sys_admin", "sys_chroot", "sys_resource"]


def settings(unit=UNIT):
    """The last value of each setting of the section Service."""
    service = unit.read_text().partition("[Service]")[2].partition("[Install]")[0]
    return dict(re.findall(r"^(\w+)=(.*)$", service, re.MULTILINE))


def score(pid):
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


def dropped():
    """For setpriv: the rights that the unit does not have."""
    known = run(["setpriv", "--list-caps"], dict(os.environ)).out.split()
    return ",".join(f"-{name}" for name in known if name not in CAPABILITIES)


def expected_scores():
    """Who may lower a score makes the supervisor's the lowest."""
    lowers = run(["sh", "-c", "echo -1000 >/proc/self/oom_score_adj"], dict(os.environ)).code == 0
    return (-1000, -900) if lowers else (score("self"), score("self") + 1)


def in_order(node):
    (supervisor,), (messenger,), worker = node.supervisors(), node.messengers(), node.worker()
    assert score(worker) > score(supervisor) and score(worker) > score(messenger), (score(worker), score(supervisor))
    return score(supervisor), score(worker)


def test_systemd_lets_the_mount_go_on_when_the_memory_killer_takes_its_worker():
    told = settings()
    assert told["OOMPolicy"] == "continue" and told["KillMode"] == "mixed"
    assert -1000 < int(told["OOMScoreAdjust"]) < 0


def test_the_journal_knows_the_daemon_by_its_name():
    assert settings()["SyslogIdentifier"] == "inductorfs"


@pytest.mark.parametrize("unit", [UNIT, USER_UNIT], ids=["system", "user"])
def test_a_wrong_configuration_is_not_tried_again(unit):
    told = settings(unit)
    assert told["RestartPreventExitStatus"] == "2" and told["Restart"] == "on-failure" and told["NotifyAccess"] == "all"


def start(unit, place, config):
    """What the unit's ExecStart runs, as systemd would, in place of the directory of configurations; and its environment."""
    words = settings(unit)["ExecStart"].replace("%f", str(place.cache)).replace("/etc/inductorfs/%i", str(config)).replace("%E/inductorfs/%i", str(config))
    env = place.env()
    return shlex.split(words.replace("$$", "$")), {**env, "PATH": f"{places.program().parent}:{os.environ['PATH']}"}


@pytest.mark.parametrize("unit", [UNIT, USER_UNIT], ids=["system", "user"])
def test_an_instance_without_a_configuration_fails_with_the_nearest_name(unit, place):
    (place.root / "var-cache-inductor.toml").write_text('remote = "none"\n')
    done = run(*start(unit, place, place.root / "var-cache-inductr"), 20)
    assert done.code == 2 and "did you mean var-cache-inductor.toml?" in done.err and 'remote = "none"' in done.err, done.err
    assert settings(unit)["ExecStartPre"], "and makes no directory"
    told = re.findall(r"^ExecStartPre=-(/bin/sh -c '.*mkdir.*') sh %f (.*)$", unit.read_text(), re.MULTILINE)
    assert told and told[0][1] == settings(unit)["ExecStart"].split()[-1]


def test_an_instance_that_says_so_is_a_local_cache(place):
    config = place.root / "local"
    config.with_suffix(".toml").write_text(f'remote = "none"\nstore = "{place.store}"\nno-also = true\n')
    words, env = start(UNIT, place, config)
    with subprocess.Popen(words, env=env) as mount:
        wait_until(lambda: compare.is_mounted(place.cache), 30, "the mount")
        assert run([places.program(), "status", place.cache, "--json"], place.env(), 20).out.count('"configured": false') == 1
        assert run([places.program(), "unmount", place.cache], place.env(), 20).code == 0
        assert mount.wait(30) == 0


def test_a_user_may_run_fusermount():
    """Its set-user-id bit counts for nothing where a process may get no new privileges, which most options of a sandbox imply for a user."""
    assert not [name for name in settings(USER_UNIT)
                if name.startswith(("NoNewPrivileges", "Private", "Protect", "Restrict", "SystemCall", "Lock", "Memory"))]


def test_the_unit_bounds_what_its_processes_may_do():
    told = settings()
    assert told["NoNewPrivileges"] == "yes"
    assert sorted(told["CapabilityBoundingSet"].split()) == sorted(f"CAP_{name.upper()}" for name in CAPABILITIES)
    # systemd before 254 has no name for the three together (@sandbox).
    assert told["SystemCallFilter"] == "@system-service @mount landlock_create_ruleset landlock_add_rule landlock_restrict_self"
    assert told["SystemCallErrorNumber"] == "EPERM"
    # Nobody knows the devices of all GPU drivers, so every character device is allowed.
    assert told["DevicePolicy"] == "closed" and told["DeviceAllow"] == "char-* rw"
    assert told["ProtectClock"] == "yes"
    # A mount namespace of its own would hide the mount from everybody else.
    assert not [name for name in told if name.startswith(("Private", "ReadOnly", "ReadWrite", "Inaccessible", "Bind", "Temporary"))
                or name in ("ProtectSystem", "ProtectHome", "ProtectKernelTunables", "ProtectKernelModules", "ProtectKernelLogs",
                            "ProtectControlGroups", "ProtectProc", "ProcSubset", "MountFlags", "RootDirectory", "DynamicUser")]


@pytest.mark.parametrize("source", [UNIT, USER_UNIT], ids=["system", "user"])
def test_systemd_accepts_the_unit(tmp_path, source):
    verify = shutil.which("systemd-analyze")
    if verify is None:
        lack("systemd-analyze is not here")
    unit = tmp_path / "inductorfs@mnt.service"
    # Not installed here; systemd checks that each program is there.
    unit.write_text(source.read_text())
    done = run([verify, "verify", "--man=no", unit], dict(os.environ), seconds=60)
    assert done.code == 0 and str(unit) not in done.err and UNIT.name not in done.err, done.err


@pytest.mark.usefixtures("root")
def test_the_memory_killer_takes_the_worker_first(cluster):
    node = cluster.quick("a", "--crash-limit", "0")
    assert in_order(node) == expected_scores()
    healthy(node, node.kill_worker(signal.SIGKILL))
    assert in_order(node) == expected_scores()


@pytest.mark.usefixtures("root")
def test_the_worker_goes_first_without_the_right_to_lower_a_score(cluster):
    """As an ordinary user's does."""
    node = cluster.node("a", start=False)
    done = run(["setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource", places.program(), "mount", node.cache,
                "--store", node.store, "--log", node.log, *cluster.options()], node.env(), seconds=30)
    assert done.code == 0, done.err
    supervisor, _ = in_order(node)
    assert supervisor == score("self")
    healthy(node, node.kill_worker(signal.SIGKILL))
    in_order(node)


@pytest.mark.usefixtures("root")
def test_a_worker_of_root_gets_no_new_privileges_without_the_unit(cluster):
    """The next worker neither. What it needs works all the same: other tests mount as root by hand."""
    node = cluster.quick("a")
    for _ in range(2):
        pid = node.worker()
        assert re.search(r"^NoNewPrivs:\t1$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        node.kill_worker()
        node.next_worker(pid)


@pytest.mark.usefixtures("root")
def test_a_mount_works_with_the_rights_of_the_unit_only(cluster):
    node = cluster.node("a", start=False)
    command = ["setpriv", "--no-new-privs", f"--bounding-set={dropped()}", f"--inh-caps={dropped()}", places.program(), "mount", node.cache,
               "--store", node.store, "--log", node.log, *cluster.options()]
    done = run(command, node.env(), seconds=30)
    assert done.code == 0, done.err
    directory = node.cache / "d"
    directory.mkdir(mode=0o755)
    os.chown(directory, 12, 34)
    os.chmod(directory, 0o2775)
    assert directory.stat().st_mode & 0o7777 == 0o2775
    (directory / "x").write_text("x")
    assert (directory / "x").stat().st_gid == 34
    os.mkfifo(node.cache / "fifo")
    healthy(node, node.kill_worker(signal.SIGKILL))
    assert (directory / "x").read_text() == "x"
    status = Path(f"/proc/{node.worker()}/status").read_text()
    assert re.search(r"^NoNewPrivs:\t1$", status, re.MULTILINE)
    bare = os.stat(node.root).st_dev
    node.kill_daemon()
    done = run(command, node.env(), seconds=30)
    assert (done.code, done.err) == (0, "") and compare.mounts_below(node.root) == [str(node.cache)]
    assert (directory / "x").read_text() == "x" and os.stat(node.cache).st_dev != bare
    node.unmount()


@pytest.mark.usefixtures("root")
def test_a_worker_without_the_password_file_serves_without_the_remote(cluster, tmp_path):
    """The file of a credential goes with its unit; a job that uses the mount must not pay for that."""
    password = tmp_path / "password"
    password.write_text("any")
    node = cluster.node("a", start=False)
    done = run([places.program(), "mount", node.cache, "--store", node.store, "--log", node.log, "--remote", "unix:///nonexistent/socket",
                "--password-file", password, *cluster.options()], node.env(), seconds=30)
    assert done.code == 0, done.err
    (node.cache / "kept").write_text("x")
    password.unlink()
    healthy(node, node.kill_worker())
    assert (node.cache / "kept").read_text() == "x"
    assert "cannot read the password file" in json.dumps(node.status()["remote"])
