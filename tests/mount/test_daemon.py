# SPDX-License-Identifier: Apache-2.0
"""The daemon and its commands: users, signals, further places, queries, configuration, secrets, and that nothing is left."""
import json
import os
import pwd
import signal
import subprocess
from pathlib import Path

import pytest
from inductorfs_testing import artefacts, compare, mounts, places
from inductorfs_testing.processes import Job, besides_waiting, run, wait_until

PROGRAM = places.program()
needs_root = pytest.mark.usefixtures("root")
NOBODY = 65534


def mount(cluster, node, *more, **environment):
    """Only what is given: no --no-also."""
    facts = cluster.options()[:2]
    return run([PROGRAM, "mount", node.cache, "--store", node.store, "--log", node.log, "--remote", cluster.redis.url, *facts,
                *more], node.env(**environment), seconds=30)


def nothing_is_left(node):
    assert compare.mounts_below(node.root) == []
    wait_until(lambda: not node.processes(), 10, "the daemon's end")


# ---- life

def test_mount_returns_when_it_answers_and_unmount_when_it_is_gone(cluster, place):
    for _ in range(5):
        place.start(*cluster.options())
        (place.cache / "x").write_text("x")
        place.unmount()
        nothing_is_left(place)
        assert os.listdir(place.cache) == []


def test_the_daemon_has_no_terminal_and_holds_no_directory(cluster, place):
    place.start(*cluster.options())
    (pid,) = place.daemons()
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert {os.readlink(f"/proc/{pid}/fd/{number}") for number in range(3)} == {"/dev/null"}
    assert os.getsid(pid) != os.getsid(0)


def foreground(cluster, node, *more):
    job = Job([PROGRAM, "mount", node.cache, "--foreground", "--store", node.store, "--remote", cluster.redis.url,
               *cluster.options(*more)], node.env(), node.root / "jobs", "foreground")
    wait_until(lambda: "mount.ready " in (node.root / "jobs" / "foreground.err").read_text(), 20, "the mount")
    return job


def journaled(cluster, node, *more):
    """A foreground mount whose standard error is what systemd says is the journal, and that file."""
    path = node.root / "journal"
    with open(path, "w") as file:
        found = os.fstat(file.fileno())
        daemon = subprocess.Popen([PROGRAM, "mount", node.cache, "--foreground", "--store", node.store, *cluster.options(*more)],
                                  env=node.env(JOURNAL_STREAM=f"{found.st_dev}:{found.st_ino}"), stderr=file)
    return daemon, path


def test_lines_for_the_journal_have_a_priority_and_no_time(cluster, place):
    daemon, path = journaled(cluster, place, "--remote", "redis://127.0.0.1:1/0")
    wait_until(lambda: "info mount.ready " in path.read_text(), 20, "the mount")
    os.kill(place.worker(), signal.SIGKILL)
    wait_until(lambda: "info mount.resumed " in path.read_text(), 20, "the next worker")
    daemon.terminate()
    assert daemon.wait(30) == 0
    lines = path.read_text().splitlines()
    priorities = {"debug": "<7>", "info": "<6>", "warning": "<4>", "error": "<3>"}
    for line in lines:
        level = line[3:].split(" ", 1)[0]
        assert line[:3] == priorities.get(level), line
    assert any(line.startswith("<4>warning mount.warning ") for line in lines)
    assert any(line.startswith("<3>error supervisor.worker_crashed ") for line in lines), "the supervisor's"


def test_a_start_that_fails_is_told_once(cluster, place):
    (place.cache / "precious").touch()
    daemon, path = journaled(cluster, place)
    assert daemon.wait(30) == 1
    (line,) = [line for line in path.read_text().splitlines() if "is not empty" in line]
    assert line.startswith("<3>inductorfs: ")
    done = run([PROGRAM, "mount", place.cache, "--foreground", "--store", place.store, *cluster.options()], place.env(), seconds=30)
    (line,) = [line for line in done.err.splitlines() if "is not empty" in line]
    assert line.startswith("inductorfs: ")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_foreground_mount_cleanly(cluster, place, number):
    job = foreground(cluster, place)
    name = artefacts.write_graph(place.cache, "k", "value").relative_to(place.cache)
    os.kill(job._child.pid, number)
    done = job.wait(20)
    assert done.code == 0
    assert "mount.stopped" in done.err
    nothing_is_left(place)
    place.start(*cluster.options())
    assert (place.cache / name).read_bytes() == b"value"


def test_a_signal_to_a_mount_in_use_detaches_it(cluster, place):
    job = foreground(cluster, place)
    (place.cache / "held").write_text("x")
    with open(place.cache / "held", encoding="ascii"):
        os.kill(job._child.pid, signal.SIGTERM)
        wait_until(lambda: job.running and compare.is_mounted(place.cache), 5, "the patience")
        os.kill(job._child.pid, signal.SIGTERM)
        assert job.wait(20).code == 0
        assert not compare.is_mounted(place.cache)
    nothing_is_left(place)


def test_hangup_reopens_the_log(cluster, place):
    place.start(*cluster.options())
    (pid,) = place.daemons()
    place.log.rename(place.root / "old.log")
    os.kill(pid, signal.SIGHUP)
    wait_until(lambda: place.log.exists() and "mount.log_reopened" in place.log.read_text(), 10, "the new log")
    (place.cache / "x").write_text("still here")
    assert place.daemons() == [pid]


def test_unmount_of_a_mount_in_use_is_refused_and_lazy_is_not(cluster, place):
    place.start(*cluster.options())
    (place.cache / "held").write_text("x")
    with open(place.cache / "held", encoding="ascii") as held:
        done = place.cli("unmount", place.cache)
        assert done.code == 1
        assert done.err.count("\n") == 1 and "in use" in done.err and str(os.getpid()) in done.err
        assert compare.is_mounted(place.cache) and held.read() == "x"
        done = place.cli("unmount", place.cache, "--lazy")
        assert (done.code, done.err) == (0, "")
        assert not compare.is_mounted(place.cache)
    nothing_is_left(place)


def test_umount_by_hand_ends_the_daemon(cluster, place):
    place.start(*cluster.options())
    subprocess.run(["umount", place.cache], check=True, timeout=20)
    nothing_is_left(place)


def test_the_mount_has_owner_and_mode_of_its_directory(cluster, place):
    place.cache.chmod(0o1777)
    place.start(*cluster.options())
    assert place.cache.stat().st_mode & 0o7777 == 0o1777


@needs_root
def test_the_mount_has_owner_and_mode_that_its_directory_got_between_two_mounts(cluster, place):
    place.start(*cluster.options())
    (place.cache / "kept").write_text("kept")
    place.unmount()
    place.cache.chmod(0o1777)
    os.chown(place.cache, NOBODY, NOBODY)
    place.start(*cluster.options())
    seen = place.cache.stat()
    assert (seen.st_mode & 0o7777, seen.st_uid, seen.st_gid) == (0o1777, NOBODY, NOBODY)
    assert (place.cache / "kept").stat().st_uid == os.geteuid()


def test_a_mode_that_the_mount_got_stays_when_a_worker_dies(cluster, place):
    place.start(*cluster.options())
    place.cache.chmod(0o750)
    before = place.status()["pid"]
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: place.status()["pid"] != before, 10, "the next worker")
    assert place.cache.stat().st_mode & 0o7777 == 0o750


# ---- users

@needs_root
def test_an_ordinary_user_mounts_through_fusermount(cluster):
    """In a mount namespace with a /dev/fuse that everybody may open, as hosts with FUSE have it."""
    os.chmod(cluster.directory, 0o755)
    os.chmod(cluster.redis.directory, 0o755)
    os.chmod(cluster.redis.socket, 0o777)
    writer = cluster.node("writer", start=False)
    writer.cache.chmod(0o1777)  # what lies in a directory that is root's alone is for root
    writer.start(*cluster.options())
    name = artefacts.write_graph(writer.cache, "k", "value").relative_to(writer.cache)
    writer.sync()
    node = cluster.node("nobodys", start=False)
    for path in (node.root, node.cache, node.store, node.home, node.tmp):
        os.chown(path, NOBODY, NOBODY)
    program, device = places.copy_programs(cluster.directory), cluster.directory / "fuse"
    script = node.root / "script"
    script.write_text(f"""set -eu
{program} mount {node.cache} --store {node.store} --remote {cluster.redis.url} {' '.join(map(str, cluster.options()))}
grep -c ' {node.cache} fuse.inductorfs .*user_id={NOBODY}' /proc/mounts
cd {node.cache}
i=0; while [ $i -lt 200 ] && ! [ -e {name} ]; do i=$((i+1)); sleep 0.05; done
cat {name}; echo
echo mine > own; stat -c '%u %a' own; mkdir d; mv own d; rm -r d
cd /
{program} status {node.cache} | grep -c reachable
{program} unmount {node.cache}
grep -c {node.cache} /proc/mounts || true
""")
    setup = f"mknod {device} c 10 229; chmod 666 {device}; mount --bind {device} /dev/fuse; umask 022; exec \"$@\""
    done = run(["unshare", "-m", "sh", "-c", setup, "sh", "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
                "sh", script], node.env(USER="nobody", LOGNAME="nobody"), seconds=60)
    assert (done.code, besides_waiting(done.err)) == (0, "")
    assert done.out.split("\n") == ["1", "value", f"{NOBODY} 644", "1", "0", ""]
    nothing_is_left(node)


@needs_root
def test_other_users_use_the_mount_of_root(cluster, place):
    os.chmod(cluster.directory, 0o755)
    place.cache.chmod(0o1777)
    place.start(*cluster.options())
    (place.cache / "secret").write_text("root's")
    (place.cache / "secret").chmod(0o600)
    script = f"cd {place.cache} && echo theirs > own && stat -c %u own && ! cat secret 2>/dev/null && ! rm -f secret 2>/dev/null"
    done = run(["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "sh", "-c", script], seconds=30)
    assert (done.code, done.out) == (0, f"{NOBODY}\n"), done.err


# ---- further places

@needs_root
def test_also_binds_appear_and_go(cluster, place):
    elsewhere = place.root / "some" / "where"
    done = mount(cluster, place, "--also", f"precompiled_headers={elsewhere}")
    assert (done.code, done.err) == (0, "")
    (elsewhere / "x").write_text("through the bind")
    assert (place.cache / "precompiled_headers" / "x").read_text() == "through the bind"
    (place.cache / "precompiled_headers" / "y").write_text("through the mount")
    assert (elsewhere / "y").read_text() == "through the mount"
    told = place.status()["also"][0]
    assert told["path"] == str(elsewhere) and told["name"] == "precompiled_headers"
    place.unmount()
    assert os.listdir(elsewhere) == [], "the directory that was made stays"
    nothing_is_left(place)


@needs_root
def test_also_is_what_torch_keeps_in_its_default_directory(cluster, place):
    assert mount(cluster, place).code == 0
    default = place.tmp / f"torchinductor_{pwd.getpwuid(os.getuid()).pw_name}"
    assert compare.mounts_below(place.tmp) == [
        str(default / name) for name in ("precompiled_headers", "cache/should_pad", "cache/inductor_on_disk_cache")]
    place.unmount()
    assert not any(files for _, _, files in os.walk(place.tmp))
    assert mount(cluster, place, "--no-also").code == 0
    assert place.status()["also"] == [] and compare.mounts_below(place.tmp) == []


@needs_root
def test_also_keeps_what_was_at_the_place(cluster, place):
    elsewhere = place.root / "there"
    elsewhere.mkdir()
    (elsewhere / "old").write_text("old")
    assert mount(cluster, place, "--also", f"precompiled_headers={elsewhere}").code == 0
    assert not (elsewhere / "old").exists()
    place.unmount()
    assert (elsewhere / "old").read_text() == "old"


@needs_root
def test_binds_of_a_killed_daemon_are_replaced(cluster, place):
    elsewhere = place.root / "there"
    assert mount(cluster, place, "--also", f"precompiled_headers={elsewhere}").code == 0
    place.kill_daemon()
    assert mount(cluster, place, "--also", f"precompiled_headers={elsewhere}").code == 0
    (elsewhere / "x").write_text("x")
    assert len(compare.mounts_below(elsewhere)) == 1
    place.unmount()
    nothing_is_left(place)


@needs_root
def test_lazy_unmount_of_a_dead_mount_takes_its_binds(cluster, place):
    assert mount(cluster, place, "--also", f"precompiled_headers={place.root / 'there'}").code == 0
    place.kill_daemon()
    assert place.cli("unmount", place.cache, "--lazy").code == 0
    assert compare.mounts_below(place.root) == []


# ---- a mount that a container was given

ASK_ALL = 'for word in status sync unmount "unmount --lazy" explain; do "$1" $word "$2"; echo "$? $word"; done'


@needs_root
@pytest.mark.parametrize("how", [("--mount",), ("--mount", "--pid", "--fork", "--mount-proc")])
@pytest.mark.parametrize("user", [0, NOBODY])
def test_a_container_is_not_told_to_unmount_what_its_host_serves(cluster, place, how, user):
    """The daemon's socket and, mostly, its processes are not seen there."""
    os.chmod(cluster.directory, 0o755)
    program = places.copy_programs(cluster.directory)
    place.start(*cluster.options())
    done = run(["unshare", *how, "sh", "-c", f"mount -t tmpfs none /run; exec setpriv --reuid={user} \"$@\"", "sh",
                "sh", "-c", ASK_ALL, "sh", program, place.cache], place.env(), seconds=60)
    words = ["status", "sync", "unmount", "unmount --lazy", "explain"]
    assert done.out.splitlines() == [f"1 {word}" for word in words]
    assert [("served from outside" in line, "--lazy" in line) for line in done.err.splitlines()] == [(True, False)] * len(words)
    assert place.status()["pid"] in place.daemons()
    done = run(["unshare", *how, "sh", "-c", f"mount -t tmpfs none /run; exec setpriv --reuid={user} \"$@\"", "sh",
                program, "mount", place.cache, "--store", cluster.directory / "other"], place.env(), seconds=60)
    assert done.code == 1 and "served from outside of this container" in done.err and "unmount" not in done.err, done.err
    done = run(["unshare", *how, "sh", "-c", f"mount -t tmpfs none /run; exec setpriv --reuid={user} \"$@\"", "sh",
                program, "doctor", place.cache], place.env(), seconds=60)
    assert f"note     {place.cache} cannot be asked here" in done.out and " 0 bad" in f" {done.out.splitlines()[-1]}", done.out


@needs_root
def test_a_dead_mount_in_a_container_is_the_hosts_to_replace(cluster, place):
    place.start(*cluster.options())
    place.kill_daemon()
    done = run(["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /run; "$1" status "$2"', "sh", PROGRAM, place.cache],
               place.env(), seconds=30)
    assert done.code == 1 and "has ended" in done.err and "on its host" in done.err


# ---- queries

def test_status_tells_what_is_going_on(cluster, place):
    place.start(*cluster.options())
    artefacts.write_graph(place.cache, "k", "value")
    place.sync()
    told = place.status()
    assert told["mountpoint"] == str(place.cache) and told["pid"] == place.daemons()[0]
    assert told["remote"]["reachable"] is True and told["remote"]["version"].startswith(("7.", "8."))
    assert told["catalog"]["entries"] == 1 and told["catalog"]["queued"] == 0
    text = place.cli("status", place.cache).out
    assert str(place.cache) in text and "reachable" in text and "1 entries" in text


def test_sync_tells_what_is_not_published(cluster, place):
    place.start(*cluster.options())
    done = place.cli("sync", place.cache, "--json")
    told = {"synced": True, "published": 0, "kept": 0, "why": [], "nothing_shared": False}
    assert (done.code, json.loads(done.out)) == (0, told)
    cluster.redis.kill()
    artefacts.write_graph(place.cache, "k", "value")
    done = place.cli("sync", place.cache, "--json", "--timeout", "1")
    assert done.code == 1 and set(json.loads(done.out)) == {"error", "code"}
    done = place.cli("sync", place.cache, "--timeout", "1")
    assert done.code == 1 and done.err.count("\n") == 1 and "fxgraph" in done.err
    cluster.redis.start()
    place.sync()
    done = place.cli("sync", place.cache)
    assert (done.code, done.out) == (0, "published 1 group\n")


@pytest.mark.parametrize("python, why", [("/usr/bin/python3", "/usr/bin/python3 has no torch"), ("/no/python", "/no/python: no such")])
def test_mount_status_and_sync_say_that_nothing_is_shared(cluster, place, python, why):
    done = place.cli("mount", place.cache, "--store", place.store, "--log", place.log, "--remote", cluster.redis.url,
                     *mounts.QUICK, "--python", python)
    assert done.code == 0 and done.out == ""
    assert done.err.startswith("inductorfs: warning: nothing that torch makes will be shared") and done.err.count("\n") == 1
    assert why in done.err and "--python" in done.err
    assert any(why in warning for warning in place.status()["warnings"])
    assert why in place.cli("status", place.cache).out
    artefacts.write_graph(place.cache, "k", "value")
    done = place.cli("sync", place.cache)
    assert done.code == 3 and done.err.count("\n") == 1
    assert done.err.startswith(f"inductorfs: nothing that was written is shared: {place.cache}: ")
    assert done.out.startswith("published 0 groups; kept 1 artefact on this host: ") and done.out.count("\n") == 1
    told = json.loads(place.cli("sync", place.cache, "--json").out)
    assert told["synced"] is True and told["kept"] == 1 and told["why"] and told["nothing_shared"] is True
    assert mounts.published(cluster) == []


@pytest.mark.parametrize("what", ["local", "published", "remote", "absent", "private", "directory"])
def test_explain_tells_why(cluster, place, what):
    place.start(*cluster.options("--prefetch", "0"))  # what is remote stays so between two questions
    name = Path(artefacts.graph("k", "value"))
    if what == "local":
        cluster.redis.kill()
    if what in ("local", "published"):
        artefacts.write_graph(place.cache, "k", "value")
    if what == "published":
        place.sync()
    if what in ("remote", "directory"):
        other = cluster.quick("b")
        artefacts.write_graph(other.cache, "k", "value")
        other.sync()
        mounts.appears(place.cache / "fxgraph")
    if what == "private":
        name = Path("locks/x.lock")
        (place.cache / "locks").mkdir()
        (place.cache / name).write_text("")
    if what == "directory":
        name = name.parent
    if what == "local":
        wait_until(lambda: json.loads(place.cli("status", place.cache, "--json").out)["catalog"]["queued"] == 1, what="the seal")
    done = place.cli("explain", place.cache / name, "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told["visible"] is (what != "absent") and told["why"]
    assert told["family"] == ("lock" if what == "private" else "fxgraph"), "of the directory of a key, too"
    if what == "published":
        assert told["publish"].startswith("published") and len(told["digest"]) == 64
    if what == "local":
        assert told["publish"].startswith("queued")
    text = place.cli("explain", place.cache / name).out
    assert told["family"] in text and told["why"] in text


def test_fingerprint_is_read_back(cluster, place):
    first = place.cli("fingerprint", "--json").out
    assert set(json.loads(first)["facets"]) == set(artefacts.FACETS)
    (place.root / "facts.json").write_text(first)
    assert json.loads(place.cli("fingerprint", "--json", "--fingerprint", place.root / "facts.json").out)["facets"] == \
        json.loads(first)["facets"]
    assert "fxgraph" in place.cli("fingerprint").out


def test_version():
    done = run([PROGRAM, "--version"])
    assert done.code == 0 and done.out.startswith("inductorfs ")


# ---- configuration and secrets

def test_the_command_line_wins_over_the_file(cluster, place):
    file = place.root / "node.toml"
    file.write_text(f'remote = "unix:///nonexistent"\nstore = "{place.store}"\nstore-limit = "80M"\nno-also = true\n'
                    f'log = "{place.log}"\nprefix = "other"\nwriters = "all"\n')
    facts = cluster.options()[:2]
    done = run([PROGRAM, "mount", place.cache, "--config", file, "--remote", cluster.redis.url, *facts], place.env(), 30)
    assert (done.code, done.err) == (0, "")
    told = place.status()
    assert told["remote"]["reachable"] is True and told["store"]["size_limit"] == 80 << 20
    artefacts.write_graph(place.cache, "k", "value")
    place.sync()
    assert mounts.published(cluster) and all(key.startswith(b"other:") for key in cluster.redis.keys())


@pytest.mark.parametrize(("text", "told"), [("nonsense = 1\n", "nonsense"), ("remote = [", ":1"), ("threads = \"many\"\n", "threads"),
                                            ("store-limit = true\n", "store-limit")])
def test_a_bad_file_names_its_line(cluster, place, text, told):
    (place.root / "node.toml").write_text(text)
    done = run([PROGRAM, "mount", place.cache, "--config", place.root / "node.toml"], place.env(), 20)
    assert done.code in (1, 2)
    assert done.err.count("\n") == 1 and str(place.root / "node.toml") in done.err and told in done.err


def test_a_password_is_nowhere_to_be_seen(cluster, place):
    secret = "correct-horse-battery"
    cluster.redis.command("CONFIG", "SET", "requirepass", secret)
    (place.root / "password").write_text(secret + "\n")
    place.remote = cluster.redis.url
    place.start(*cluster.options("--password-file", place.root / "password", "--log-level", "debug"))
    artefacts.write_graph(place.cache, "k", "value")
    place.sync()
    (pid,) = place.daemons()
    shown = [place.log.read_text(), json.dumps(place.status()), place.cli("status", place.cache).out,
             Path(f"/proc/{pid}/cmdline").read_bytes().decode(), Path("/proc/mounts").read_text(errors="surrogateescape")]
    assert all(secret not in text for text in shown)
    stored = [path for path in place.store.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert stored == []


def test_a_password_in_the_url_is_hidden(cluster, place):
    secret = "correct-horse-battery"
    cluster.redis.command("CONFIG", "SET", "requirepass", secret)
    place.remote = f"unix://:{secret}@{cluster.redis.socket}"
    started = place.cli("mount", place.cache, "--store", place.store, "--log", place.log, "--remote", place.remote,
                        *cluster.options())
    assert secret not in started.err + started.out
    if started.code != 0:
        pytest.fail(started.err)
    place.sync()
    (pid,) = place.daemons()
    shown = [place.log.read_text(), json.dumps(place.status()), Path(f"/proc/{pid}/cmdline").read_bytes().decode()]
    assert all(secret not in text for text in shown)


def test_files_of_the_daemon_are_not_for_everybody(cluster, place):
    place.start(*cluster.options())
    artefacts.write_graph(place.cache, "k", "value")
    place.sync()
    assert place.store.stat().st_mode & 0o022 == 0
    open_to_all = [path for path in place.store.rglob("*") if path.is_file() and path.stat().st_mode & 0o002]
    assert open_to_all == []
