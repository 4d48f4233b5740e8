# SPDX-License-Identifier: Apache-2.0
"""In place of the package `redis`: what torch/_inductor/remote_cache.py uses of it, over a Unix socket."""
import socket
from types import SimpleNamespace

exceptions = SimpleNamespace(ConnectionError=ConnectionError)


class Redis:
    def __init__(self, path):
        self._path = path

    @classmethod
    def from_url(cls, url):
        return cls(url.removeprefix("unix://"))

    def get(self, key):
        return self._ask(b"GET", key.encode())

    def set(self, key, value):
        return self._ask(b"SET", key.encode(), value)

    def _ask(self, *words):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self._path)
            connection.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
            with connection.makefile("rb") as stream:
                kind = stream.readline().rstrip()
                if kind[:1] != b"$":
                    return kind
                return stream.read(int(kind[1:])) if kind != b"$-1" else None
