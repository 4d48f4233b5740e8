#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Looks below VLLM_CACHE_ROOT as an engine of this environment, with torch and vLLM's libraries loaded, and prints {file: size} as one JSON object.
Before that it writes the files of --place FILE, a list of [path, file with the bytes, protocol], as vLLM does: "model" by tmp<8>, a rename and
another, "artifact" by .<pid>.<thread>.tmp and a rename, and "in place".
"""
import argparse
import json
import os
import tempfile
import threading
from pathlib import Path


def place(path, content, protocol):
    path.parent.mkdir(parents=True, exist_ok=True)
    if protocol == "in place":
        path.write_bytes(content)
        return
    if protocol == "model":  # torch._dynamo.aot_compile: save_compiled_function, then vllm's save_aot_compiled_function
        descriptor, temporary = tempfile.mkstemp(dir=path.parent)
        last = path.with_name(f"model.{os.getpid()}.tmp")
    else:  # torch/_inductor/codecache.py: write_atomic
        temporary = path.with_name(f".{os.getpid()}.{threading.get_ident()}.tmp")
        descriptor, last = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), None
    with open(descriptor, "wb") as file:
        file.write(content)
    if last:
        os.rename(temporary, last)
        temporary = last
    os.replace(temporary, path)


def seen(root):
    found = {}
    for above, _, names in os.walk(root):
        for name in names:
            path = Path(above, name)
            try:
                with open(path, "rb") as file:
                    found[str(path.relative_to(root))] = len(file.read())
            except FileNotFoundError:
                found[str(path.relative_to(root))] = None
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--place", type=Path)
    parser.add_argument("--ask", type=Path, help="a list of further names that are looked up, not listed")
    arguments = parser.parse_args()
    from vllm.platforms import current_platform
    current_platform.import_kernels()

    root = Path(os.environ["VLLM_CACHE_ROOT"])
    (root / "torch_compile_cache").mkdir(parents=True, exist_ok=True)  # as an engine does before it looks for a model
    for path, source, protocol in json.loads(arguments.place.read_text()) if arguments.place else ():
        place(root / path, Path(source).read_bytes(), protocol)
    asked = {name: os.path.exists(root / name) for name in (json.loads(arguments.ask.read_text()) if arguments.ask else ())}
    print(json.dumps({"seen": seen(root), "asked": asked}), flush=True)


if __name__ == "__main__":
    main()
