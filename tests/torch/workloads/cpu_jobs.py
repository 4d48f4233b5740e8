#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Three jobs that compile for the CPU: a training step of a 4-block GPT, inference of a convolution net, and an MLP
with dynamic shapes. About 26 C++ kernels, 4 graphs. Prints one JSON object:

  compile_seconds   from the first call to the last result, imports not counted
  counters          dynamo's cache counters
  results           SHA-256 of every result's bytes, for comparison to the bit
  torch             its version
  load_seconds      what --load took before
  vectorized        how many of the loaded modules of generated code have vector instructions in their C++ code

Options: --jobs train,inference,dynamic   --save FILE / --load FILE (torch.compiler.save/load_cache_artifacts)
  --salt N (other graphs for each number but 0)
"""
import argparse
import hashlib
import json
import time

SALT = 0  # --salt


def salted(value):
    return value * (1 + SALT / 1024) if SALT else value


def with_salt(torch):
    """A last layer."""
    class Salted(torch.nn.Module):
        def forward(self, x):
            return salted(x)

    return [Salted()] if SALT else []


def digest(tensors):
    """One digest for a list of tensors: shape, type and bytes."""
    total = hashlib.sha256()
    for tensor in tensors:
        tensor = tensor.detach().contiguous()
        total.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
        total.update(tensor.numpy().tobytes())
    return total.hexdigest()


def train(torch):
    """One training step: forward, backward, and the gradients are the result."""
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads = heads
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            batch, length, width = x.shape
            q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                       for part in self.qkv(self.first(x)).chunk(3, -1))
            scores = (q @ k.transpose(-1, -2)) / (q.shape[-1] ** 0.5)
            mask = torch.ones(length, length, dtype=torch.bool).tril()
            weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
            x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))
            return x + self.down(functional.gelu(self.up(self.second(x))))

    class Gpt(nn.Module):
        def __init__(self, words=97, width=64, heads=4, blocks=4, length=32):
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            self.blocks = nn.ModuleList(Block(width, heads) for _ in range(blocks))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

        def forward(self, tokens, targets):
            x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
            for block in self.blocks:
                x = block(x)
            logits = self.head(self.norm(x))
            return salted(functional.cross_entropy(logits.flatten(0, 1), targets.flatten()))

    # The gradient of an embedding is a sum by atomic additions, whose order differs from run to run.
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(1)
    model = Gpt()
    tokens, targets = torch.randint(0, 97, (4, 32)), torch.randint(0, 97, (4, 32))
    loss = torch.compile(model)(tokens, targets)
    loss.backward()
    torch.use_deterministic_algorithms(False)
    return [loss, *(parameter.grad for parameter in model.parameters())]


def inference(torch):
    """A convolution net in evaluation mode."""
    nn = torch.nn

    class Unit(nn.Module):
        def __init__(self, inside, outside, stride):
            super().__init__()
            self.conv = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
            self.norm = nn.BatchNorm2d(outside)
            self.skip = nn.Conv2d(inside, outside, 1, stride)

        def forward(self, x):
            return torch.relu(self.norm(self.conv(x)) + self.skip(x))

    torch.manual_seed(2)
    model = nn.Sequential(Unit(3, 16, 1), Unit(16, 32, 2), nn.MaxPool2d(2), Unit(32, 48, 2),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 10), nn.LogSoftmax(-1), *with_salt(torch)).eval()
    with torch.no_grad():
        return [torch.compile(model)(torch.randn(2, 3, 32, 32))]


def dynamic(torch):
    """An MLP whose batch size is a symbol: guards in the entry. No layer with a float argument (LayerNorm's eps): with
    dynamic=True dynamo makes that a tensor first, restarts, and leaves one autograd miss even on a warm local start."""
    nn = torch.nn
    torch.manual_seed(3)
    model = torch.compile(nn.Sequential(nn.Linear(24, 40), nn.SiLU(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 7),
                                        nn.Softmax(-1), *with_salt(torch)),
                          dynamic=True)
    with torch.no_grad():
        return [model(torch.randn(rows, 24)) for rows in (5, 9, 17)]


def vectorized_modules():
    from torch._inductor.codecache import PyCodeCache

    count = 0
    for file in {module.__file__ for module in PyCodeCache.modules}:
        with open(file) as source:
            count += "at::vec::Vectorized" in source.read()
    return count


def main():
    global SALT
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", default="train,inference,dynamic")
    parser.add_argument("--save", help="write torch.compiler.save_cache_artifacts() to this file")
    parser.add_argument("--load", help="load_cache_artifacts() from this file before anything is compiled")
    parser.add_argument("--salt", type=int, default=0)
    arguments = parser.parse_args()
    SALT = arguments.salt

    import torch
    import torch._dynamo  # its import is no compile time
    from torch._dynamo.utils import counters

    out = {"torch": torch.__version__, "results": {}, "seconds": {}}
    if arguments.load:
        begin = time.monotonic()
        with open(arguments.load, "rb") as file:
            loaded = torch.compiler.load_cache_artifacts(file.read())
        out["loaded"] = {kind: len(keys) for kind, keys in loaded.artifacts.items()}
        out["load_seconds"] = round(time.monotonic() - begin, 3)
    start = time.monotonic()
    for name in arguments.jobs.split(","):
        begin = time.monotonic()
        result = globals()[name](torch)
        out["seconds"][name] = round(time.monotonic() - begin, 3)
        out["results"][name] = digest(result)
    out["compile_seconds"] = round(time.monotonic() - start, 3)
    out["counters"] = {f"{group}.{key}": value for group, values in counters.items() for key, value in values.items()
                       if "cache" in key}
    out["vectorized"] = vectorized_modules()
    if arguments.save:
        data, info = torch.compiler.save_cache_artifacts()
        with open(arguments.save, "wb") as file:
            file.write(data)
        out["saved"] = {kind: len(keys) for kind, keys in info.artifacts.items()}
    print(json.dumps(out))


if __name__ == "__main__":
    main()
