# SPDX-License-Identifier: Apache-2.0
"""`inductorfs doctor --remote URL`: faults of real servers, each found with its remedy, without a mount."""
import contextlib
import json
import socket
import threading
import time

import pytest
from inductorfs_testing import places
from inductorfs_testing.network import Network
from inductorfs_testing.processes import run, wait_until
from inductorfs_testing.redis_server import RedisServer

PROGRAM = places.program()


def ask(*words, env=None):
    """(exit code, {kind: ["what -> remedy"]})"""
    done = run([PROGRAM, "doctor", "--json", *words], env, 30)
    assert done.code in (0, 1) and done.err == "", (done.code, done.err)
    found = {}
    for one in json.loads(done.out):
        found.setdefault(one["kind"], []).append(f"{one['what']} -> {one['remedy']}")
    return done.code, found


def has(lines, *parts):
    return any(all(part in line for part in parts) for line in lines)


@contextlib.contextmanager
def server(*settings):
    with RedisServer(settings=settings) as redis:
        yield redis


WELL = ("--maxmemory", "200mb", "--maxmemory-policy", "volatile-ttl")


def test_a_server_with_which_all_is_well():
    with server(*WELL) as redis:
        code, found = ask("--remote", redis.url)
        assert "BAD" not in found and not has(found.get("warning", []), "redis.sock"), found
        assert code == 0 and has(found["ok"], "redis.sock is Redis ") and has(found["ok"], "redis.sock answers after ")
        assert not any("no inductorfs mount" in line for lines in found.values() for line in lines)


@pytest.mark.parametrize(("settings", "kind", "told"), [
    (("--maxmemory", "0"), "warning", ("has no maxmemory", "CONFIG SET maxmemory")),
    (("--maxmemory", "200mb", "--maxmemory-policy", "allkeys-lru"), "warning", ("allkeys-lru", "volatile-ttl")),
    (("--maxmemory", "200mb", "--maxmemory-policy", "noeviction"), "warning", ("noeviction: publishing fails", "volatile-ttl")),
    ((*WELL, "--appendonly", "no"), "note", ("no append-only file", "appendonly yes")),
    ((*WELL, "--replicaof", "127.0.0.1 1"), "BAD", ("is a replica", "name the master, 127.0.0.1:1")),
    (("--cluster-enabled", "yes", *WELL), "BAD", ("Redis Cluster", "redis+cluster://")),
    ((*WELL, "--requirepass", "secret"), "BAD", ("NOAUTH", "--password-file")),
], ids=["no-limit", "allkeys", "noeviction", "persistence", "replica", "cluster", "password"])
def test_a_setting_of_the_server_is_found(settings, kind, told):
    if "--requirepass" not in settings:
        with server(*settings) as redis:
            code, found = ask("--remote", redis.url)
    else:
        with server(*WELL) as redis:
            redis.command("CONFIG", "SET", "requirepass", "secret")
            code, found = ask("--remote", redis.url)
    assert has(found.get(kind, []), *told), found
    assert code == (1 if kind == "BAD" else 0)


def test_the_password_file_is_that_of_mount(tmp_path):
    secret = tmp_path / "password"
    secret.write_text("secret\n")
    with server(*WELL) as redis:
        redis.command("CONFIG", "SET", "requirepass", "secret")
        code, found = ask("--remote", redis.url, "--password-file", secret)
        assert code == 0 and has(found["ok"], "is Redis "), found
        file = tmp_path / "node.toml"
        file.write_text(f'remote = "{redis.url}"\npassword-file = "{secret}"\n')
        code, found = ask("--config", file)
        assert code == 0 and has(found["ok"], "is Redis "), found


def test_memory_that_is_nearly_full_is_found():
    with server("--maxmemory", "200mb", "--maxmemory-policy", "volatile-ttl") as redis:
        redis.command("SET", "filler", b"x" * (20 << 20))
        used = int(redis.command("INFO", "memory").decode().split("used_memory:")[1].split("\r")[0])
        redis.command("CONFIG", "SET", "maxmemory", used * 100 // 95)
        code, found = ask("--remote", redis.url)
        assert code == 0 and has(found["warning"], "% of its maxmemory", "raise maxmemory"), found
        redis.command("SET", "another", "is taken")


def test_a_server_that_is_full_and_has_nothing_to_evict_is_bad():
    with server("--maxmemory", "200mb", "--maxmemory-policy", "volatile-ttl") as redis:
        redis.command("SET", "filler", b"x" * (3 << 20))  # without a lifetime
        redis.command("CONFIG", "SET", "maxmemory", "1mb")
        code, found = ask("--remote", redis.url)
        assert code == 1 and has(found["BAD"], "% of its maxmemory of 1.0 MiB", "has nothing left to evict", "refuses every write", "CONFIG SET maxmemory"), found
        assert not has(found["BAD"], "maxmemory-policy volatile-ttl"), found


def test_connections_that_run_out_are_found():
    with server(*WELL, "--maxclients", "20") as redis, contextlib.ExitStack() as stack:
        for _ in range(17):
            stack.enter_context(socket.socket(socket.AF_UNIX)).connect(str(redis.socket))
        code, found = ask("--remote", redis.url)
        assert has(found["warning"], "of at most 20 connections", "raise maxclients"), found


def test_a_disk_that_cannot_be_saved_to_is_found():
    with server(*WELL) as redis:
        (redis.directory / "dump.rdb").mkdir()  # BGSAVE cannot rename over it
        redis.command("BGSAVE")
        wait_until(lambda: b"rdb_last_bgsave_status:err" in redis.command("INFO", "persistence"), 30, "the end of the save")
        code, found = ask("--remote", redis.url)
        assert code == 1 and has(found["BAD"], "cannot save to its disk", "BGSAVE"), found


def test_a_server_that_is_away_and_one_that_is_no_redis_are_found():
    code, found = ask("--remote", "redis://127.0.0.1:1")
    assert code == 1 and has(found["BAD"], "the remote cannot be used: redis://127.0.0.1:1", "check host, port, password"), found


def test_rights_that_lack_are_found(tmp_path):
    secret = tmp_path / "password"
    secret.write_text("secret\n")
    with server(*WELL) as redis:
        redis.command("ACL", "SETUSER", "reader", "on", ">secret", "~*", "&*", "+@read", "+ping")
        code, found = ask("--remote", redis.url.replace("unix://", "unix://reader@"), "--password-file", secret)
        assert code == 0 and has(found["warning"], "does not tell this user about itself", "--read-only"), found


def test_a_user_who_may_administer_the_server_is_found_and_none_of_a_role(tmp_path):
    secret = tmp_path / "password"
    secret.write_text("secret\n")
    with server(*WELL) as redis:
        assert has(ask("--remote", redis.url)[1]["note"], "lets this user administer it", "inductorfs acl publisher")
        redis.command("ACL", "SETUSER", "node", ">secret")
        for role in ("consumer", "publisher", "sweeper", "operator"):
            printed = run([PROGRAM, "acl", role, "--user", "node"])
            assert printed.code == 0 and printed.out.count("\n") == 1, printed
            redis.command(*printed.out.split())
            code, found = ask("--remote", redis.url.replace("unix://", "unix://node@"), "--password-file", secret)
            assert code == 0 and has(found["ok"], "is Redis ") and not has(found.get("note", []), "administer"), found


@pytest.mark.parametrize("words", [("nobody",), ("publisher", "--prefix", "a*"), ("publisher", "--user", "a b"), ()])
def test_a_line_that_would_be_another_is_not_printed(words):
    done = run([PROGRAM, "acl", *words])
    assert done.code == 2 and done.out == "" and done.err, done


@contextlib.contextmanager
def between(redis, delay=0.0, ahead=0):
    """A TCP server before the real one, which holds each answer back, or sets the clock that it tells."""
    def serve(peer):
        with peer, socket.socket(socket.AF_UNIX) as behind, contextlib.suppress(OSError):
            behind.connect(str(redis.socket))
            while asked := peer.recv(65536):
                behind.sendall(asked)
                answer = behind.recv(1 << 20)
                time.sleep(delay)
                if ahead and b"TIME" in asked:
                    now = str(int(time.time()) + ahead).encode()
                    answer = b"*2\r\n$%d\r\n%s\r\n$1\r\n0\r\n" % (len(now), now)
                peer.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        def accept():
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=serve, args=listener.accept()[:1], daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(("delay", "kind"), [(0.03, "warning"), (0.1, "BAD")])
def test_a_slow_server_is_found(delay, kind):
    with server(*WELL) as redis, between(redis, delay=delay) as url:
        assert has(ask("--remote", url)[1][kind], "answers after", "--lookup-patience")


@pytest.mark.parametrize(("ahead", "told"), [(3600, "s ahead of this host's"), (-3600, "s behind this host's")])
def test_a_clock_that_is_wrong_is_found(ahead, told):
    with server(*WELL) as redis, between(redis, ahead=ahead) as url:
        assert has(ask("--remote", url)[1]["warning"], told, "NTP")


def test_an_open_server_on_a_network_is_found(root):
    network = Network()  # a bridge of its own: this host may have no address but the loopback's
    try:
        address, port = network.address, str(network.free_port())
        with server(*WELL, "--port", port, "--bind", address, "--protected-mode", "no"):
            code, found = ask("--remote", f"redis://{address}:{port}")
            assert has(found["warning"], "without TLS", "rediss://") and has(found["warning"], "wants no password", "--password-file"), found
    finally:
        network.close()
