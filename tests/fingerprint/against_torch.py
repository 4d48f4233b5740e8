#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares a fingerprint with what torch and Triton say of themselves.

Use: PYTHON_OF_THE_ENVIRONMENT against_torch.py FINGERPRINT_JSON
Prints a line for each difference and exits 1 when there is one; 2 when the file cannot be used. A facet that the
fingerprint does not know is a difference too: this environment can answer all of them.
"""
import hashlib
import json
import sys
import sysconfig

import torch
from torch._inductor.codecache import CacheBase, torch_key

try:
    import triton
    from torch._inductor.runtime.triton_compat import triton_key
except ImportError:
    triton = None


def lines_of(value):
    """{key: [values]} of a facet's canonical text; a key may stand on several lines."""
    result = {}
    for line in value.splitlines() if value != "none" else ():
        key, _, text = line.partition("=")
        result.setdefault(key, []).append(text)
    return result


def devices():
    """As gpu and gpu-arch have them: sorted distinct lines."""
    if not torch.cuda.is_available():
        return {}, {}
    models, capabilities = set(), set()
    for index in range(torch.cuda.device_count()):
        found = torch.cuda.get_device_properties(index)
        capability = f"{found.major}.{found.minor}"
        gib = (found.total_memory + (1 << 29)) >> 30
        models.add(f"{found.name}; cc={capability}; sms={found.multi_processor_count}; memory_gib={gib}")
        capabilities.add(capability)
    return {"device": sorted(models)}, {"cc": sorted(capabilities)}


def thread_count():
    """Of a torch whose keys do not have it; without variables that change it."""
    from torch._inductor import codecache
    return {} if hasattr(codecache, "parallel_num_threads") else {"threads": [str(torch.get_num_threads())]}


def vector_isas():
    answers = {
        "avx2": torch.cpu._is_avx2_supported(),
        "avx512": torch.cpu._is_avx512_supported(),
        "avx512_bf16": torch.cpu._is_avx512_bf16_supported(),
        "avx512_vnni": torch.cpu._is_vnni_supported(),
        # VecAMX asks for the permission too, which the kernel may not give.
        "amx_tile": torch.cpu._is_amx_tile_supported() and torch.cpu._init_amx(),
        "amx_fp16": torch.cpu._is_amx_fp16_supported(),
    }
    return {name: ["yes" if answer else "no"] for name, answer in answers.items()}


def expected():
    gpu, gpu_arch = devices()
    facets = {
        "torch": {
            "version": [str(torch.__version__)],
            "key": [torch_key().hex()],
            "git": [torch.version.git_version or "none"],
        },
        "triton": {},
        "cuda": {"torch": [torch.version.cuda or "none"]},
        "gpu": gpu,
        "gpu-arch": gpu_arch,
        "python": {
            "implementation": [sys.implementation.name],
            "soabi": [sysconfig.get_config_var("SOABI")],
            "version": ["%d.%d" % sys.version_info[:2]],
        },
        "cpu-isa": {**vector_isas(), **thread_count()},
    }
    if triton is not None:
        key = hashlib.sha256(triton_key().encode()).hexdigest()
        facets["triton"] = {"version": [triton.__version__], "key": [key]}
    return facets


def details():
    """By facet: {key: text} of what the details should say, where torch has a word for it."""
    wanted = {"torch": {"cxx11_abi": "yes" if torch.compiled_with_cxx11_abi() else "no", "cuda": torch.version.cuda},
              "python": {"executable": sys.executable}, "gpu": {}}
    if triton is not None:
        wanted["triton"] = {"triton_key": triton_key()}
    names = {"registers_per_multiprocessor": "regs_per_multiprocessor", "shared_memory_per_block": "shared_memory_per_block",
             "shared_memory_per_block_optin": "shared_memory_per_block_optin", "warp_size": "warp_size",
             "shared_memory_per_multiprocessor": "shared_memory_per_multiprocessor", "name": "name",
             "threads_per_multiprocessor": "max_threads_per_multi_processor", "memory_bytes": "total_memory",
             "l2_cache_bytes": "L2_cache_size"}
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        found = torch.cuda.get_device_properties(index)
        for ours, theirs in names.items():
            if hasattr(found, theirs):
                wanted["gpu"][f"gpu{index}.{ours}"] = str(getattr(found, theirs))
        if hasattr(found, "uuid"):
            wanted["gpu"][f"gpu{index}.uuid"] = f"GPU-{found.uuid}"
        wanted["gpu"][f"gpu{index}.runs_code"] = "yes"
    return wanted


def system_hash(facets):
    """CacheBase.get_system()["hash"] from the fingerprint's words (its form changed in 2.15)."""
    version = {"triton": triton_key() if triton is not None else None}
    info = {"version": version}
    if "device" in facets["gpu"]:
        name = facets["gpu"]["device"][0].partition("; cc=")[0]
        info = {"device": {"name": name}, "version": {**version, "cuda": facets["cuda"]["torch"][0]}}
    elif tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 15):
        info = {}
    return hashlib.sha256(json.dumps(info, sort_keys=True).encode()).hexdigest()


def differences(facts):
    found = {}
    for name, wanted in expected().items():
        fact = facts.get(name, {})
        if not fact.get("known"):
            yield f"{name}: not known: {fact.get('problem', 'absent')}"
        found[name] = lines_of(fact.get("value", "none"))
        for key in sorted(set(wanted) | set(found[name])):
            # What torch has no word for: the wheel's RECORD, the driver's level.
            if key not in wanted and key in ("record", "driver", "hip"):
                continue
            if wanted.get(key) != found[name].get(key):
                yield f"{name}: {key}: torch says {wanted.get(key)}, the fingerprint {found[name].get(key)}"
    for name, wanted in details().items():
        said = lines_of(facts.get(name, {}).get("details", ""))
        for key, text in wanted.items():
            if text is not None and said.get(key) != [text]:
                yield f"{name}: details: {key}: torch says {text}, the fingerprint {said.get(key)}"
    if len(found["gpu"].get("device", [])) <= 1:  # with several models torch takes the current device
        ours, theirs = system_hash(found), CacheBase.get_system()["hash"]
        if ours != theirs:
            yield f"system hash: torch says {theirs}, the fingerprint's facts give {ours}"


def main():
    try:
        with open(sys.argv[1], encoding="utf-8") as file:
            facts = json.load(file)["facets"]
    except (IndexError, OSError, ValueError, KeyError) as error:
        print(f"against_torch.py: no fingerprint: {error!r}", file=sys.stderr)
        return 2
    found = list(differences(facts))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
