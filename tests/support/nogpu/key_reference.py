#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""key_reference.py - torch_key, triton_key and Inductor's system hash from files alone.

Imports neither torch nor triton: a reference that a C++ implementation can be compared with.
Use:  python key_reference.py SITE_PACKAGES [DEVICE_NAME CUDA_VERSION]
Run it with the same Python minor version as the environment (the extension suffixes depend on it).
"""
import hashlib
import json
import os
import re
import sys
import time
from importlib.machinery import BYTECODE_SUFFIXES, EXTENSION_SUFFIXES, SOURCE_SUFFIXES

SUFFIXES = EXTENSION_SUFFIXES + SOURCE_SUFFIXES + BYTECODE_SUFFIXES  # order in which a loader is chosen
total = [0, 0]


def modname(name):
    """Module name of a file name, or None: the LONGEST matching suffix is cut off."""
    fit = [s for s in SUFFIXES if name.endswith(s)]
    return name[: -len(max(fit, key=len))] if fit else None


def origin(folder, mod, ispkg):
    base = os.path.join(folder, mod, "__init__") if ispkg else os.path.join(folder, mod)
    return next(base + s for s in SUFFIXES if os.path.isfile(base + s))


def modules(folder):
    """(module, is package) in the order of the sorted FILE names."""
    seen = set()
    for fn in sorted(os.listdir(folder)):
        mod, ispkg = modname(fn), False
        if mod == "__init__" or mod in seen:
            continue
        if not mod and "." not in fn and os.path.isdir(os.path.join(folder, fn)):
            if "__init__" not in map(modname, os.listdir(os.path.join(folder, fn))):
                continue
            mod, ispkg = fn, True
        if mod and "." not in mod:
            seen.add(mod)
            yield mod, ispkg


def read(path):
    with open(path, "rb") as f:
        data = f.read()
    total[0] += 1
    total[1] += len(data)
    return data


def torch_version(torch):
    src = read(os.path.join(torch, "version.py")).decode()
    return re.search(r"^__version__ = '([^']+)'", src, re.M).group(1)


def torch_key(torch):
    h = hashlib.sha256(torch_version(torch).encode())

    def walk(folder, prefix):
        for mod, ispkg in sorted(modules(folder)):  # here sorted by MODULE name
            h.update((prefix + mod).encode())
            h.update(read(origin(folder, mod, ispkg)))
            if ispkg:
                walk(os.path.join(folder, mod), prefix + mod + ".")

    walk(torch, "")
    for extra in ("codegen/aoti_runtime/interface.cpp", "codegen/aoti_runtime/streams.h", "script.ld"):
        path = os.path.join(torch, "_inductor", extra)
        if os.path.exists(path):
            h.update(read(path))
    return h.hexdigest()


def triton_key(triton):
    def one(path):
        return hashlib.sha256(read(path)).hexdigest()

    def walk(folder):
        for mod, ispkg in modules(folder):  # here in file name order; a package before its members
            yield one(origin(folder, mod, ispkg))
            if ispkg:
                yield from walk(os.path.join(folder, mod))

    src = read(os.path.join(triton, "__init__.py")).decode()
    version = re.search(r"^__version__ = '([^']+)'", src, re.M).group(1)
    parts = [one(os.path.join(triton, "runtime", "cache.py"))]
    parts += walk(os.path.join(triton, "compiler"))
    parts += walk(os.path.join(triton, "backends"))
    parts.append(one(os.path.join(triton, "_C", "libtriton.so")))
    parts += walk(os.path.join(triton, "language"))
    return version + "-".join(parts)


def system_json(tkey, device=None, cuda=None):
    """What is hashed. Python's json.dumps(sort_keys=True): ', ' and ': ' as separators, ASCII only."""
    info = {"version": {"triton": tkey}}
    if device is not None:
        info["device"], info["version"]["cuda"] = {"name": device}, cuda
    return json.dumps(info, sort_keys=True)


if __name__ == "__main__":
    site, dev = sys.argv[1], sys.argv[2:4] or [None, None]
    for what, fn in (("torch", torch_key), ("triton", triton_key)):
        total[:], t = [0, 0], time.time()
        key = fn(os.path.join(site, what))
        shown = key if what == "torch" else f"sha256 {hashlib.sha256(key.encode()).hexdigest()} length {len(key)}"
        print(f"{what}_key {shown} files {total[0]} bytes {total[1]} seconds {time.time() - t:.2f}")
    text = system_json(key, *dev)
    print("system json length", len(text), "hash", hashlib.sha256(text.encode()).hexdigest())
