#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch's own on-disk caches, which live in its default directory whatever TORCHINDUCTOR_CACHE_DIR says.

  on_disk_cache.py pad M,K,N ...         asks pad_mm.py for each product of matrices; prints {"measured": what it measured,
                                         "answers"}. In place of the GPU's benchmark is a constant: the rest is torch's own.
  on_disk_cache.py insert KEY VALUE      InductorOnDiskCache; prints {"inserted": whether there was none, "value": what is there then}
  on_disk_cache.py get KEY ...           prints {"values": null where there is none}
  on_disk_cache.py part KEY VALUE A B    writes these bytes of what insert would write; prints {"path", "size"}
  on_disk_cache.py fresh                 compiles in fresh_cache(), which empties the caches; prints {"left": of pad's}
"""
import json
import os
import pickle
import sys
from types import SimpleNamespace

import torch
from torch._inductor.cache import InductorOnDiskCache


def pad(*products):
    from torch._inductor.fx_passes import pad_mm  # half a second of imports, which few of the commands need

    measured = []

    def measure(m, k, n, _):
        measured.append(f"{m},{k},{n}")
        return False

    pad_mm.is_mm_compute_bound = measure
    answers = []
    for product in products:
        m, k, n = (int(length) for length in product.split(","))
        one, other = torch.ones(m, k), torch.ones(k, n)
        graph, inputs = torch.fx.Graph(), {}
        for name, value in (("mat1", one), ("mat2", other)):
            inputs[name] = graph.placeholder(name)
            inputs[name].meta["val"] = value
        answers.append(pad_mm._should_pad(SimpleNamespace(kwargs=inputs), one, other, torch.ops.aten.mm))
    return {"measured": measured, "answers": answers}


def insert(key, value):
    cache = InductorOnDiskCache()
    return {"inserted": cache.insert(key, value), "value": cache.get(key)}


def get(*keys):
    return {"values": [InductorOnDiskCache().get(key) for key in keys]}


def part(key, value, begin, end):
    cache = InductorOnDiskCache()
    path = cache._fpath_from_key(key)
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = cache.version_prefix + pickle.dumps(value)
    with open(path, "ab" if int(begin) else "xb") as file:
        file.write(whole[int(begin):int(end)])
    return {"path": str(path), "size": len(whole)}


def fresh():
    from torch._inductor.fx_passes import pad_mm
    from torch._inductor.utils import fresh_cache

    with fresh_cache():
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))
    place = pad_mm.memoizers.should_pad_memoizer._disk_cache._cache_dir
    return {"left": sorted(os.listdir(place)) if place.exists() else []}


if __name__ == "__main__":
    print(json.dumps({"pad": pad, "insert": insert, "get": get, "part": part, "fresh": fresh}[sys.argv[1]](*sys.argv[2:])))
