#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The smallest job for the CPU: one graph, one C++ kernel `kernel(const float* in, float* out)` over 256 values, no call
into libtorch. Prints one JSON object:

  counters   dynamo's cache counters
  result     the first values, whose arithmetic is x * 3.5 + 1.25, cut off at 0
  digest     SHA-256 of all
  isa        the vector ISAs that torch takes for usable

TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS=0 makes no precompiled header with torch 2.9 either, which does not read it.
"""
import hashlib
import json
import os


def main():
    import torch
    from torch._dynamo.utils import counters
    from torch._inductor import config, cpu_vec_isa

    if os.environ.get("TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS") == "0":
        config.cpp_cache_precompile_headers = False
    x = torch.linspace(-2, 2, 256)
    with torch.no_grad():
        result = torch.compile(lambda x: torch.relu(x * 3.5 + 1.25))(x)
    print(json.dumps({
        "counters": {f"{group}.{key}": value for group, values in counters.items() for key, value in values.items()
                     if "cache" in key},
        "result": result[-4:].tolist(), "digest": hashlib.sha256(result.numpy().tobytes()).hexdigest(),
        "isa": [str(isa) for isa in cpu_vec_isa.valid_vec_isa_list()]}))


if __name__ == "__main__":
    main()
