#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What torch makes in its cache directory and stays on its host.

  private.py cutlass DIR       what CUTLASS's back end does with a source, for the CUTLASS in this directory: compiles and
                               links it by the nvcc in CUDACXX; prints {"library": its path, "key": cutlass_key()}
  private.py aoti PACKAGE      compiles and packages a function (AOTInductor), and runs the package; prints {"result"}
"""
import json
import os
import sys

import torch
from torch._inductor import codecache, config


def cutlass(directory):
    config.cuda.arch = "90"  # else that of the first device
    config.cutlass.cutlass_dir = directory
    library, _, _ = codecache.CUDACodeCache.compile('#include "cutlass/cutlass.h"\n', "so")
    return {"library": library, "key": codecache.cutlass_key().hex()}


def aoti(package):
    class Double(torch.nn.Module):
        def forward(self, x):
            return x * 2

    exported = torch.export.export(Double(), (torch.ones(8),))
    torch._inductor.aoti_compile_and_package(exported, package_path=package)
    return {"result": torch._inductor.aoti_load_package(package)(torch.ones(8)).sum().item(), "size": os.path.getsize(package)}


if __name__ == "__main__":
    print(json.dumps({"cutlass": cutlass, "aoti": aoti}[sys.argv[1]](*sys.argv[2:])))
