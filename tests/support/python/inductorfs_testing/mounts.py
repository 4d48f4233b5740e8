# SPDX-License-Identifier: Apache-2.0
"""Nodes for the rings without torch: mounted with a fingerprint from a file, so that a mount costs milliseconds."""
import base64
import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import threading
import zlib
from pathlib import Path

from . import artefacts, compare, places
from .fixtures import Cluster
from .processes import Failed, run, wait_until

# The cluster's news are looked at often, and a file written in place counts as complete soon.
QUICK = ("--no-also", "--poll-interval", "20", "--quiet-time", "200")


class QuickCluster(Cluster):
    """A Redis and nodes of equal facts, patient ones (see Node). Needs external synchronisation."""

    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **{"patient": True, **keywords})

    def options(self, *more, **facts):
        name = "-".join(["facts", *(f"{key}={value}" for key, value in sorted(facts.items()))])
        path = self.directory / f"{name}.json"
        if not path.exists():
            artefacts.fingerprint(path, **facts)
        writers = () if "--writers" in more else ("--writers", "all")  # programs without torch write
        return ["--fingerprint", path, *QUICK, *writers, *more]

    def quick(self, name, *more, facts=None, **keywords):
        """A mounted node; `more` are further options of mount."""
        return self.node(name, options=self.options(*more, **(facts or {})), **keywords)


def remount(node, cluster, *more):
    return node.start(*cluster.options(*more))


def files_of_blobs(store):
    """The files with the bytes of the blobs: one for each, and the packs of small ones."""
    packs = [path for path in (store / "packs").glob("*") if path.suffix != ".index"]
    return packs + [path for path in (store / "blobs").rglob("*") if path.is_file()]


def appears(path: Path, seconds=15):
    """Waits until the name can be looked up; a miss before is what the cache promises."""
    try:
        wait_until(lambda: os.path.lexists(path), seconds, f"{path} to appear")
    except Failed as late:
        told, above = run([places.program(), "explain", path], seconds=20), path
        while not os.path.lexists(above):
            above = above.parent
        raise Failed(f"{late}\n{told.out}{told.err}the kernel shows {above}: {sorted(os.listdir(above))[:20]}") from None
    return path


def disappears(path: Path, seconds=15):
    wait_until(lambda: not os.path.lexists(path), seconds, f"{path} to go")


def published(cluster, seconds=15):
    """Names in the cluster's index, over all scopes."""
    names = []
    for key in cluster.redis.keys("*:idx"):
        names += cluster.redis.command("HKEYS", key)
    return sorted(name.decode(errors="surrogateescape") for name in names)


def blobs(cluster):
    """{key: size} of the blobs in Redis."""
    return {key: cluster.redis.command("STRLEN", key) for key in cluster.redis.keys("*:b:*")}


@contextlib.contextmanager
def suspended(redis):
    """Redis takes connections and answers nothing."""
    redis.suspend()
    try:
        yield
    finally:
        redis.resume()


@contextlib.contextmanager
def stopped(pid):
    """The process does nothing meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "T", what="a process that is stopped")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def tmpfs(directory, options="rw", kind="tmpfs"):
    """Another file system there, which nothing may use any more at the end. Root."""
    directory.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", kind, "-o", options, kind, directory], check=True)
    try:
        yield directory
    except BaseException:
        subprocess.run(["umount", "-l", directory], check=False)  # the test has failed already
        raise
    subprocess.run(["umount", directory], check=True)


def text(size, seed=0):
    """Text that zstd cannot make much smaller, other for each seed."""
    raw = b"".join(seed.to_bytes(8, "little") + os.urandom(4096) for _ in range(size * 3 // 4 // 4104 + 1))
    return base64.b64encode(raw)[:size]


def populate(node):
    """Some artefacts of most shared families; their paths below the mount."""
    cache, made = node.cache, []
    for index in range(6):
        made.append(artefacts.write_graph(cache, f"graph {index}", f"pickle {index}" * 100))
        made.append(artefacts.write_atomic(cache, artefacts.code(f"code {index}"), f"print({index})\n" * 200))
    made.append(artefacts.build_library(cache, "library"))
    for index in range(2):
        directory = artefacts.triton_compile(cache, f"kernel {index}", node.name)
        made += [directory / name for name in (*artefacts.TRITON_FILES, "__grp__k.json")]
    return [path.relative_to(cache) for path in made]


def fill_index(cluster, count):
    """Adds `count` entries to the one scope's index, all with the bytes of the entry that is there; sends them in one go."""
    (key,) = [key for key in cluster.redis.keys("*:idx") if cluster.redis.command("HLEN", key)]
    (_, value) = cluster.redis.command("HGETALL", key)
    body = value[:-4]  # and the check: of the value and of the path that it stands for
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(120)
        connection.connect(str(cluster.redis.socket))

        def send():
            for start in range(0, count, 1000):
                words = [b"HSET", key]
                for index in range(start, min(count, start + 1000)):
                    path = artefacts.code(f"many {index}").encode()
                    words += [path, body + zlib.crc32(body + path).to_bytes(4, "little")]
                connection.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))

        sender = threading.Thread(target=send)
        sender.start()
        with connection.makefile("rb") as answers:
            for _ in range((count + 999) // 1000):
                assert answers.readline().startswith(b":")
        sender.join()
    # Another history, of which there is no log: whoever follows the scope reads the whole index.
    scope = key.removesuffix(b":idx")
    cluster.redis.command("HSET", scope + b":meta", "gen", count, "nonce", "f" * 32)
    cluster.redis.command("DEL", scope + b":log")


@contextlib.contextmanager
def kept_from_sweeps(place):
    """What is shown there is not taken away by the start of another mount, as if its own mount was coming back. Root."""
    device = next(line.split(" ")[2] for line in compare.mount_lines() if line.split(" ")[4] == str(place))
    with open("/run/inductorfs/binds.lock", "a+b") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX, 1, os.makedev(*map(int, device.split(":"))))
        yield
