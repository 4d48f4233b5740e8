# SPDX-License-Identifier: Apache-2.0
"""One training step of two small transformers on the CUDA device, or the CPU where there is none; prints one JSON object."""
import hashlib
import json
import time

import torch
from torch._dynamo.utils import counters

HEADS = 8
DEVICE, DTYPE = ("cuda", torch.bfloat16) if torch.cuda.is_available() else ("cpu", torch.float32)
BATCH, TOKENS = (4, 256) if DEVICE == "cuda" else (1, 16)
MODELS = ((512, 4), (768, 2)) if DEVICE == "cuda" else ((64, 1),)  # width, blocks


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.before, self.between = torch.nn.LayerNorm(width), torch.nn.RMSNorm(width)
        self.projections, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.widen = torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.SiLU(), torch.nn.Linear(4 * width, width))

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = self.projections(self.before(x)).view(batch, tokens, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        seen = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.widen(self.between(x))


def step(width, blocks):
    torch._dynamo.reset()
    model = torch.compile(torch.nn.Sequential(*(Block(width) for _ in range(blocks))).to(DEVICE, DTYPE))
    result = model(torch.randn(BATCH, TOKENS, width, device=DEVICE, dtype=DTYPE))
    result.float().square().mean().backward()
    return hashlib.sha256(result.detach().float().cpu().numpy().tobytes()).hexdigest()


def main():
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    torch.zeros(1, device=DEVICE)
    begun = time.monotonic()
    results = [step(width, blocks) for width, blocks in MODELS]
    print(json.dumps({"seconds": round(time.monotonic() - begun, 2), "results": results, "misses": counters["inductor"]["fxgraph_cache_miss"],
                      "device": torch.cuda.get_device_name(0) if DEVICE == "cuda" else "CPU"}))


if __name__ == "__main__":
    main()
