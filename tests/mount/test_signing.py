# SPDX-License-Identifier: Apache-2.0
"""`--signing-key`: what a mount publishes is signed, and the key is in no process that reads what others wrote."""
import base64
import contextlib
import os
import subprocess
from pathlib import Path

import pytest
from inductorfs_testing import artefacts, places
from inductorfs_testing.processes import wait_until

PUBLISHED = 15
USER = 65534


def make_key(path):
    path.unlink(missing_ok=True)
    Path(f"{path}.pub").unlink(missing_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "node@host", "-f", path], check=True)
    return path


@pytest.fixture
def key(cluster):
    return make_key(cluster.directory / "node.key")


def seed_of(key):
    """The private part: 32 bytes before the public key's second copy (OpenSSH's PROTOCOL.key)."""
    body = base64.b64decode("".join(key.read_text().splitlines()[1:-1]))
    public = base64.b64decode(Path(f"{key}.pub").read_text().split()[1])[-32:]
    return body[body.rindex(public) - 32:body.rindex(public)]


def statements(cluster):
    """A directory with `text` and `text.sig` for each that lies in the server, as docs/formats/statements.md divides a value."""
    page = (Path(__file__).parents[2] / "docs/formats/statements.md").read_text()
    recipe = page.split("```python\n")[1].split("```")[0]
    found = []
    for number, name in enumerate(cluster.redis.keys("*:st:*")):
        directory = cluster.directory / f"statement-{number}"
        directory.mkdir(exist_ok=True)
        (directory / "value").write_bytes(cluster.redis.command("GET", name))
        subprocess.run(["/usr/bin/python3", "-c", recipe, "value"], cwd=directory, check=True)
        found.append(directory)
    return found


def is_signed_by(statement, key, cluster):
    trusted = cluster.directory / "trusted-keys"
    trusted.write_text("* " + Path(f"{key}.pub").read_text())
    with open(statement / "text", "rb") as text:
        done = subprocess.run(["ssh-keygen", "-Y", "verify", "-f", trusted, "-I", "x", "-n", "inductorfs", "-s", statement / "text.sig"], stdin=text,
                              capture_output=True, check=False)
    return done.returncode == 0


def covered(cluster):
    return sum(line.startswith("entry ") for one in statements(cluster) for line in (one / "text").read_text().splitlines())


def has_in_memory(pid, seed):
    """Whether these bytes lie where the process may write."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in map(str.split, Path(f"/proc/{pid}/maps").read_text().splitlines()):
            if "w" not in line[1] or line[-1].startswith("[v"):
                continue
            begin, end = (int(number, 16) for number in line[0].split("-"))
            with contextlib.suppress(OSError):  # a hole
                if seed in os.pread(memory.fileno(), end - begin, begin):
                    return True
    return False


def write(node, name, content="of this mount"):
    artefacts.write_graph(node.cache, name, content)


def test_what_is_published_is_signed(cluster, key):
    node = cluster.quick("a", "--signing-key", key)
    for number in range(100):
        write(node, f"graph {number}", f"content {number}")
    node.sync()
    found = statements(cluster)
    assert all(is_signed_by(one, key, cluster) for one in found)
    assert "cluster ifs1\n" in (found[0] / "text").read_text()
    assert covered(cluster) >= 100
    assert len(found) < 50, "one signature is for many small artefacts"
    for name in cluster.redis.keys("*:st:*"):
        assert 0 < int(cluster.redis.command("PTTL", name)) <= 90 * 24 * 3_600_000
    status = node.status()["remote"]
    assert status["signing_key"] == Path(f"{key}.pub").read_text().strip()
    assert "signs as node@host" in node.cli("status", node.cache).out


def test_the_key_is_in_no_process_of_the_mount(cluster, key):
    node = cluster.quick("a", "--signing-key", key)
    write(node, "graph")
    node.sync()
    assert covered(cluster) >= 1
    seed = seed_of(key)
    assert has_in_memory(os.getpid(), seed), "the look finds what is there"
    assert not [pid for pid in node.processes() if has_in_memory(pid, seed)]


def test_a_key_that_is_exchanged_signs_from_then_on(cluster, key):
    node = cluster.quick("a", "--signing-key", key)
    write(node, "one")
    node.sync()
    old = cluster.directory / "old.key"
    for end in ("", ".pub"):
        Path(f"{old}{end}").write_bytes(Path(f"{key}{end}").read_bytes())
    make_key(key)
    write(node, "two")
    node.sync()
    signers = {(is_signed_by(one, old, cluster), is_signed_by(one, key, cluster)) for one in statements(cluster)}
    assert signers == {(True, False), (False, True)}
    assert node.status()["remote"]["signing_key"] == Path(f"{key}.pub").read_text().strip()


@pytest.mark.parametrize("spoiled", ["missing", "open to others", "of another type"])
def test_without_a_usable_key_it_does_not_start(cluster, key, spoiled):
    if spoiled == "missing":
        key.unlink()
    elif spoiled == "open to others":
        key.chmod(0o644)
    else:
        key.write_text("no key\n")
    node = cluster.node("a", start=False)
    done = node.cli("mount", node.cache, *cluster.options("--signing-key", key), "--remote", cluster.redis.url, "--store", node.store)
    assert done.code == 2, done
    assert "--signing-key" in done.err and str(key) in done.err, done.err
    wait_until(lambda: not node.processes(), what="the end")
    checked = node.cli("config", "check", "--remote", cluster.redis.url, "--store", node.store, "--signing-key", key)
    assert checked.code == 2 and str(key) in checked.err, checked


def test_what_cannot_be_signed_waits_and_says_why(cluster, key):
    node = cluster.quick("a", "--signing-key", key)
    away = key.rename(cluster.directory / "away.key")
    write(node, "one")
    wait_until(lambda: "--signing-key" in node.status()["catalog"]["oldest_queued_error"], PUBLISHED, "the reason")
    assert not statements(cluster)
    assert not cluster.redis.keys("*:idx"), "nothing is published unsigned"
    away.rename(key)
    node.sync()
    assert covered(cluster) >= 1


def test_it_signs_on_after_an_upgrade_and_a_crash(cluster, key):
    node = cluster.quick("a", "--signing-key", key)
    assert node.cli("upgrade", node.cache).code == 0
    write(node, "one")
    node.sync()
    before = covered(cluster)
    assert before >= 1
    old = node.worker()
    os.kill(old, 9)
    wait_until(lambda: node.worker() != old, what="another worker")
    write(node, "two", "other")
    node.sync()
    assert covered(cluster) > before


def test_an_ordinary_users_mount_signs_with_that_users_key(cluster, key, root):  # noqa: ARG001
    node = cluster.node("users", start=False)
    cluster.directory.chmod(0o755)
    cluster.redis.directory.chmod(0o755)
    for path in (node.root, node.cache, node.store, node.home, node.tmp, key):
        os.chown(path, USER, USER)
    for path in cluster.redis.directory.glob("*.sock"):
        path.chmod(0o777)
    program, device = places.copy_programs(cluster.directory), cluster.directory / "fuse"
    words = " ".join(map(str, [program, "mount", node.cache, "--store", node.store, "--remote", cluster.redis.url, "--signing-key", key, *cluster.options()]))
    graph = artefacts.write_graph(node.tmp, "graph", "of a user").relative_to(node.tmp)
    script = (f"mknod {device} c 10 229; chmod 666 {device}; mount --bind {device} /dev/fuse; exec setpriv --reuid={USER} --regid={USER} --clear-groups sh -euc '{words};"
              f"mkdir -p {node.cache / graph.parent}; cp {node.tmp / graph} {node.cache / graph}.tmp; mv {node.cache / graph}.tmp {node.cache / graph};"
              f"{program} sync {node.cache}; {program} unmount {node.cache}'")
    done = subprocess.run(["unshare", "-m", "sh", "-euc", script], env=node.env(USER="nobody", LOGNAME="nobody"), timeout=120, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode() + node.log_tail()
    assert covered(cluster) >= 1 and all(is_signed_by(one, key, cluster) for one in statements(cluster))


def test_there_has_to_be_something_to_sign(cluster, key):
    node = cluster.node("a", start=False)
    for options in (("--no-publish", "--remote", cluster.redis.url), ("--read-only", "--remote", cluster.redis.url), ()):
        done = node.cli("mount", node.cache, *options, "--signing-key", key, "--store", node.store)
        assert done.code == 2 and "there is nothing to sign" in done.err, done
