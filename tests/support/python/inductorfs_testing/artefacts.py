# SPDX-License-Identifier: Apache-2.0
"""Artefacts without torch: names and contents that pass the checks of each family, written as torch and Triton write."""
import base64
import hashlib
import json
import os
import pickle
import stat
import subprocess
import threading
from pathlib import Path

FACETS = ("torch", "triton", "cuda", "gpu", "gpu-arch", "python", "libc", "cpu", "cpu-isa", "compiler", "engine",
          "environment")
# What Triton's metadata must have; of a backend whose kernels are in one scope on every host.
TRITON_METADATA = {"name": "k", "target": {"backend": "hip", "arch": "gfx90a", "warp_size": 64}, "num_warps": 4, "shared": 0}


def fingerprint(path: Path, **facts):
    """A file for `mount --fingerprint`: every facet is known, so that every family is shared with equal hosts.
    A fact that is None is not known; `_` stands for `-` in a facet's name."""
    facts = {name.replace("_", "-"): value for name, value in facts.items()}
    facets = {facet: {"known": True, "value": "the same everywhere", "source": "test"} for facet in FACETS}
    for name, value in facts.items():
        facets[name] = {"known": value is not None, "value": value or "", "source": "test"}
    path.write_text(json.dumps({"facets": facets}))
    return path


def torch_hash(data):
    """torch/_inductor/codecache.py: sha256_hash."""
    data = data if isinstance(data, bytes) else data.encode()
    return base64.b32encode(hashlib.sha256(data).digest()).decode().lower()[:51]


def code(seed, suffix=".cpp"):
    """The path of a C++ source named after the seed: its name hashes more than its text."""
    name = "c" + torch_hash(seed)
    return f"{name[1:3]}/{name}{suffix}"


def graph(key, content):
    """The path of an fxgraph candidate: its name is the hash of its content."""
    name = "f" + torch_hash(key)
    return f"fxgraph/{name[1:3]}/{name}/{torch_hash(content)}"


def model(seed):
    """The path of what vLLM compiled ahead of time (vllm/compilation/decorators.py: save_aot_compiled_function)."""
    return f"torch_compile_cache/torch_aot_compile/{hashlib.sha256(seed.encode()).hexdigest()}/rank_0_0/model"


def write_model(root: Path, seed):
    final = Path(root) / model(seed)
    make_directories(final.parent)
    temporary = final.parent / f"model.{os.getpid()}.tmp"
    temporary.write_bytes(pickle.dumps(seed))
    os.replace(temporary, final)
    return final


def triton_key(seed):
    return (torch_hash(seed) + "a").upper()


def make_directories(path):
    """os.makedirs asks isdir() of what is there already, which takes every error for a no: a mount whose daemon is killed between
    the two says ENOTCONN, not EEXIST."""
    try:
        os.makedirs(path, exist_ok=True)
    except FileExistsError:
        if not stat.S_ISDIR(os.stat(path).st_mode):
            raise


def write_atomic(root: Path, name, content):
    """torch/_inductor/codecache.py: write_atomic."""
    content = content if isinstance(content, bytes) else content.encode()
    final = Path(root) / name
    make_directories(final.parent)
    temporary = final.parent / f".{os.getpid()}.{threading.get_ident()}.tmp"
    temporary.write_bytes(content)
    os.rename(temporary, final)
    return final


def write_graph(root: Path, key, content):
    return write_atomic(root, graph(key, content), content)


def build_library(root: Path, seed, source="int answer(void) { return 42; }\n"):
    """A C++ binary in the way of torch/_inductor/cpp_builder.py: CppBuilder.build: the compiler writes the final name,
    and the build directory's rmdir tells that it is complete."""
    final = Path(root) / code(seed, ".so")
    make_directories(final.parent)
    build = final.with_name(final.stem + "_CxxBuild")
    build.mkdir()
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(final)], input=source.encode(), check=True,
                   timeout=60)
    build.rmdir()
    return final


def triton_put(directory: Path, name, content):
    """triton/runtime/cache.py: FileCacheManager.put."""
    content = content if isinstance(content, bytes) else content.encode()
    make_directories(directory)
    temporary = directory / f"tmp.pid_{os.getpid()}_{threading.get_ident():032x}"
    make_directories(temporary)
    (temporary / name).write_bytes(content)
    os.replace(temporary / name, directory / name)
    os.removedirs(temporary)
    return directory / name


TRITON_FILES = ("k.json", "k.ttir", "k.source")


def triton_child(name, writer):
    content = json.dumps({**TRITON_METADATA, "writer": writer}) if name.endswith(".json") else f"{writer} wrote {name}"
    return content.encode()


def triton_compile(cache: Path, seed, writer, device="0"):
    """triton_compile_in a directory of torch's layout."""
    return triton_compile_in(Path(cache) / "triton" / device, seed, writer)


def triton_compile_in(root, seed, writer):
    """A whole key directory in TRITON_CACHE_DIR, which may be relative, each child telling who wrote it; the group file last, as
    triton's compile does."""
    directory = Path(root) / triton_key(seed)
    paths = {}
    for name in TRITON_FILES:
        triton_put(directory, name, triton_child(name, writer))
        paths[name] = os.path.join(root, directory.name, name)  # as it was typed: Path takes a "./" away
    triton_put(directory, "__grp__k.json", json.dumps({"child_paths": paths}))
    return directory


def triton_read(cache: Path, seed, device="0"):
    """triton_read_in a directory of torch's layout."""
    return triton_read_in(Path(cache) / "triton" / device, seed)


def triton_read_in(root, seed):
    """triton/runtime/cache.py: FileCacheManager.get_group: {name: bytes}, or None for a miss. A child that a group names
    and that does not exist is a miss to Triton (has_file), one that cannot be read is a crash."""
    directory = Path(root) / triton_key(seed)
    make_directories(directory)
    group = directory / "__grp__k.json"
    if not group.exists():
        return None
    children = json.loads(group.read_bytes())["child_paths"]
    if not all(os.path.exists(path) for path in children.values()):
        return None
    return {name: Path(path).read_bytes() for name, path in children.items()}


def triton_writers(children):
    """Who wrote the files of one key directory."""
    return {json.loads(data)["writer"] if name.endswith(".json") else data.decode().split(" ")[0]
            for name, data in children.items()}
