#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One graph with one C++ kernel, without precompiled headers, which take each cold job 10 s and 150 MB more; and one Triton kernel for the
architecture 90, without a GPU. Prints one JSON object:

  counters   dynamo's cache counters
  digest     SHA-256 of the graph's result
  stages     how many stages of Triton's compiler ran
  cubin      SHA-256 of the kernel's binary
  seconds    wall time of both, the imports not counted

Options: --graph N (another graph for each number)
"""
import argparse
import collections
import hashlib
import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", type=int, default=0)
    offset = 1.25 + parser.parse_args().graph

    import torch
    import torch._dynamo  # its import is no compile time
    import triton
    from torch._dynamo.utils import counters
    from torch._inductor import config
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    import kernel_set
    from triton_kernels import count_stages

    config.cpp_cache_precompile_headers = False  # torch 2.9 reads no variable for it
    stages = collections.Counter()
    count_stages(stages)
    begin = time.monotonic()
    with torch.no_grad():
        result = torch.compile(lambda x: torch.relu(x * 3.5 + offset))(torch.linspace(-2, 2, 256))
    function, signature, constants = kernel_set.KERNELS["axpy"]
    compiled = triton.compile(ASTSource(function, signature, constants), target=GPUTarget("cuda", 90, 32))
    print(json.dumps({
        "seconds": round(time.monotonic() - begin, 3), "digest": hashlib.sha256(result.numpy().tobytes()).hexdigest(),
        "cubin": hashlib.sha256(compiled.asm["cubin"]).hexdigest(), "stages": sum(stages.values()),
        "counters": {f"{group}.{key}": value for group, values in counters.items() for key, value in values.items() if "cache" in key}}))


if __name__ == "__main__":
    main()
