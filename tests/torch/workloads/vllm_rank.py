#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of a server that keeps its compile cache as vLLM does (vllm/compilation: compiler_interface.py, backends.py, decorators.py), on
the rank's own device:

  torch_compile_cache/<hash>/rank_<r>_0/inductor_cache, triton_cache   torch's and Triton's, by their variables
  torch_compile_cache/<hash>/rank_<r>_0/backbone/                      its own: an index of absolute paths, artifacts, reports
  torch_compile_cache/torch_aot_compile/<hash>/inductor_cache          torch's, for all ranks
  torch_compile_cache/torch_aot_compile/<hash>/rank_<r>_0/model        its own
  modelinfos/, gpu_p2p_access_cache_for_0,1.json                       its own

Prints one JSON object: counters, dynamo's cache counters; own, {its own file below the root: SHA-256}; inductor, torch's directory.
Options: --root VLLM_CACHE_ROOT   --rank 0   --mode inductor|aot   --text what its own files hold
"""
import argparse
import hashlib
import json
import os
import tempfile
from pathlib import Path

import triton
import triton.language as tl

HASH, AOT_HASH = "0123456789", "ab" * 32


@triton.jit
def axpy(x, y, a, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, i < n) * a + tl.load(y + i, i < n), i < n)


class Cache:
    """vLLM's files of this rank."""

    def __init__(self, root, rank, text):
        self._text, self.own = text.encode(), []
        self._compiled = root / "torch_compile_cache" / HASH / f"rank_{rank}_0"
        self._aot = root / "torch_compile_cache" / "torch_aot_compile" / AOT_HASH
        self._root, self._rank = root, rank

    def initialize(self, mode):
        """compiler_interface.py: InductorAdaptor.initialize_cache, and decorators.py for AOT."""
        if mode == "aot":
            places = {"TORCHINDUCTOR_CACHE_DIR": self._aot / "inductor_cache"}
        else:
            places = {"TORCHINDUCTOR_CACHE_DIR": self._compiled / "inductor_cache", "TRITON_CACHE_DIR": self._compiled / "triton_cache"}
        for variable, directory in places.items():
            os.makedirs(directory, exist_ok=True)
            os.environ[variable] = str(directory)

    def _in_place(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self._text)
        self.own.append(path)

    def _replaced(self, path, temporary):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(self._text)
        os.replace(temporary, path)
        self.own.append(path)

    def save(self):
        base = self._compiled / "backbone"
        for name in ("vllm_compile_cache.py", "cache_key_factors.json", "computation_graph.py"):
            self._in_place(base / name)
        for graph in range(2):
            artifact = base / f"artifact_compile_range_1_2048_subgraph_{graph}"
            self._replaced(artifact, base / f".{os.getpid()}.{graph}.tmp")
        model = self._aot / f"rank_{self._rank}_0" / "model"
        self._replaced(model, model.with_name(f"model.{os.getpid()}.tmp"))
        info = self._root / "modelinfos" / f"vllm-model_executor-models-llama-LlamaForCausalLM-{self._rank}.json"
        info.parent.mkdir(parents=True, exist_ok=True)
        self._replaced(info, tempfile.mktemp(dir=info.parent))
        self._in_place(self._root / f"gpu_p2p_access_cache_for_{self._rank},1.json")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--mode", choices=["inductor", "aot"], default="inductor")
    parser.add_argument("--text", default="its own")
    arguments = parser.parse_args()
    cache = Cache(arguments.root, arguments.rank, arguments.text)
    cache.initialize(arguments.mode)

    import torch
    from torch._dynamo.utils import counters

    torch.cuda.set_device(arguments.rank)
    model = torch.compile(lambda x: torch.relu(x).cumsum(0) * x.std(), dynamic=True)
    for rows in (100, 200):
        model(torch.randn(rows, 33, device="cuda"))
    x, y = (torch.zeros(5000, device="cuda") for _ in range(2))
    axpy[(triton.cdiv(5000, 128),)](x, y, 2.0, 5000, 128)
    torch.cuda.synchronize()
    cache.save()
    print(json.dumps({
        "counters": {f"{group}.{key}": value for group, values in counters.items() for key, value in values.items() if "cache" in key},
        "own": {str(path.relative_to(arguments.root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in cache.own},
        "inductor": os.environ["TORCHINDUCTOR_CACHE_DIR"]}))


if __name__ == "__main__":
    main()
