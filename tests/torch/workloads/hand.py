#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A process with torch and Triton loaded that does what it is told through their own functions, so that a test can bring
them into an order that happens by chance otherwise. One JSON object a line on stdin, {"do": NAME, ...}; for each one on
stdout: {"result": ...} or {"error": "type: text"}."""
import ctypes
import hashlib
import importlib.util
import json
import os
import sys


def write_atomic(path, source):
    """torch's own write of anything with a final name."""
    from torch._inductor.codecache import write_atomic as write

    with open(source, "rb") as file:
        write(path, file.read(), make_dirs=True)


def build(path, source):
    """As CppBuilder.build: the linker writes the final name in place, and the build directory goes when it has ended."""
    stem = path.rsplit(".", 1)[0]
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.mkdir(stem + "_CxxBuild")
    with open(source, "rb") as file, open(path, "wb") as target:
        target.write(file.read())
    os.chmod(path, 0o755)
    os.rmdir(stem + "_CxxBuild")


def candidates(key):
    """What torch would unpickle for this key: the digest of each entry's bytes."""
    from torch._inductor.codecache import FxGraphCache

    return [hashlib.sha256(content).hexdigest() for _, content, _ in FxGraphCache.iterate_over_candidates(True, None, key)]


def probe(isa, code=None):
    """Whether torch takes this vector ISA for usable, by its probe's files."""
    from torch._inductor import cpu_vec_isa

    vec = getattr(cpu_vec_isa, isa)()
    return bool(vec.check_build(code or cpu_vec_isa.VecISA._avx_code))


def dlopen(path):
    ctypes.CDLL(path)


def compile_kernel(source, name, target, cache):
    """Triton's compile of one kernel of the given copy of kernel_set.py; what it loads afterwards."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    os.environ["TRITON_CACHE_DIR"] = cache
    spec = importlib.util.spec_from_file_location(f"kernels_{hashlib.sha256(source.encode()).hexdigest()[:8]}", source)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function, signature, constants = module.KERNELS[name]
    compiled = triton.compile(ASTSource(function, signature, constants), target=GPUTarget("cuda", target, 32))
    return {"key": directory_of(compiled.hash),
            "loaded": {kind: hashlib.sha256(data if isinstance(data, bytes) else str(data).encode()).hexdigest()
                       for kind, data in compiled.asm.items()}}


def directory_of(key):
    from triton.runtime.cache import get_cache_manager

    return os.path.basename(get_cache_manager(key).cache_dir)


def manager(cache, key):
    from triton.runtime.cache import FileCacheManager

    os.environ["TRITON_CACHE_DIR"] = cache
    return FileCacheManager(key)


def put(cache, key, name, source):
    with open(source, "rb") as file:
        return manager(cache, key).put(file.read(), name)


def put_group(cache, key, name, children):
    return manager(cache, key).put_group(name, children)


def get_group(cache, key, name):
    return manager(cache, key).get_group(name)


def main():
    # Only the answers go to stdout, whatever torch prints.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import torch  # noqa: F401
    import triton  # noqa: F401

    print(json.dumps({"result": "ready"}), file=answers, flush=True)
    actions = {function.__name__: function for function in (
        write_atomic, build, candidates, probe, dlopen, compile_kernel, put, put_group, get_group)}
    for line in sys.stdin:
        words = json.loads(line)
        try:
            answer = {"result": actions[words.pop("do")](**words)}
        except Exception as error:  # every kind of failure is the answer
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
