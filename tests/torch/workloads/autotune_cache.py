#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads and writes tunings through torch's own classes.

  autotune_cache.py best-config --form new|old --directory DIR [--save]     prints {"name", "config", "seconds"}
  autotune_cache.py system --writer NAME --entries N                        prints {"file", "timings"}

best-config: AutotuneCache (torch/_inductor/runtime/autotune_cache.py). Form "old" is the one up to torch 2.7: the name without
torch_key, and a write that is not atomic. system: PersistentCache.lookup (codecache.py), N operations with one timing each,
read-modify-write of one file for each, as max-autotune does.
"""
import argparse
import hashlib
import json
import os


def best_config(arguments):
    import torch._inductor.codecache  # noqa: F401 (torch_key)
    from torch._inductor import remote_cache
    from torch._inductor.runtime import autotune_cache
    from torch._inductor.runtime.triton_compat import Config

    configs = [Config({"BLOCK": block}, num_warps=warps, num_stages=1) for block, warps in ((64, 2), (128, 4), (256, 8))]
    meta = {"autotune_local_cache": True, "autotune_remote_cache": False, "bundled_autotune_remote_cache": False,
            "coordinate_descent_tuning": False, "is_fbcode": False, "backend_hash": "tests"}
    kernel = os.path.join(arguments.directory, "ab", "cab" + "a" * 49 + ".py")
    cache = autotune_cache.AutotuneCache.create(meta, kernel, hashlib.sha256(b"the configs").hexdigest())
    if arguments.form == "old":
        key = autotune_cache.AutotuneCache._prepare_key(kernel)
        cache.local_cache = (cache.local_cache[0], os.path.join(os.path.dirname(kernel), f"{key}.best_config"))

        def put_in_place(self, name, data):  # _LocalAutotuneCacheBackend._put of torch 2.7
            os.makedirs(os.path.dirname(name), exist_ok=True)
            with open(name, "wb") as file:
                file.write(data)

        remote_cache.LocalCacheBackend._put = put_in_place
        autotune_cache.LocalCacheBackend._put = put_in_place
    if arguments.save:
        cache.save(configs[1], 1234567)
    found = cache.read_best(meta, configs)
    return {"name": os.path.relpath(cache.local_cache[1], arguments.directory),
            "config": found and {**found.kwargs, "num_warps": found.num_warps}}


def system(arguments):
    from torch._inductor.codecache import PersistentCache

    class Choice:
        def __init__(self, name):
            self.name = name

        def hash_key(self):
            return self.name

    cache = PersistentCache()
    for number in range(arguments.entries):
        choice = Choice(f"choice-of-{arguments.writer}")
        cache.lookup([choice], f"op{number}", f"inputs-of-{arguments.writer}", lambda choices: {c: 0.5 for c in choices})
    path = cache.get_local_cache_path() if hasattr(cache, "get_local_cache_path") else cache.local_cache_path
    with open(path) as file:
        return {"file": str(path), "timings": timings(json.load(file)["cache"])}


def timings(tree):
    """["op/inputs/choice"]"""
    return sorted(f"{op}/{inputs}/{choice}" for op, by_inputs in tree.items() for inputs, by_precision in by_inputs.items()
                  for by_choice in by_precision.values() for choice in by_choice)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["best-config", "system"])
    parser.add_argument("--form", choices=["new", "old"], default="new")
    parser.add_argument("--directory", default=os.environ.get("TORCHINDUCTOR_CACHE_DIR"))
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--writer", default="w")
    parser.add_argument("--entries", type=int, default=8)
    arguments = parser.parse_args()
    print(json.dumps(best_config(arguments) if arguments.what == "best-config" else system(arguments)))


if __name__ == "__main__":
    main()
