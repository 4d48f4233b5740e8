#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A process of its environment that has looked into a cache root, and stays until it is ended: stay.py ROOT"""
import os
import signal
import sys


def main():
    import torch  # noqa: F401 (makes this a process of its environment)

    os.path.exists(os.path.join(sys.argv[1], "fxgraph"))
    print("has looked", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
