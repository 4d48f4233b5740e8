# SPDX-License-Identifier: Apache-2.0
"""Who wrote the files of each key directory, after workloads/storm.py: every path of a source there names its process."""
import os
import re

from . import compare

WRITER = re.compile(rb"writer-([a-z0-9]+-\d+)/")


def groups(cache):
    """The group files, which say that a key directory is complete, below the mount."""
    return [name for name in compare.names(cache) if "__grp__" in name]


def writers_of(directory):
    """{writer: its files} of one key directory."""
    found = {}
    for name in sorted(os.listdir(directory)):
        for writer in set(WRITER.findall((directory / name).read_bytes())):
            found.setdefault(writer.decode(), []).append(name)
    return found


def mixed_directories(cache):
    """{key directory: writers} of those that have not exactly one writer."""
    directories = {(cache / name).parent for name in groups(cache)}
    return {directory.name: writers for directory in directories if len(writers := writers_of(directory)) != 1}
