#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What programs do to the cache directory as a whole.

  cache_api.py fresh     compiles inside fresh_cache(dir=TORCHINDUCTOR_CACHE_DIR); prints {"result", "inside", "left"}
  cache_api.py rmtree    shutil.rmtree(TORCHINDUCTOR_CACHE_DIR); prints {"errors": [[function, path, errno]], "left"}
"""
import json
import os
import shutil
import sys

import cpu_jobs


def fresh(cache):
    import torch
    from torch._inductor.utils import fresh_cache

    before, inside = set(os.listdir(cache)), []
    with fresh_cache(dir=cache):
        result = cpu_jobs.digest(cpu_jobs.dynamic(torch))
        place = os.environ["TORCHINDUCTOR_CACHE_DIR"]
        for directory, _, files in os.walk(place):
            inside += [os.path.relpath(os.path.join(directory, name), place) for name in files]
    return {"result": result, "inside": len(inside), "left": sorted(set(os.listdir(cache)) - before)}


def rmtree(cache):
    errors = []
    shutil.rmtree(cache, onerror=lambda function, path, info: errors.append(
        [function.__name__, os.path.relpath(path, cache), info[1].errno]))
    return {"errors": errors, "left": sorted(os.listdir(cache)) if os.path.exists(cache) else []}


if __name__ == "__main__":
    print(json.dumps({"fresh": fresh, "rmtree": rmtree}[sys.argv[1]](os.environ["TORCHINDUCTOR_CACHE_DIR"])))
