#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One function, called with a tensor of each size in turn: pgo.py 4,3 5,3. Torch compiles it for the first size, then for
any in the dimension that changed; where it knows from an earlier run which one changes, for any at once. Prints
{"compiled": how many times, "results": ...}."""
import json
import sys

import torch
from torch._dynamo.testing import CompileCounter

counter = CompileCounter()


@torch.compile(backend=counter)
def work(x):
    return x * 2 + x.shape[0]


sizes = [[int(length) for length in size.split(",")] for size in sys.argv[1:]]
results = [work(torch.ones(size)).sum().item() for size in sizes]
print(json.dumps({"compiled": counter.frame_count, "results": results}))
