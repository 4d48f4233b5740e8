# SPDX-License-Identifier: Apache-2.0
"""A redis-server of one's own: Unix socket in a directory of its own, no TCP port, ended by its pid."""
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

from .processes import Failed, wait_until


class RedisServer:
    """start() returns when it answers. kill() is kill -9; start() after it finds the same data: every write is
    appended and synced before it is acknowledged, as far as `durable` is left on."""

    def __init__(self, durable=True, settings=()):
        # A Unix socket's path may have 107 bytes: not below pytest's long temporary directories.
        self.directory = Path(tempfile.mkdtemp(prefix="inductorfs-redis-"))
        self.socket = self.directory / "redis.sock"
        self.directory.chmod(0o711)  # the workers of root's mounts are a user of their own
        self._arguments = ["--port", "0", "--unixsocket", self.socket, "--unixsocketperm", "777", "--dir", self.directory, "--save", "",
                           "--appendonly", "yes" if durable else "no", "--appendfsync", "always",
                           "--daemonize", "no", "--logfile", self.directory / "redis.log", *settings]
        self._child = None

    @property
    def url(self):
        return f"unix://{self.socket}"

    @property
    def pid(self):
        return self._child.pid

    @property
    def running(self):
        return self._child is not None and self._child.poll() is None

    def start(self):
        program = shutil.which("redis-server")
        if not program:
            raise Failed("redis-server is missing (scripts/deps installs it)")
        self._child = subprocess.Popen([program, *map(str, self._arguments)], stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(self._answers, 20, "redis-server")
        return self

    def kill(self):
        if self.running:
            self._child.send_signal(signal.SIGKILL)
        self._child.wait(10)

    def suspend(self):
        """Accepts connections and answers nothing, as a hung server does."""
        self._child.send_signal(signal.SIGSTOP)

    def resume(self):
        self._child.send_signal(signal.SIGCONT)

    def close(self):
        if self._child is not None:
            self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.close()

    def command(self, *words):
        """One command over a connection of its own; bytes, int, None or a list."""
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        request = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(30)
            connection.connect(str(self.socket))
            connection.sendall(request)
            with connection.makefile("rb") as stream:
                return self._read(stream)

    def keys(self, pattern="*"):
        """All keys, by SCAN."""
        found, cursor = [], b"0"
        while True:
            cursor, some = self.command("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
            found += some
            if cursor == b"0":
                return sorted(set(found))

    def size_of(self, key):
        """Bytes of one key's value as a client would fetch it (strings), else what it takes in memory."""
        if self.command("TYPE", key) == b"string":
            return self.command("STRLEN", key)
        return self.command("MEMORY", "USAGE", key, "SAMPLES", 0)

    def _answers(self):
        if self._child.poll() is not None:
            log = self.directory / "redis.log"
            raise Failed(f"redis-server ended: {log.read_text() if log.exists() else ''}")
        try:
            return self.command("PING") == b"PONG"
        except (OSError, Failed):
            return False

    @classmethod
    def _read(cls, stream):
        line = stream.readline()
        if not line.endswith(b"\r\n"):
            raise Failed("redis-server closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise Failed(f"redis: {rest.decode()}")
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        if kind == b"$":
            if rest == b"-1":
                return None
            value = stream.read(int(rest) + 2)
            return value[:-2]
        if kind == b"*":
            return None if rest == b"-1" else [cls._read(stream) for _ in range(int(rest))]
        raise Failed(f"redis: {line!r}")


def kill(server):
    """Ends a server, of whatever kind, as a fault; returns what mends it."""
    server.kill()
    return server.start


def hang(server):
    """The same: it takes connections and answers nothing."""
    server.suspend()
    return server.resume
