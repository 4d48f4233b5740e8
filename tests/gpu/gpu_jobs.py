# SPDX-License-Identifier: Apache-2.0
"""A training step, a reduction and a tuned matmul on the CUDA device; prints one JSON object."""
import hashlib
import json
import time

import torch
from torch._dynamo.utils import counters

torch.manual_seed(0)
torch.backends.cuda.matmul.allow_tf32 = False


def digest(*tensors):
    hashed = hashlib.sha256()
    for tensor in tensors:
        hashed.update(tensor.detach().contiguous().cpu().numpy().tobytes())
    return hashed.hexdigest()


def train():
    model = torch.nn.Sequential(torch.nn.LayerNorm(256), torch.nn.Linear(256, 1024), torch.nn.GELU(),
                                torch.nn.Linear(1024, 256)).cuda()
    x = torch.randn(64, 256, device="cuda")
    compiled = torch.compile(model)
    compiled(x).square().mean().backward()
    return digest(*(parameter.grad for parameter in model.parameters()))


def reduce():
    return digest(torch.compile(lambda x: torch.softmax(x, -1).cumsum(0).std(1))(torch.randn(500, 333, device="cuda")))


def tune():
    tuned = torch.compile(lambda a, b: torch.relu(a @ b).sum(-1), options={
        "max_autotune": True, "max_autotune_gemm_backends": "ATEN,TRITON", "coordinate_descent_tuning": True})
    return digest(tuned(*(torch.randn(512, 512, device="cuda") for _ in range(2))))


def main():
    torch.zeros(1, device="cuda")
    begun = time.monotonic()
    results = {"train": train(), "reduce": reduce(), "tune": tune()}
    torch.cuda.synchronize()
    kept = {f"{group}.{name}": count for group, found in counters.items() for name, count in found.items()
            if "cache" in name or "coordesc" in name}
    print(json.dumps({"device": torch.cuda.get_device_name(0), "results": results, "counters": kept,
                      "compile_seconds": round(time.monotonic() - begun, 3)}))


if __name__ == "__main__":
    main()
