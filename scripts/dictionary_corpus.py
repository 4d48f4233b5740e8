# SPDX-License-Identifier: Apache-2.0
"""Artefacts to train the codec's dictionary on: CPU jobs of torch.compile that are none of the tests' or benchmarks'.

   TORCHINDUCTOR_CACHE_DIR=DIR python corpus.py
"""
import torch

torch.manual_seed(1)


def recurrent(x, h, w, u):
    for t in range(x.shape[0]):
        h = torch.tanh(x[t] @ w + h @ u)
    return h.sum()


def statistics(x):
    return x.var(0), x.argmax(1), torch.cumsum(x, 1), x.topk(3).values, torch.sort(x, 1).values


def gather(table, index):
    return torch.nn.functional.embedding(index, table).mean(1).softmax(-1).log()


def mixed(x):
    return (x.to(torch.bfloat16).exp() * 2).float() + x.half().sigmoid().float() + x.double().cos().float()


def integers(x):
    return (x * 3 // 2 % 7).to(torch.int32).bitwise_and(5), (x > 2) & (x < 9), x.sum(), x.float().std()


def attention(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).relu().amax(-1)


def pooled(x):
    y = torch.nn.functional.max_pool2d(torch.nn.functional.pad(x, (1, 1, 1, 1)), 2)
    return torch.nn.functional.interpolate(y, scale_factor=2.0, mode="nearest").flatten(1).norm(dim=1)


class Mixer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.GroupNorm(4, 16)
        self.conv = torch.nn.Conv1d(16, 16, 3, padding=1)
        self.gate = torch.nn.Linear(24, 24)

    def forward(self, x):
        return torch.nn.functional.silu(self.gate(self.conv(self.norm(x)))) * x + torch.nn.functional.gelu(x)


torch.compile(recurrent)(torch.randn(3, 4, 8), torch.zeros(4, 8), torch.randn(8, 8, requires_grad=True),
                         torch.randn(8, 8)).backward()
torch.compile(statistics)(torch.randn(32, 40))
torch.compile(gather)(torch.randn(50, 16), torch.randint(50, (8, 5)))
torch.compile(mixed, dynamic=True)(torch.randn(77))
torch.compile(integers)(torch.randint(0, 20, (6, 31)))
torch.compile(attention)(*(torch.randn(2, 2, 16, 8) for _ in range(3)))
torch.compile(pooled)(torch.randn(2, 3, 8, 8))
mixer = Mixer()
torch.compile(mixer)(torch.randn(2, 16, 24)).square().mean().backward()
optimizer = torch.optim.AdamW(mixer.parameters())
torch.compile(optimizer.step)()
