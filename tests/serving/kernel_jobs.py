#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job that needs a kernel of one library, whose own code looks for it in the cache directory, compiles it and keeps it there. The GPU
is the stand-in of tests/support/nogpu: kernels are compiled for sm_90 by NVCC, and launched nowhere. Where the cache is, is said by the
variables of `inductorfs env` alone. Prints one JSON object: whether the kernel came from the cache, the seconds, and the directory that
it was loaded from.

Usage: kernel_jobs.py tilelang|sglang|flashinfer SOURCES [SEED]. SOURCES: a directory that all jobs have in common."""
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path


def tilelang(_, seed):
    """tilelang/cache/kernel_cache.py: KernelCache.cached."""
    import tilelang as library
    import tilelang.language as T
    from tilelang.cache.kernel_cache import KernelCache

    def program(addend):
        @T.prim_func
        def main(A: T.Tensor((256,), "float32"), B: T.Tensor((256,), "float32")):
            with T.Kernel(2, threads=128) as block:
                for i in T.Parallel(128):
                    B[block * 128 + i] = A[block * 128 + i] + addend
        return main

    found = []
    original = KernelCache._load_kernel_from_disk

    def told(self, *arguments, **keywords):
        found.append(original(self, *arguments, **keywords))
        return found[-1]

    KernelCache._load_kernel_from_disk = told
    kernel = library.compile(program(float(seed)), out_idx=[1], target={"kind": "cuda", "arch": "sm_90"}, execution_backend="cython")
    return found[-1] is not None, kernel._tilelang_cache_path


def sglang(sources, seed):
    """sglang/kernels/jit/utils/compile/loader.py: load_jit."""
    from sglang.kernels.jit.utils.compile import cache, load_jit, ninja

    source = sources / "more.cpp"
    if not source.exists():
        source.write_text("namespace sglang { inline int more(int x) { return x + 1; } }\n")
    built = []
    original = ninja.build
    ninja.build = lambda **keywords: built.append(True) or original(**keywords)
    module = load_jit(f"more_{seed}", cpp_files=[str(source)], cpp_wrappers=[("more", "more")])
    assert module.more(41) == 42
    (leaf,) = cache.cache_root().glob(f"*/sgl_kernel_jit_more_{seed}/build-*/deps-*")
    return not built, leaf


def flashinfer(repository, seed):
    """flashinfer/jit/cubin_loader.py: get_artifact, with a repository on this disk."""
    name = f"{int(seed):040x}/fmha/trtllm-gen/Fmha.cubin"
    original = repository / name
    if not original.exists():
        original.parent.mkdir(parents=True, exist_ok=True)
        source = repository / "kernel.cu"
        source.write_text("__global__ void kernel(float *x) { x[0] = %s; }\n" % seed)
        subprocess.run(["nvcc", "-cubin", "-arch=sm_90", "-o", original, source], check=True, timeout=120)
    os.environ["FLASHINFER_CUBINS_REPOSITORY"] = str(repository)
    from flashinfer.jit import cubin_loader
    from flashinfer.jit.env import FLASHINFER_CUBIN_DIR

    digest = hashlib.sha256(original.read_bytes()).hexdigest()
    downloaded = []
    download = cubin_loader.download_file
    cubin_loader.download_file = lambda *arguments, **keywords: downloaded.append(True) or download(*arguments, **keywords)
    cubin_loader.safe_urljoin = lambda base, path: f"{base}/{path}"
    assert cubin_loader.get_artifact(name, digest) == original.read_bytes()
    return not downloaded, FLASHINFER_CUBIN_DIR / name


def main():
    library, sources, seed = sys.argv[1], Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "1"
    began = time.monotonic()
    hit, where = {"tilelang": tilelang, "sglang": sglang, "flashinfer": flashinfer}[library](sources, seed)
    print(json.dumps({"hit": hit, "seconds": round(time.monotonic() - began, 2), "where": str(where)}))


if __name__ == "__main__":
    main()
