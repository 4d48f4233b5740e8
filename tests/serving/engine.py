#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An engine of vLLM on a CPU that takes the way of a GPU through vllm/compilation: VLLM_COMPILE with inductor, piecewise graphs, and the files
that --mode names. The model is a Llama of two layers with dummy weights, whose config.json is written to --model. Generates a few
tokens, and prints one JSON object:

  import_seconds   for the imports of vLLM and torch
  ready_seconds    from then until the engine could answer
  answered_seconds from the start of this program until it had answered once
  tokens           what it generated
  vllm             vllm.compilation.counter
  torch            dynamo's cache counters, and dynamo_compiles: how many frames dynamo traced
  inspections      how often vLLM has started a process to look at the model's class, which modelinfos/ saves
  inductor         TORCHINDUCTOR_CACHE_DIR as vLLM has set it
  root             VLLM_CACHE_ROOT

Options: --mode mega|index|artifacts|unpacked   --model DIRECTORY   --hold KIND:PATTERN ... and --hold-at DIRECTORY (holds.py)
  --stay FILE (prints "ready", and when FILE is there answers once more and tells the second answer as "again")
"""
import argparse
import dataclasses
import json
import os
import sys
import time
from pathlib import Path

from holds import Holds

# {mode: variables}: `model` holds every graph; `model` and an index of artifacts; an index of artifacts; the same with directories.
MODES = {"mega": {"VLLM_USE_AOT_COMPILE": "1", "VLLM_USE_MEGA_AOT_ARTIFACT": "1"},
         "index": {"VLLM_USE_AOT_COMPILE": "1", "VLLM_USE_MEGA_AOT_ARTIFACT": "0"},
         "artifacts": {"VLLM_USE_AOT_COMPILE": "0", "VLLM_USE_MEGA_AOT_ARTIFACT": "0"},
         "unpacked": {"VLLM_USE_AOT_COMPILE": "0", "VLLM_USE_MEGA_AOT_ARTIFACT": "0", "VLLM_COMPILE_CACHE_SAVE_FORMAT": "unpacked"}}
ALWAYS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
          "VLLM_HOST_IP": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2,
          "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 512, "max_position_embeddings": 256,
          "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "float32",
          "bos_token_id": 1, "eos_token_id": 2}
PROMPTS = [list(range(3, 20)), list(range(100, 140))]


def write_model(directory):
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps(CONFIG)
    if not (directory / "config.json").exists() or (directory / "config.json").read_text() != text:
        (directory / "config.json").write_text(text)


def take_the_way_of_a_gpu():
    """CpuPlatform takes VLLM_COMPILE for DYNAMO_TRACE_ONCE, whose `model` never loads, and lacks the operators that one pass asks for."""
    from vllm.compilation.passes.utility.fix_functionalization import FixFunctionalizationPass
    from vllm.config import CompilationMode
    from vllm.platforms.cpu import CpuPlatform

    original = CpuPlatform.check_and_update_config.__func__

    def check_and_update_config(cls, config):
        wanted = config.compilation_config.mode
        original(cls, config)
        compilation = config.compilation_config
        if wanted == CompilationMode.VLLM_COMPILE:
            compilation.mode, compilation.backend, compilation.compile_sizes = wanted, "inductor", []

    CpuPlatform.check_and_update_config = classmethod(check_and_update_config)
    FixFunctionalizationPass.__call__ = lambda self, graph: None


def pick_the_instruction_set():
    """In one thread, before vLLM loads graphs in several: torch 2.13 changes the flags of an instruction set while it probes for another one
    (cpu_vec_isa.py, VecAVX512.__bool__), and a kernel that another thread names meanwhile gets another name, on a plain directory too."""
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    pick_vec_isa()


def engine(model):
    from vllm import LLM

    off = {f"fuse_{what}": False for what in ("norm_quant", "act_quant", "attn_quant")}
    return LLM(model=str(model), load_format="dummy", skip_tokenizer_init=True, dtype="float32", max_model_len=128, max_num_seqs=4,
               max_num_batched_tokens=128, enable_prefix_caching=False, seed=0, block_size=32, kv_cache_memory_bytes=16 << 20,
               compilation_config={"mode": 3, "backend": "inductor", "pass_config": off})


def answer(llm):
    from vllm import SamplingParams

    told = llm.generate([{"prompt_token_ids": prompt} for prompt in PROMPTS],
                        SamplingParams(temperature=0, max_tokens=8, detokenize=False, ignore_eos=True), use_tqdm=False)
    return [list(one.outputs[0].token_ids) for one in told]


def count_inspections():
    """A list with the length that is told."""
    counted = []
    sys.addaudithook(lambda event, arguments: event == "subprocess.Popen" and "vllm.model_executor.models.registry" in map(str, arguments[1]) and
                     counted.append(arguments))
    return counted


def counted():
    from torch._dynamo.utils import counters, get_compilation_metrics
    from vllm.compilation.counter import compilation_counter

    cache = {f"{group}.{name}": value for group, values in counters.items() for name, value in values.items() if "cache" in name}
    return {"vllm": dataclasses.asdict(compilation_counter), "torch": {**cache, "dynamo_compiles": len(get_compilation_metrics())}}


def main():
    begin = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=MODES, default="mega")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--hold", action="append", default=[])
    parser.add_argument("--hold-at", type=Path)
    parser.add_argument("--stay", type=Path)
    arguments = parser.parse_args()
    os.environ.update({**ALWAYS, **MODES[arguments.mode]})
    write_model(arguments.model)
    Holds(arguments.hold, arguments.hold_at)

    inspections = count_inspections()
    take_the_way_of_a_gpu()
    pick_the_instruction_set()
    imported = time.monotonic()
    llm = engine(arguments.model)
    ready = time.monotonic()
    tokens = answer(llm)
    told = {"mode": arguments.mode, "import_seconds": round(imported - begin, 2), "ready_seconds": round(ready - imported, 2),
            "answered_seconds": round(time.monotonic() - begin, 2), "tokens": tokens, **counted(), "inspections": len(inspections),
            "inductor": os.environ.get("TORCHINDUCTOR_CACHE_DIR"),
            "root": os.environ.get("VLLM_CACHE_ROOT")}
    if arguments.stay:
        print("ready", flush=True)
        while not arguments.stay.exists():
            time.sleep(0.05)
        told["again"] = answer(llm)
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
