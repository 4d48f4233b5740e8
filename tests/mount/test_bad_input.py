# SPDX-License-Identifier: Apache-2.0
"""Bad input: each case ends soon, with the right exit code and one line on stderr that says what, where and the remedy;
nothing is mounted, and nothing is lost."""
import contextlib
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import threading
from pathlib import Path

import pytest
from inductorfs_testing import artefacts, compare, mounts, places
from inductorfs_testing.mounts import QuickCluster
from inductorfs_testing.processes import PATIENCE, run, wait_until

PROGRAM = places.program()
needs_root = pytest.mark.usefixtures("root")


def mount(cluster, node, *more, mountpoint=None, store=None, before=(), remote=None, env=None):
    words = [*before, PROGRAM, "mount", mountpoint or node.cache, "--store", store or node.store, "--log", node.log,
             *cluster.options(*more)]
    if remote:
        words += ["--remote", remote]
    return run(words, env or node.env(), seconds=30)


def refused(done, *told, code=1):
    assert done.code == code, (done.code, done.out, done.err)
    assert done.out == ""
    assert done.err.startswith("inductorfs: ") and done.err.endswith("\n") and done.err.count("\n") == 1, done.err
    for pattern in told:
        assert re.search(pattern, done.err), (pattern, done.err)
    assert done.seconds < 10 * PATIENCE


def not_mounted(node):
    assert compare.mounts_below(node.cache) == []
    wait_until(lambda: not node.processes(), 10, "the daemon's end")


# ---- mountpoints

def test_mountpoint_that_is_missing(cluster, place):
    missing = place.root / "none"
    refused(mount(cluster, place, mountpoint=missing), re.escape(str(missing)), "does not exist", "mkdir -p", code=2)
    not_mounted(place)


def test_mountpoint_that_is_not_empty(cluster, place):
    (place.cache / "precious").write_text("mine")
    refused(mount(cluster, place), re.escape(str(place.cache)), "not empty", "precious")
    not_mounted(place)
    assert (place.cache / "precious").read_text() == "mine"


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_mountpoint_that_is_no_directory(cluster, place, name):
    (place.root / "file").write_text("mine")
    refused(mount(cluster, place, mountpoint=place.root / name), re.escape(str(place.root / name)), "no directory",
            "name an empty directory", code=2)
    assert (place.root / "file").read_text() == "mine"


def test_mountpoint_that_is_mounted_already(cluster, place):
    place.start(*cluster.options())
    marker = artefacts.write_graph(place.cache, "k", "value")
    refused(mount(cluster, place, store=place.root / "other"), re.escape(str(place.cache)), "already mounted", "unmount it first")
    assert marker.read_bytes() == b"value"
    assert len(compare.mounts_below(place.cache)) == 1


@needs_root
def test_mountpoint_with_another_file_system(cluster, place):
    with mounts.tmpfs(place.cache):
        refused(mount(cluster, place), "another file system .tmpfs. is mounted there", f"name a directory below it, as {place.cache}/inductorfs, ")
        below = place.cache / "inductorfs"
        below.mkdir()
        assert mount(cluster, place, mountpoint=below).code == 0
        assert artefacts.write_graph(below, "k", "value").read_bytes() == b"value"
        assert run([PROGRAM, "unmount", below], place.env(), 30).code == 0


# ---- stores

def test_store_in_use(cluster, place):
    place.start(*cluster.options())
    (pid,) = place.daemons()
    other = cluster.node("b", start=False)
    refused(mount(cluster, other, store=place.store), re.escape(str(place.store)), f"in use by process {pid}",
            "end that mount or name another")
    not_mounted(other)


def test_store_of_a_newer_version(cluster, place):
    place.start(*cluster.options())
    place.unmount()
    text = (place.store / "format").read_text()
    (place.store / "format").write_text(re.sub(r"\d+", "99", text))
    refused(mount(cluster, place), re.escape(str(place.store)), "99", "upgrade inductorfs or name another", code=2)
    not_mounted(place)
    assert "99" in (place.store / "format").read_text()
    (place.store / "format").write_text("inductorfs-store 2\nwhat a newer version says besides\n")
    refused(mount(cluster, place), "has format 2, this version knows 1; upgrade inductorfs or name another", code=2)


def test_catalog_of_a_newer_version(cluster, place):
    place.start(*cluster.options())
    place.unmount()
    with contextlib.closing(sqlite3.connect(place.store / "catalog.sqlite")) as database, database:
        database.execute("UPDATE meta SET value = 99 WHERE name = 'version'")
    refused(mount(cluster, place), "catalog", "99", "newer inductorfs, or another directory")
    not_mounted(place)


@pytest.mark.parametrize("text", [b"", b"garbage", b"\0" * 100_000], ids=["empty", "garbage", "zeros"])
def test_store_whose_format_is_damaged(cluster, place, text):
    place.start(*cluster.options())
    place.unmount()
    (place.store / "format").write_bytes(text)
    refused(mount(cluster, place), re.escape(str(place.store)), "damaged", "write it anew", code=2)
    not_mounted(place)


def test_directory_that_is_no_store(cluster, place):
    (place.store / "thesis.txt").write_text("mine")
    refused(mount(cluster, place), re.escape(str(place.store)), "thesis.txt", "name an empty directory", code=2)
    assert os.listdir(place.store) == ["thesis.txt"]


def test_store_that_is_a_file(cluster, place):
    shutil.rmtree(place.store)
    place.store.write_text("mine")
    refused(mount(cluster, place), re.escape(str(place.store)), code=2)
    assert place.store.read_text() == "mine"


def test_store_within_the_mountpoint(cluster, place):
    refused(mount(cluster, place, store=place.cache / "store"), re.escape(str(place.cache)), "must not contain each other", code=2)


@pytest.mark.parametrize("damage", [b"garbage" * 1000, b"", None], ids=["garbage", "empty", "bits"])
def test_catalog_that_is_damaged_is_begun_anew(cluster, place, damage):
    """What it held comes again from the cluster, and files of this host from its disk."""
    a = place.start(*cluster.options())
    name = artefacts.write_graph(a.cache, "k", "value").relative_to(a.cache)
    a.sync()
    a.unmount()
    file = a.store / "catalog.sqlite"
    if damage is None:
        raw = bytearray(file.read_bytes())
        raw[100:len(raw):7] = b"\xff" * len(raw[100:len(raw):7])
        damage = bytes(raw)
    file.write_bytes(damage)
    a.start(*cluster.options())
    mounts.appears(a.cache / name)
    assert (a.cache / name).read_bytes() == b"value"


def test_blob_that_is_damaged_on_the_disk_is_not_read(cluster, place):
    a, b = place.start(*cluster.options()), cluster.quick("b")
    name = artefacts.write_graph(a.cache, "k", "value" * 1000).relative_to(a.cache)
    a.sync()
    mounts.appears(b.cache / name)
    b.unmount()
    assert list((b.store / "packs").glob("*")), "what is fetched and small lies in packs"
    for blob in mounts.files_of_blobs(b.store):
        blob.write_bytes(b"x" * blob.stat().st_size)
    (b.store / "state").unlink(missing_ok=True)  # as after a crash of the host: what is there is verified
    mounts.remount(b, cluster)
    mounts.appears(b.cache / name)
    assert (b.cache / name).read_bytes() == b"value" * 1000


@needs_root
def test_store_on_a_read_only_disk(cluster, place):
    with mounts.tmpfs(cluster.directory / "disk", "ro") as disk:
        refused(mount(cluster, place, store=disk / "store"), re.escape(str(disk)), "(?i)read.only", code=2)
        not_mounted(place)


@needs_root
def test_store_on_a_full_disk(cluster, place):
    with mounts.tmpfs(cluster.directory / "disk", "size=256k") as disk:
        with contextlib.suppress(OSError):
            (disk / "filler").write_bytes(b"x" * (300 << 10))
        (disk / "filler").chmod(0o600)
        refused(mount(cluster, place, store=disk / "store"), re.escape(str(disk)), "(?i)(full|space)")
        not_mounted(place)


@needs_root
def test_store_whose_disk_became_full_between_two_mounts(cluster, place):
    with mounts.tmpfs(cluster.directory / "disk", "size=4m") as disk:
        assert mount(cluster, place, store=disk / "store").code == 0
        place.unmount()
        for file in (disk / "store").glob("catalog.sqlite*"):
            file.unlink()
        free = os.statvfs(disk)
        (disk / "filler").write_bytes(b"x" * (free.f_bfree * free.f_bsize - (64 << 10)))  # room for small files, not for the catalog
        refused(mount(cluster, place, store=disk / "store"), "disk of --store is full", re.escape(str(disk / "store")), "free some space")
        not_mounted(place)


@pytest.mark.parametrize(("store", "told"), [
    ("/proc/none", "--store /proc/none cannot be made: it would lie on /proc, which is of the type proc and stores no files"),
    ("/proc/self/none", "it would lie on /proc, which is of the type proc"), ("/proc", "it would lie on /proc, which is of the type proc"),
    ("/sys/none", "which is of the type sysfs and stores no files"), ("/dev/null/none", "/dev/null is no directory"),
    ("/dev/null", "/dev/null is no directory"),
])
def test_store_where_no_directory_can_be_made(cluster, place, store, told):
    done = mount(cluster, place, store=store)
    refused(done, re.escape(told), "name a directory on a local disk", code=2)
    assert "remove" not in done.err
    not_mounted(place)


@needs_root
def test_disk_that_becomes_full_is_enospc_to_the_writer_and_reads_go_on(cluster, place):
    with mounts.tmpfs(cluster.directory / "disk", "size=8m") as disk:
        assert mount(cluster, place, store=disk / "store", remote=cluster.redis.url).code == 0
        kept = artefacts.write_graph(place.cache, "k", "value")
        with pytest.raises(OSError) as full:
            with open(place.cache / "big", "wb") as file:
                for _ in range(64):
                    file.write(os.urandom(1 << 18))
        assert full.value.errno == 28
        (warning,) = place.status()["warnings"]
        assert re.fullmatch("the disk of --store (is full|has no room for another file).*, so writes fail with ENOSPC: "
                            f"{disk}/store: free some space there, or mount with another --store", warning), warning
        assert warning in place.cli("status", place.cache).out
        with contextlib.suppress(FileNotFoundError):  # a miss at most: what is published may be evicted for the writer
            assert kept.read_bytes() == b"value"
        os.unlink(place.cache / "big")
        wait_until(lambda: not place.status()["warnings"], what="room on the disk")
        assert mounts.appears(kept).read_bytes() == b"value"
        (place.cache / "small").write_bytes(b"x" * 100_000)
        place.sync()
        place.unmount()


def test_mountpoint_in_another_mount(cluster, place):
    outer = cluster.quick("outer")
    inner = outer.cache / "inner"
    inner.mkdir()
    link = cluster.directory / "link"
    link.symlink_to(inner)
    for mountpoint in (inner, link):
        refused(mount(cluster, place, mountpoint=mountpoint), "the mountpoint must not lie in an inductorfs mount",
                f"{inner} lies in {outer.cache}: name a directory outside of it", code=2)
    assert compare.mounts_below(inner) == []


def test_store_in_another_mount(cluster, place):
    outer = cluster.quick("outer")
    link = cluster.directory / "link"
    link.symlink_to(outer.cache)
    for store in (outer.cache, outer.cache / "not" / "made", link / "store"):
        refused(mount(cluster, place, store=store), "--store must not lie in an inductorfs mount",
                f"{store} lies in {outer.cache}: name a directory outside of it", code=2)
    not_mounted(place)
    assert os.listdir(outer.cache) == []


@needs_root
def test_disk_below_the_floor_is_a_warning(cluster, place):
    with mounts.tmpfs(cluster.directory / "disk", "size=32m") as disk:
        assert mount(cluster, place, "--store-floor", "8M", store=disk / "store").code == 0
        assert place.status()["warnings"] == []
        (disk / "another's").write_bytes(bytes(28 << 20))
        (warning,) = place.status()["warnings"]
        assert re.fullmatch("the disk of --store has [0-9.]+ MiB free, less than the 8.0 MiB of --store-floor, so nothing is fetched "
                            f"from the cluster: {disk}/store: free some space there, or mount with another --store", warning), warning
        (disk / "another's").unlink()
        assert place.status()["warnings"] == []
        place.unmount()


# ---- servers

@pytest.mark.parametrize("url", ["http://localhost:6379", "redis://", "localhost:6379", "redis://host:99999", "redis://host:x",
                                 "redis://host/x", "unix://", "redis://[::1", "rediss://host/0/1", "nonsense"])
def test_wrong_url(cluster, place, url):
    done = mount(cluster, place, remote=url)
    refused(done, "(?i)(url|redis://)", code=2)
    not_mounted(place)


def test_the_password_of_a_url_is_never_shown(cluster, place):
    done = mount(cluster, place, remote="redis://user:s3cret@host:99999")
    assert "s3cret" not in done.err + done.out
    assert done.code == 2


@pytest.mark.parametrize("remote", ["redis://127.0.0.1:1/0", "unix:///nonexistent/socket", "redis://no.such.host.invalid"])
def test_server_that_is_away_is_no_error(cluster, place, remote):
    done = mount(cluster, place, remote=remote)
    assert done.code == 0 and done.err.count("\n") == 1, done.err
    assert done.err.startswith(f"inductorfs: warning: the remote cannot be reached: {remote}: "), done.err
    remedy = "check that the server runs, and that this user may write to its socket" if remote.startswith("unix:") else "check host, port and network"
    assert done.err.endswith(f"; the mount serves what is on this host, and shares when the remote answers: {remedy}\n"), done.err
    assert done.seconds < 5 * PATIENCE
    assert artefacts.write_graph(place.cache, "k", "value").read_bytes() == b"value"
    assert place.status()["remote"]["reachable"] is False
    failed = run([PROGRAM, "sync", place.cache, "--timeout", "1"], place.env(), seconds=30)
    refused(failed)
    place.unmount()


def test_a_remote_that_is_away_and_an_environment_without_torch_are_two_warnings(place):
    done = place.cli("mount", place.cache, "--store", place.store, "--log", place.log, "--remote", "redis://:s3cret@127.0.0.1:1/0",
                     *mounts.QUICK, "--python", "/usr/bin/python3")
    first, second = done.err.splitlines()
    assert done.code == 0 and done.out == ""
    assert first.startswith("inductorfs: warning: nothing that torch makes will be shared")
    assert second.startswith("inductorfs: warning: the remote cannot be reached: redis://***@127.0.0.1:1/0: ")
    assert "s3cret" not in place.log.read_text()
    place.unmount()


@pytest.mark.parametrize("given", [b"wrong\n", b"", b"\xff\n\n", None], ids=["wrong", "empty", "bytes", "none"])
def test_wrong_password(cluster, place, given):
    cluster.redis.command("CONFIG", "SET", "requirepass", "right")
    more = []
    if given is not None:
        file = place.root / "password"
        file.write_bytes(given)
        more = ["--password-file", file]
    done = mount(cluster, place, *more, "--require-remote", remote=cluster.redis.url)
    refused(done, re.escape(cluster.redis.url) + "|" + re.escape(str(place.root)), "(?i)password", code=2)
    not_mounted(place)


@pytest.mark.parametrize("option", ["--config", "--password-file"])
def test_a_file_that_is_a_fifo_is_not_waited_for(cluster, place, option):
    fifo = place.root / "fifo"
    os.mkfifo(fifo)
    refused(mount(cluster, place, option, fifo, remote=cluster.redis.url), re.escape(str(fifo)), "is not a regular file; name a",
            code=2)
    not_mounted(place)


def test_password_file_that_is_missing(cluster, place):
    missing = place.root / "none"
    refused(mount(cluster, place, "--password-file", missing, remote=cluster.redis.url), re.escape(str(missing)), "it does not exist$",
            code=2)
    missing.write_text("\n")
    refused(mount(cluster, place, "--password-file", missing, remote=cluster.redis.url), re.escape(str(missing)), "empty; write", code=2)


@pytest.mark.parametrize("option", ["--ca-file", "--cert-file", "--key-file"])
def test_certificate_that_is_missing(cluster, place, option):
    """Although the server is away, so that nobody needs it yet."""
    missing = place.root / "none.pem"
    refused(mount(cluster, place, option, missing, remote="rediss://127.0.0.1:1"), re.escape(str(missing)), option, "it does not exist$", code=2)
    not_mounted(place)


@contextlib.contextmanager
def server(answer):
    """A TCP server. answer: what it says to each INFO (and OK to all else); bytes it says to anything; None: silence."""
    def reply(data):
        if not isinstance(answer, str):
            return answer
        commands = re.findall(rb"\*\d+\r\n\$\d+\r\n(\w+)", data)
        info = f"${len(answer)}\r\n{answer}\r\n".encode()
        return b"".join(info if command == b"INFO" else b"+OK\r\n" for command in commands)

    def talk(peer):
        with peer, contextlib.suppress(OSError):
            while data := peer.recv(65536):
                if answer is not None:
                    peer.sendall(reply(data))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        def serve():
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=talk, args=listener.accept()[:1], daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(("answer", "told"), [
    (b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", "no Redis.*check host and port"),
    (b"220 mail.example ESMTP\r\n", "no Redis.*check host and port"),
    ("# Server\r\nredis_version:6.2.14\r\n", "6.2.14.*7.0"),
    ("# Server\r\nother:1\r\n", "no Redis")], ids=["http", "smtp", "old", "other"])
def test_server_that_is_not_redis_or_too_old(cluster, place, answer, told):
    with server(answer) as url:
        done = mount(cluster, place, remote=url)
    refused(done, told, re.escape(url), code=2)
    not_mounted(place)


def test_server_that_never_answers_costs_the_mount_little(cluster, place):
    with server(None) as url:
        done = mount(cluster, place, remote=url)
        assert done.code == 0 and done.err.count("\n") == 1
        assert done.err.startswith(f"inductorfs: warning: the remote cannot be reached: {url}: "), done.err
        assert done.seconds < 5 * PATIENCE
        assert artefacts.write_graph(place.cache, "k", "value").read_bytes() == b"value"
        place.unmount()


def test_policy_that_throws_the_index_away_is_a_warning():
    with QuickCluster(redis_settings=("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")) as cluster:
        a = cluster.quick("a")
        (warning,) = wait_until(lambda: a.status()["warnings"], what="the warning")
        assert "allkeys-lru" in str(warning) and "volatile-ttl" in str(warning)
        assert "maxmemory-policy" in a.log.read_text()


def test_index_that_holds_garbage_breaks_nothing(cluster, place):
    a = place.start(*cluster.options())
    artefacts.write_graph(a.cache, "k", "value")
    a.sync()
    (index,) = cluster.redis.keys("*:idx")
    for path in (b"../../etc/passwd", b"/absolute", b"a\0b", b"fxgraph/../x", b"x" * 5000, b"\xff\xfe", b"", b"."):
        cluster.redis.command("HSET", index, path, os.urandom(50))
    good = cluster.redis.command("HVALS", index)[0]
    cluster.redis.command("HSET", index, b"triton/@/../../x", good, b"locks/x.lock", good)
    cluster.redis.command("DEL", *cluster.redis.keys("*:log"))  # as when it was trimmed: the index is read as a whole
    b = cluster.quick("b")
    wait_until(lambda: compare.names(b.cache), what="the good entry")
    assert compare.names(b.cache) == compare.names(a.cache)
    assert b.counters()["remote.bad_entries"] >= 8


# ---- blobs (others: test_promises.py)

def test_blob_that_inflates_beyond_its_size(cluster, place):
    """A frame of 64 MiB under the name of 20 bytes: with its own head, and with a head that lies."""
    a, b = place.start(*cluster.options()), cluster.quick("b", "--prefetch", "0")
    small, large = "print()\n" * 20, "x" * (64 << 20)
    keys = []
    for seed, content in (("small", small), ("large", large)):
        before = set(mounts.blobs(cluster))
        name = artefacts.write_atomic(a.cache, artefacts.code(seed), content).relative_to(a.cache)
        a.sync()
        (key,) = set(mounts.blobs(cluster)) - before
        keys.append((name, key, cluster.redis.command("GET", key)))
    (name, key, frame), (_, _, bomb) = keys
    head = os.path.commonprefix([frame, bomb])
    assert 0 < len(head) < 64
    begin = frame.index(b"IFSF")
    body = begin + 46  # magic, version, codec, size, digest
    for value in (bomb, frame[:body] + bomb[body:], bomb[:begin] + frame[begin:body] + bomb[body:]):
        cluster.redis.command("SET", key, value)
        wait_until(lambda: b.status()["catalog"]["entries"] >= 1, what="the entries")
        assert not (b.cache / name).exists()
        (pid,) = b.daemons()
        resident = int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])
        assert resident < 200_000
    assert b.counters()["fetch.corrupt"] >= 1


# ---- names

@pytest.mark.parametrize("name", [b"\x01\x1b[31m", b"a\nb", b"\xff\xfe", b"'\"; rm -rf /", b"-x", b"n" * 255, b"%n%s"])
def test_explain_of_any_name(cluster, place, name):
    place.start(*cluster.options())
    path = os.fsencode(place.cache) + b"/" + name
    Path(os.fsdecode(path)).write_bytes(b"x")
    for words in ([], ["--json"]):
        done = subprocess.run([PROGRAM, "explain", path, *words], capture_output=True, timeout=20, env=place.env())
        assert (done.returncode, done.stderr) == (0, b"")
        assert not re.search(rb"[\x00-\x08\x0b-\x1f]", done.stdout)


def test_commands_on_what_is_no_mount(cluster, place):
    for words in (["status", place.cache], ["sync", place.cache], ["unmount", place.cache], ["explain", place.cache / "x"],
                  ["status", place.root / "none"], ["explain", "/"]):
        refused(run([PROGRAM, *words], place.env(), 20), re.escape(str(words[1])))


@pytest.mark.parametrize("words", [["mount"], ["nonsense"], ["mount", "/tmp/x", "--nonsense"], ["mount", "/tmp/x", "--threads", "0"],
                                   ["mount", "/tmp/x", "--store-limit", "many"], ["sync"], [],
                                   ["mount", "/tmp/x", "--also", "x"], ["mount", "/tmp/x", "--log-level", "loud"]])
def test_usage(place, words):
    done = run([PROGRAM, *words], place.env(), 20)
    refused(done, "usage|--help|--", code=2)


@pytest.mark.parametrize("words, told", [
    (["umount", "/tmp/x"], "no command umount; did you mean unmount[?]: see inductorfs --help"),
    (["frobnicate", "/tmp/x"], "no command frobnicate: see inductorfs --help"),
    (["worke"], "no command worke: see"),  # started by other processes of ours, never by a person
    (["mount", "/tmp/x", "--remot", "redis://u:secret@h"], "no option --remot; did you mean --remote[?]: see inductorfs mount --help"),
    (["mount", "/tmp/x", "--remot=redis://u:secret@h"], "no option --remot; did you mean --remote[?]: see inductorfs mount --help"),
    (["status", "/tmp/x", "/tmp/y"], "unexpected argument /tmp/y: see inductorfs status --help")])
def test_a_word_that_is_mistyped_is_named_and_the_nearest_one_proposed(place, words, told):
    done = run([PROGRAM, *words], place.env(), 20)
    refused(done, told, code=2)
    assert "secret" not in done.err
