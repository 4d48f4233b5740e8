#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads every file that it finds below a cache root as a process with torch and Triton loaded. What other nodes have made it finds below the
directories that are named, because a listing shows only what somebody has looked up. Prints one JSON object:

  files        how many it has read
  graphs       {key directory of fxgraph: [how many of its entries have C++ code with vector instructions, and how many have none]}
  writers      the names of workloads/storm.py's processes that are written in Triton's files, sorted
  kinds        the endings of Triton's files, sorted

look_through.py ROOT [DIRECTORY]...   (relative to the root)
"""
import json
import os
import re
import sys

WRITER = re.compile(rb"writer-([a-z0-9]+-\d+)/")


def main():
    import torch  # noqa: F401 (makes this a process of its environment)
    import triton  # noqa: F401

    root, *named = sys.argv[1:]
    count, graphs, writers, kinds = 0, {}, set(), set()
    starts = [root, *(os.path.join(root, directory) for directory in named)]
    files = {os.path.join(directory, name) for start in starts for directory, _, names in os.walk(start) for name in names}
    for path in sorted(files):
        with open(path, "rb") as file:
            content = file.read()
        count += 1
        *below, name = os.path.relpath(path, root).split(os.sep)
        if below[:1] == ["fxgraph"] and len(below) == 3:
            entry = graphs.setdefault(below[2], [0, 0])
            entry[0 if b"at::vec::Vectorized" in content else 1] += 1
        elif below[:1] == ["triton"] and not name.endswith(".so"):
            writers |= {writer.decode() for writer in WRITER.findall(content)}
            kinds.add(name.rsplit(".", 1)[-1])
    print(json.dumps({"files": count, "graphs": graphs, "writers": sorted(writers), "kinds": sorted(kinds)}))


if __name__ == "__main__":
    main()
