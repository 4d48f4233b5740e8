# SPDX-License-Identifier: Apache-2.0
"""Holds an engine in the middle of what it does to its cache, so that a test can end it, its mount or its cluster there."""
import builtins
import fnmatch
import io
import os
import sys
import time
from pathlib import Path


class Holds:
    """`points`: KIND:PATTERN, where the kind is `rename` (before a file gets such a name), `half` (when half of such a file is written in
    place) or `read` (before such a file is read). Each holds once: makes DIRECTORY/held.NUMBER and waits for DIRECTORY/go.NUMBER."""

    def __init__(self, points, directory: Path):
        self._left = {number: tuple(point.split(":", 1)) for number, point in enumerate(points)}
        self._directory = directory
        self._open = builtins.open
        if self._left:
            sys.addaudithook(self._audit)
            builtins.open = io.open = self._opened

    def _number(self, kind, path):
        if isinstance(path, int):
            return None
        text = os.fsdecode(path)
        return next((number for number, (wanted, pattern) in self._left.items() if wanted == kind and fnmatch.fnmatch(text, pattern)), None)

    def _hold(self, number):
        del self._left[number]
        os.close(os.open(self._directory / f"held.{number}", os.O_CREAT | os.O_WRONLY, 0o666))
        while not os.path.exists(self._directory / f"go.{number}"):
            time.sleep(0.02)

    def _audit(self, event, arguments):
        if event == "os.rename":
            number = self._number("rename", arguments[1])
        elif event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_ACCMODE == os.O_RDONLY:
            number = self._number("read", arguments[0])
        else:
            return
        if number is not None:
            self._hold(number)

    def _opened(self, file, mode="r", *words, **keywords):
        number = self._number("half", file) if "w" in mode else None
        made = self._open(file, mode, *words, **keywords)
        if number is None:
            return made
        write = made.write

        def half(data):
            done = write(data[:len(data) // 2])
            made.flush()
            self._hold(number)
            made.write = write
            return done + write(data[len(data) // 2:])

        made.write = half
        return made
