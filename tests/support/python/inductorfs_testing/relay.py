# SPDX-License-Identifier: Apache-2.0
"""A TCP relay between nodes and their server that a test can make slow or hostile, for each node apart, and lead to another
server. A process of its own: `Relay` starts it and tells it what to do by lines on its standard input."""
import asyncio
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

FRAME = re.compile(rb"\$(\d+)\r\n(IFSP)")  # docs/formats.md: a piece of a blob, as a bulk string
HEADS = 25  # bytes: the piece's (magic, version, pieces, size) and the first of the frame's (magic, version, codec, reserved)
PIECE = 64 << 10


class Relay:
    """start() returns when it listens; close() ends it."""

    def __init__(self, address, target):
        self.address, self._target, self._child = address, target, None

    def start(self):
        command = [sys.executable, "-m", "inductorfs_testing.relay", *self.address, *self._target]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        self._child = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       env=environment, start_new_session=True)
        if self._child.stdout.readline() != b"listening\n":
            raise AssertionError("the relay does not start")
        return self

    def set(self, host, **policy):
        """delay=seconds for each piece, stall=True: nothing moves, flip=share of pieces with frames that are damaged on
        their way to the node, reset=True: its connections end with a RST now."""
        self._say(host=host, **policy)

    def lead_to(self, address):
        """New connections go there; those that are there end."""
        self._say(target=list(address))

    def _say(self, **what):
        self._child.stdin.write((json.dumps(what) + "\n").encode())
        self._child.stdin.flush()

    def close(self):
        if self._child is not None:
            self._child.send_signal(signal.SIGKILL)
            self._child.wait(10)
            self._child.stdin.close()
            self._child.stdout.close()


class Server:
    """Confined to its event loop."""

    def __init__(self, target):
        self.target, self.policies, self.connections = target, {}, {}

    async def serve(self, reader, writer):
        host = writer.get_extra_info("peername")[0]
        try:
            upstream = await asyncio.open_connection(*self.target)
        except OSError:
            self.reset(writer)
            return
        pair = (writer, upstream[1])
        self.connections.setdefault(host, set()).add(pair)
        try:
            await asyncio.gather(self.pump(host, reader, upstream[1], False), self.pump(host, upstream[0], writer, True))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self.connections[host].discard(pair)
            for end in pair:
                end.close()

    async def pump(self, host, reader, writer, to_node):
        while data := await reader.read(PIECE):
            policy = self.policies.get(host, {})
            if policy.get("delay"):
                await asyncio.sleep(policy["delay"])
            while self.policies.get(host, {}).get("stall"):
                await asyncio.sleep(0.02)
            if to_node and random.random() < policy.get("flip", 0):
                data = self.damaged(data)
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()

    @staticmethod
    def damaged(data):
        """One bit of one frame in it, and nothing else; each other time one of its heads, which say who can read it."""
        frames = [(found.start(2), int(found[1])) for found in FRAME.finditer(data)]
        if not frames:
            return data
        begin, size = random.choice(frames)
        at = random.randrange(begin, min(begin + random.choice([size, HEADS]), len(data)))
        return data[:at] + bytes([data[at] ^ (1 << random.randrange(8))]) + data[at + 1:]

    @staticmethod
    def reset(writer):
        raw = writer.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    def obey(self, line):
        what = json.loads(line)
        if "target" in what:
            self.target = what["target"]
        else:
            host = what.pop("host")
            if not what.pop("reset", False):
                self.policies[host] = what
                return
        for name, pairs in self.connections.items():
            for pair in pairs if "target" in what or name == host else ():
                for end in pair:
                    self.reset(end)


async def main():
    server = Server(sys.argv[3:5])
    listener = await asyncio.start_server(server.serve, sys.argv[1], int(sys.argv[2]))
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    print("listening", flush=True)
    async with listener:
        while line := await lines.readline():
            server.obey(line)


if __name__ == "__main__":
    asyncio.run(main())
