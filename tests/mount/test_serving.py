# SPDX-License-Identifier: Apache-2.0
"""What an operator of serving engines does: takes one hash of vLLM from all mounts, and asks why a replica compiled. The files are as vLLM 0.32
writes them, in its order."""
import json
import os
import pickle
import re
import struct
import zlib

import pytest
from inductorfs_testing import artefacts, places
from inductorfs_testing.mounts import appears, disappears, published
from inductorfs_testing.processes import PATIENCE, run, wait_until

PROGRAM = places.program()
ENVIRONMENT = {"VLLM_LOGGING": "a", "VLLM_P2P_SIDE_CHANNEL_HOST": "localhost", "VLLM_DP_RANK": 0}
HASHES = {"config_hash": "276ba11b4e", "code_hash": "6" * 64, "compiler_hash": "24c52b1e88"}

# The header of an ELF file for CUDA (machine 190) and sm_90, by ptxas 12.9.
CUBIN = b"\x7fELF\x02\x01\x01\x33\x07" + bytes(7) + struct.pack("<HHIQQQIHHHHHH", 2, 190, 129, 0, 0, 0, 0x5A055A, 64, 56, 0, 64, 0, 0)


@pytest.fixture(name="pair")
def two_nodes(cluster):
    return cluster.quick("a"), cluster.quick("b")


def aot(digit):
    return f"torch_compile_cache/torch_aot_compile/{digit * 64}/rank_0_0/model"


def write_model(node, digit, content, root="vllm"):
    """As vllm/compilation/decorators.py: save_aot_compiled_function."""
    return artefacts.write_atomic(node.cache / root, aot(digit), pickle.dumps(content, protocol=4))


def write_factors(node, short, root="vllm", **environment):
    """As vllm/compilation/backends.py: in place, if absent."""
    path = node.cache / root / "torch_compile_cache" / short / "rank_0_0" / "backbone" / "cache_key_factors.json"
    artefacts.make_directories(path.parent)
    path.write_text(json.dumps({"env": {**ENVIRONMENT, **environment}, **HASHES}, indent=2, sort_keys=True))
    return path


def test_one_hash_is_taken_from_the_cluster_and_from_all_mounts(pair, cluster):
    a, b = pair
    (b.cache / "vllm").mkdir()
    bad, good = (write_model(a, digit, f"graphs of {digit}").relative_to(a.cache) for digit in "ab")
    a.sync()
    for path in (bad, good):
        appears(b.cache / path)
        assert pickle.loads((b.cache / path).read_bytes()).startswith("graphs of")
    dry = a.cli("purge", "--pattern", f"**/{'a' * 64}/**", a.cache)
    assert dry.code == 0 and "1 of 2 entries" in dry.out and aot("a") in dry.out, dry
    done = b.cli("purge", "--yes", "--pattern", f"**/{'a' * 64}/**", "--remote", cluster.redis.url, "--timeout", str(15 * PATIENCE))
    assert done.code == 0 and "1 entries are removed" in done.out and "2 of 2 live mounts" in done.out, done
    for node in pair:
        disappears(node.cache / bad, 2)
        assert pickle.loads((node.cache / good).read_bytes()) == "graphs of b"
    assert published(cluster) == [aot("b")]
    again = write_model(b, "a", "the right graphs").relative_to(b.cache)
    b.sync()
    appears(a.cache / again)
    assert pickle.loads((a.cache / again).read_bytes()) == "the right graphs"


def why_miss(node):
    done = run([PROGRAM, "why-miss", node.cache], node.env(), 30)
    assert done.code == 0, done
    return done.out


def test_which_variable_gives_a_pod_another_hash_is_said(pair):
    a, b = pair
    (b.cache / "vllm").mkdir()
    write_model(a, "a", "graphs")
    write_factors(a, "aaaaaaaaaa", VLLM_P2P_SIDE_CHANNEL_HOST="10.0.0.7")
    write_factors(a, "cccccccccc", VLLM_P2P_SIDE_CHANNEL_HOST="10.0.0.9", VLLM_LOGGING="c")
    a.sync()
    wait_until(lambda: b.status()["catalog"]["entries"] == 3, 20 * PATIENCE, "three entries to be known")
    (b.cache / "vllm" / aot("b")).parents[1].mkdir(parents=True)  # as vLLM does before it looks
    assert not os.path.lexists(b.cache / "vllm" / aot("b"))
    for number in range(15):  # as a whole compile misses behind it
        name = b.cache / artefacts.code(f"a kernel {number}")
        artefacts.make_directories(name.parent)
        assert not os.path.lexists(name)
    assert "Which variable differs can be said when this host has compiled" in why_miss(b)
    write_model(b, "b", "graphs")
    write_factors(b, "bbbbbbbbbb", VLLM_P2P_SIDE_CHANNEL_HOST="10.0.0.8")
    b.sync()
    shown = why_miss(b)
    assert "this host's hash is bbbbbbbbbb, the nearest of 2 others is aaaaaaaaaa" in shown, shown
    assert shown.count("differs in") == 1 and "differs in VLLM_P2P_SIDE_CHANNEL_HOST\n" in shown, shown
    assert '- here:  "10.0.0.8"\n' in shown and '+ there: "10.0.0.7"\n' in shown and "kv-transfer-config" in shown, shown


@pytest.mark.parametrize("publishes", [True, False])
@pytest.mark.parametrize("root", ["vllm", "serving/vllm"])
def test_it_is_said_of_what_stays_on_this_host_too(pair, cluster, root, publishes):
    """As after two kills of a worker within the quiet time: whose the file is that lies there is not known any more."""
    a, b = pair[0], cluster.quick("c", *([] if publishes else ["--no-publish"]))
    write_model(a, "a", "graphs")
    write_factors(a, "aaaaaaaaaa", VLLM_P2P_SIDE_CHANNEL_HOST="10.0.0.7")
    a.sync()
    top = b.cache / root
    (top / aot("b")).parents[1].mkdir(parents=True)
    wait_until(lambda: b.status()["catalog"]["entries"] == 2, 20 * PATIENCE, "two entries to be known")
    assert not os.path.lexists(top / aot("b"))
    write_model(b, "b", "graphs", root)
    for short, address in (("dddddddddd", "10.0.0.9"), ("bbbbbbbbbb", "10.0.0.8")):
        write_factors(b, short, root, VLLM_P2P_SIDE_CHANNEL_HOST=address)
    shown = why_miss(b)
    assert "this host's hash is bbbbbbbbbb" in shown and '- here:  "10.0.0.8"\n' in shown and '+ there: "10.0.0.7"\n' in shown, shown


def test_what_others_wrote_as_factors_breaks_nothing(pair):
    a, b = pair
    (b.cache / "vllm").mkdir()
    for short, text in (("1111111111", "[1]"), ("2222222222", "{\"env\": 7}"), ("3333333333", "x" * 300_000), ("4444444444", "{\"env\": {}}")):
        path = write_factors(a, short)
        path.write_text(text)
    path = write_factors(a, "5555555555")
    path.write_text(json.dumps({"env": {"\x1b[2J\n": "\x1b[2J"}, "code_hash": ["\n"]}))
    a.sync()
    wait_until(lambda: b.status()["catalog"]["entries"] == 2, 20 * PATIENCE, "the two objects with env to be known, and no other")
    (b.cache / "vllm" / aot("b")).parents[1].mkdir(parents=True)
    os.path.lexists(b.cache / "vllm" / aot("b"))
    write_factors(b, "bbbbbbbbbb")
    b.sync()
    shown = why_miss(b)
    assert "\x1b" not in shown and "of 2 others" in shown, shown


def write_kernel(node, name, **files):
    """As DeepGEMM csrc/jit/compiler.hpp: a directory of its own, renamed onto its name."""
    cache = node.cache / "deep_gemm"
    made = cache / "tmp" / name
    made.mkdir(parents=True)
    (cache / "cache").mkdir(exist_ok=True)
    for file, text in files.items():
        (made / file.replace("_", ".")).write_bytes(text)
    os.rename(made, cache / "cache" / name)
    return (cache / "cache" / name).relative_to(node.cache)


def test_a_directory_that_is_one_artefact_is_taken_whole(pair):
    a, b = pair
    (b.cache / "deep_gemm" / "cache").mkdir(parents=True)
    bad, good = (write_kernel(a, f"kernel.gemm.{digit * 32}", kernel_cu=b"text", kernel_cubin=CUBIN) for digit in "ab")
    a.sync()
    for path in (bad, good):
        appears(b.cache / path)
        assert sorted(os.listdir(b.cache / path)) == ["kernel.cu", "kernel.cubin"]
    done = b.cli("purge", "--yes", "--pattern", f"**/{bad.name}", b.cache, "--timeout", str(15 * PATIENCE))
    assert done.code == 0 and "2 of 2 live mounts" in done.out, done
    for node in pair:
        disappears(node.cache / bad, 2)
        assert sorted(os.listdir(node.cache / good)) == ["kernel.cu", "kernel.cubin"]


def artifact_of(text):
    """As torch/_inductor/standalone_compile.py: CacheCompiledArtifact, by torch/utils/_appending_byte_serializer.py."""
    pieces = (b"CacheCompiledArtifact", b"k" * 32, b"a2V5", text.encode())
    body = b"".join(struct.pack(">Q", len(piece)) + piece for piece in pieces)
    return struct.pack(">I", zlib.crc32(body)) + body


def write_index(node, short, text):
    """An index with one artifact, as vllm/compilation/backends.py writes them: the artifact by a rename, the index in place."""
    directory = node.cache / "vllm" / "torch_compile_cache" / short / "rank_0_0" / "backbone"
    name = "artifact_compile_range_1_128_subgraph_0"
    artefacts.write_atomic(directory, name, artifact_of(text))
    index = directory / "vllm_compile_cache.py"
    index.write_text(repr({((1, 128), 0, "inductor_standalone"): {"cache_key": "a", "graph_handle": (name, str(directory / name))}}))
    return index.relative_to(node.cache)


def test_why_an_index_is_not_unpacked_is_said(pair):
    a, b = pair
    (b.cache / "vllm").mkdir()
    index = write_index(a, "a" * 10, "graph of a")
    a.sync()
    wait_until(lambda: b.status()["catalog"]["entries"] == 1, 20 * PATIENCE, "the index to be known")
    artifact = artefacts.write_atomic((b.cache / index).parent, "artifact_compile_range_1_128_subgraph_0", artifact_of("graph of b"))
    assert not (b.cache / index).exists()
    reason = f"{artifact.name} is another writer's here; remove it"
    told = b.explain(index)
    assert re.search(f"visible +no: .*{reason}", told), told
    missed = why_miss(b)
    assert reason in missed and "did not send it in time" not in missed, missed
    artifact.unlink()
    assert appears(b.cache / index) and re.search("visible +yes", b.explain(index))
