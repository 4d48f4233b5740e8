#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the kernels of kernel_set.py for the given architectures, without a GPU. Prints one JSON object:

  stages    how often each compile stage ran ("make_ir", "ttir", ..., "cubin"), counted in this process
  cubins    SHA-256 of each cubin, by "<architecture>/<kernel>"
  keys      the cache key of each
  seconds   wall time of all compiles, the import of triton not counted

Options: --targets 80,90,100   --only NAME,NAME
"""
import argparse
import collections
import hashlib
import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))


def count_stages(counter):
    """Wraps the stages where the compiler asks for them. Triton's own hook for stages would be in the key."""
    from triton.backends.nvidia.compiler import CUDABackend
    from triton.compiler import ASTSource

    add_stages, make_ir = CUDABackend.add_stages, ASTSource.make_ir

    def counted(name, stage):
        def run(*arguments, **keywords):
            counter[name] += 1
            return stage(*arguments, **keywords)
        return run

    def add_counted_stages(self, stages, *arguments, **keywords):
        add_stages(self, stages, *arguments, **keywords)
        for name, stage in list(stages.items()):
            stages[name] = counted(name, stage)

    CUDABackend.add_stages = add_counted_stages
    ASTSource.make_ir = counted("make_ir", make_ir)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", default="80,90,100")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()

    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    import kernel_set

    stages = collections.Counter()
    count_stages(stages)
    names = arguments.only.split(",") if arguments.only else list(kernel_set.KERNELS)
    cubins, keys = {}, {}
    start = time.monotonic()
    for target in map(int, arguments.targets.split(",")):
        for name in names:
            function, signature, constants = kernel_set.KERNELS[name]
            compiled = triton.compile(ASTSource(function, signature, constants), target=GPUTarget("cuda", target, 32))
            cubins[f"{target}/{name}"] = hashlib.sha256(compiled.asm["cubin"]).hexdigest()
            keys[f"{target}/{name}"] = compiled.hash
    print(json.dumps({"triton": triton.__version__, "stages": dict(stages), "cubins": cubins, "keys": keys,
                      "seconds": round(time.monotonic() - start, 3)}))


if __name__ == "__main__":
    main()
