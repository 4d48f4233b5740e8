#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Many processes on several nodes compile the same kernels at the same moment, round after round.

  storm.py --node NAME=TRITON_CACHE_DIR --node NAME=TRITON_CACHE_DIR --processes 8 --rounds 20 --scratch DIR

Each process imports a copy of kernel_set.py from a path of its own, which Triton writes into every IR and, as line
information, into the cubin: so each file tells who wrote it. Each round's copies begin with one empty line more, and the
number of the first line is in Triton's key: so each round has keys that no process has seen. A barrier before each kernel.
One process imports triton and forks the others. Prints one JSON object:

  errors    [[round, process, kernel, traceback]]
  mixed     [[round, process, kernel, writers]]  what CompiledKernel loaded came from more than one writer
  writers   the names of the processes whose files were loaded, sorted
  kinds     the kinds of files that each kernel was loaded with, as texts, sorted
  compiles  how often a whole compile ran (a hit runs none)
  keys      {round: sorted keys}
"""
import argparse
import importlib.util
import json
import multiprocessing
import os
import re
import sys
import traceback
from pathlib import Path

WRITER = re.compile(rb"writer-([a-z0-9]+-\d+)/")
NAMES = ("axpy", "sigmoid", "swiglu", "softmax", "layer_norm", "row_sum", "running_sum", "dropout")
BARRIER_SECONDS = 120


def load_kernels(scratch, process, turn):
    """The kernels of one round from this process's own path."""
    source = (Path(__file__).parent / "kernel_set.py").read_text()
    path = Path(scratch) / f"writer-{process}" / f"kernels_{turn}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n" * turn + source)
    spec = importlib.util.spec_from_file_location(f"kernels_{turn}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.KERNELS


def writers_of(compiled):
    found = set()
    for value in compiled.asm.values():
        value = value if isinstance(value, bytes) else str(value).encode()
        found |= {writer.decode() for writer in WRITER.findall(value)}
    return sorted(found)


def work(process, cache, arguments, barrier, results):
    os.environ["TRITON_CACHE_DIR"] = cache
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.compiler import CUDABackend
    from triton.compiler import ASTSource

    out = {"process": process, "errors": [], "mixed": [], "compiles": 0, "keys": {}, "writers": set(), "kinds": set()}
    add_stages = CUDABackend.add_stages

    def counted_stages(self, stages, *rest, **keywords):
        out["compiles"] += 1
        return add_stages(self, stages, *rest, **keywords)

    CUDABackend.add_stages = counted_stages
    for turn in range(arguments.first, arguments.first + arguments.rounds):
        kernels = load_kernels(arguments.scratch, process, turn)
        for name in NAMES:
            barrier.wait(BARRIER_SECONDS)
            function, signature, constants = kernels[name]
            try:
                compiled = triton.compile(ASTSource(function, signature, constants), target=GPUTarget("cuda", 90, 32))
                out["keys"].setdefault(str(turn), []).append(compiled.hash)
                out["writers"].update(writers := writers_of(compiled))
                out["kinds"].add(" ".join(sorted(compiled.asm)))
                if len(writers) != 1:
                    out["mixed"].append([turn, process, name, writers])
            except Exception:  # every kind of failure is the result
                out["errors"].append([turn, process, name, traceback.format_exc()])
    results.put(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--node", action="append", required=True)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="number of the first round")
    parser.add_argument("--scratch", required=True)
    arguments = parser.parse_args()

    import triton  # noqa: F401 (once, before the fork)
    from triton.runtime.cache import triton_key
    triton_key()

    context = multiprocessing.get_context("fork")
    nodes = dict(node.split("=", 1) for node in arguments.node)
    barrier, results = context.Barrier(len(nodes) * arguments.processes), context.Queue()
    workers = [context.Process(target=work, args=(f"{name}-{i}", cache, arguments, barrier, results))
               for name, cache in nodes.items() for i in range(arguments.processes)]
    for worker in workers:
        worker.start()
    outs = [results.get(timeout=900) for _ in workers]
    for worker in workers:
        worker.join(60)
    keys = {}
    for out in outs:
        for turn, some in out["keys"].items():
            keys.setdefault(turn, set()).update(some)
    print(json.dumps({"errors": sum((out["errors"] for out in outs), []), "mixed": sum((out["mixed"] for out in outs), []),
                      "compiles": sum(out["compiles"] for out in outs),
                      **{what: sorted(set().union(*(out[what] for out in outs))) for what in ("writers", "kinds")},
                      "keys": {turn: sorted(some) for turn, some in keys.items()}}))
    return 0 if all(worker.exitcode == 0 for worker in workers) else 1


if __name__ == "__main__":
    sys.exit(main())
