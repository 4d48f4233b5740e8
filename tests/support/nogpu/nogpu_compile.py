#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nogpu_compile.py - run torch.compile's Inductor CUDA path on a host WITHOUT a GPU.

How it works: fake_libcuda.c (beside this file) is built to a libcuda.so.1 that answers both the CUDA
driver API and, through LD_PRELOAD, the CUDA runtime API (and a little cuBLAS). torch, Inductor and
Triton are NOT patched: they see one "NVIDIA H100 80GB HBM3", lower the graphs, compile the Triton
kernels for real (ttir..ptx, ptxas -> cubin), load the cubins, "launch" them, autotune, and write the
cache directory themselves, with their own keys, locks and renames. A second process hits that cache.

Limits: kernels do not compute (outputs are zeros), so never compare results; benchmark times are the
host's clock around no-ops, so WHICH config autotuning picks is noise (the files have the real form);
CUDA graphs, NCCL, cuDNN, CUTLASS are not covered. The device name is part of Inductor's keys, so the
entries are addressed like those of a real H100 host with the same torch/triton; never publish them to one.

Use:   python nogpu_compile.py --cache DIR [--work train,dynamic,tune,raw] [--lib DIR] [--cuda-include DIR]
Prints one JSON object on one line: seconds per phase, cache counters, kernel launches, files per family.
Other programs:  eval "$(python nogpu_compile.py --print-env --lib DIR)"; python anything.py
Exit 3: no torch with CUDA support or no triton here (a test should then skip).
"""
import argparse
import collections
import json
import os
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))

FAMILIES = [  # (family, pattern on the path relative to the cache directory), first match wins
    ("fxgraph entry", r"^fxgraph/../[^/]+/[^/]+$"),
    ("aotautograd entry", r"^aotautograd/[^/]+/[^/]+$"),
    ("triton group json", r"^triton(?:/|_cache/).*/__grp__.*\.json$"),
    ("triton cuda_utils/launcher .so", r"^triton(?:/|_cache/).*\.so$"),
    ("triton autotune json", r"\.autotune\.json$"),
    ("triton json", r"^triton(?:/|_cache/).*\.json$"),
    ("triton cubin", r"^triton(?:/|_cache/).*\.cubin$"),
    ("triton ir/ptx/source", r"^triton(?:/|_cache/).*\.(ttir|ttgir|llir|ptx|source)$"),
    ("best_config", r"\.best_config$"),
    ("system autotune", r"^cache/[0-9a-f]{64}$"),
    ("generated py", r"^[a-z2-7]{2}/[^/]+\.py$"),
    ("c++ artefact", r"\.(cpp|so|h|o)$"),
    ("lock", r"\.lock$|^locks/"),
    ("temporary", r"\.tmp|/tmp\.pid"),
]


def families(root):
    count, size = collections.Counter(), collections.Counter()
    for d, _, names in os.walk(root):
        for n in names:
            rel = os.path.relpath(os.path.join(d, n), root)
            fam = next((f for f, p in FAMILIES if re.search(p, rel)), "other: " + rel)
            count[fam] += 1
            size[fam] += os.path.getsize(os.path.join(d, n))
    return {f: [count[f], size[f]] for f in sorted(count)}


def fake_env(args):
    """Build the fake library when missing or older than its source; return the variables to set."""
    lib, src = os.path.join(args.lib, "libcuda.so.1"), os.path.join(HERE, "fake_libcuda.c")
    if not os.path.exists(lib) or os.path.getmtime(lib) < os.path.getmtime(src):
        os.makedirs(args.lib, exist_ok=True)
        tmp = f"{lib}.{os.getpid()}"
        subprocess.check_call([os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1",
                               "-I" + args.cuda_include, src, "-o", tmp, "-ldl", "-lpthread"])
        os.replace(tmp, lib)
    return {"LD_PRELOAD": lib, "TRITON_LIBCUDA_PATH": args.lib, "NOGPU_ACTIVE": "1",
            "TORCHINDUCTOR_COMPILE_THREADS": os.environ.get("TORCHINDUCTOR_COMPILE_THREADS", "2")}


# ---- workloads: each returns after real compilation and pretended execution
def work_train(torch):
    """A small transformer-like block, forward and backward (two fxgraph entries, one aotautograd entry)."""
    class Block(torch.nn.Module):
        def __init__(self, d=256):
            super().__init__()
            self.n1, self.up, self.down = torch.nn.LayerNorm(d), torch.nn.Linear(d, 4 * d), torch.nn.Linear(4 * d, d)

        def forward(self, x):
            h = torch.nn.functional.gelu(self.up(self.n1(x)))
            return torch.softmax(x + self.down(h), -1)

    m = torch.compile(Block().cuda())
    m(torch.randn(8, 64, 256, device="cuda")).square().mean().backward()


def work_dynamic(torch):
    """Dynamic shapes: guards with symbols inside the entry."""
    f = torch.compile(lambda x: torch.relu(x).cumsum(0) * x.std(), dynamic=True)
    for n in (100, 200):
        f(torch.randn(n, 33, device="cuda"))


def work_tune(torch):
    """Autotuning: several configs per kernel, coordinate descent, Triton matmul templates -> best_config."""
    f = torch.compile(lambda a, b: torch.relu(a @ b).sum(-1).sin(), options={
        "max_autotune": True, "max_autotune_gemm_backends": "ATEN,TRITON", "coordinate_descent_tuning": True,
        "max_autotune_gemm_search_space": "DEFAULT", "autotune_in_subproc": False})
    f(*(torch.randn(256, 256, device="cuda", dtype=torch.float16) for _ in range(2)))


def work_raw(torch):
    """A hand-written Triton kernel outside torch.compile: Triton's own cache and its cuda_utils .so."""
    import nogpu_raw_kernel  # written by main(): triton.jit wants a source file
    nogpu_raw_kernel.run(torch)


RAW = '''import triton
import triton.language as tl
@triton.autotune(configs=[triton.Config({"B": b}, num_warps=w) for b, w in ((128, 2), (256, 4))], key=["n"], cache_results=True)
@triton.jit
def axpy(x, y, a, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, i < n) * a + tl.load(y + i, i < n), i < n)
def run(torch):
    x = torch.zeros(5000, device="cuda")
    y = torch.zeros(5000, device="cuda")
    axpy[lambda m: (triton.cdiv(5000, m["B"]),)](x, y, 2.0, 5000)
'''


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--cache", default=os.environ.get("TORCHINDUCTOR_CACHE_DIR", "nogpu-cache"), help="becomes TORCHINDUCTOR_CACHE_DIR")
    p.add_argument("--work", default="train", help="comma list of train,dynamic,tune,raw")
    p.add_argument("--lib", default=os.path.join(HERE, "nogpu-lib"), help="folder for the built libcuda.so.1")
    p.add_argument("--cuda-include", default="/usr/local/cuda/include", help="folder of cuda.h")
    p.add_argument("--print-env", action="store_true")
    args = p.parse_args()
    args.lib, args.cache = os.path.abspath(args.lib), os.path.abspath(args.cache)
    if args.print_env:
        print("\n".join(f"export {k}='{v}'" for k, v in fake_env(args).items()))
        return 0
    if "NOGPU_ACTIVE" not in os.environ:  # LD_PRELOAD needs a fresh process
        env = {**os.environ, **fake_env(args), "TORCHINDUCTOR_CACHE_DIR": args.cache}
        os.execve(sys.executable, [sys.executable, *sys.argv], env)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = args.cache
    os.environ.setdefault("TRITON_CACHE_DIR", os.path.join(args.cache, "triton", "0"))
    scratch = tempfile.TemporaryDirectory(prefix="nogpu-")
    log = os.environ.setdefault("FAKE_CUDA_LOG", os.path.join(scratch.name, "launches"))
    with open(os.path.join(scratch.name, "nogpu_raw_kernel.py"), "w") as f:
        f.write(RAW)
    sys.path.insert(0, scratch.name)

    sec, t = {}, time.time()
    try:
        import torch
        import triton  # noqa: F401
        from torch._dynamo.utils import counters
    except ImportError as e:
        print(f"nogpu_compile: {e}", file=sys.stderr)
        return 3
    if torch.version.cuda is None or not torch.cuda.is_available():
        print("nogpu_compile: this torch has no CUDA support", file=sys.stderr)
        return 3
    torch.zeros(1, device="cuda")
    sec["import and init"], t = round(time.time() - t, 2), time.time()
    for w in args.work.split(","):
        globals()["work_" + w](torch)
        torch.cuda.synchronize()
        sec[w], t = round(time.time() - t, 2), time.time()
    keep = ("cache", "bundler", "autotun", "coordesc", "extern_calls")
    got = {f"{g}.{k}": v for g, c in counters.items() for k, v in c.items() if any(s in k for s in keep)}
    lines = open(log).read().split("\n") if os.path.exists(log) else []
    out = {"torch": torch.__version__, "triton": triton.__version__, "device": torch.cuda.get_device_name(0),
           "seconds": sec, "counters": got, "modules loaded": sum(x.startswith("load ok") for x in lines),
           "kernel launches": sum(x.startswith("launch") for x in lines), "files": families(args.cache)}
    print(json.dumps(out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
