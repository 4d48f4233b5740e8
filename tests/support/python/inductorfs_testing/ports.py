# SPDX-License-Identifier: Apache-2.0
"""Ports for servers that a test starts a moment later."""
import errno
import random
import socket

# Below the ports that the kernel gives to connections by itself (ip_local_port_range): one of those may be in use a moment later.
FIRST, END = 10_000, 32_000
_given = set()


def free_port(address="127.0.0.1"):
    """A port of this address at which nobody listens, and which this process has not been given before."""
    while True:
        port = random.randrange(FIRST, END)
        if port in _given:
            continue
        _given.add(port)
        try:
            socket.create_server((address, port)).close()
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            continue
        return port
