# SPDX-License-Identifier: Apache-2.0
"""The lines of the incident table about GPUs: Inductor's whole CUDA path before a stand-in device (tests/support/nogpu).
Its facts are probed, those of other drivers and devices too; kernels are compiled for real and launched as no-ops."""
from inductorfs_testing import compare
from inductorfs_testing.processes import wait_until

from incident_cuda import (KERNEL_LAUNCHES, OTHER_FUSION, build_with_cuda_12, contents, graphs, identities, keys, misses,
                           of_cuda_12, replace_facts, second_node_hits, tunings)
from incident_worlds import H100
from incident_hosts import Facts, few_tools, hits, is_there, made_by, refused, sees_only


# ---- wrong reuse

def test_tuning_of_an_h200_on_an_h100(cuda, tmp_path):
    """With equal SM count both devices' kernels, and so their tunings, have equal names. On a plain directory the H100's
    job takes what was measured on the H200 and measures nothing."""
    assert cuda.first["h200"]["device"] == "NVIDIA H200" and cuda.cold["device"] == H100["FAKE_CUDA_NAME"]
    assert tunings(cuda.h200) and tunings(cuda.h200) == tunings(cuda.a)
    assert not {name for name in cuda.before if name.endswith(".best_config")}
    assert not graphs(cuda.before)

    plain = cuda.plain("swapped", cuda.h200)
    taken = identities(plain)
    out = cuda.job(plain)
    assert misses(out) == misses(cuda.cold) > 0
    assert out[KERNEL_LAUNCHES] < cuda.cold[KERNEL_LAUNCHES]
    assert identities(plain) == taken


def test_tuning_of_a_device_that_was_replaced(cuda):
    """The facts change under a mount: what was the H200's is gone, what is an H100's is there, without a remount."""
    node = cuda.node("replaced", cuda.h200_facts)
    wait_until(lambda: contents(node) == contents(cuda.h200), 20, "the tunings of the H200")
    assert contents(cuda.h200) != contents(cuda.a)
    replace_facts(node, cuda.facts)
    wait_until(lambda: contents(node) == contents(cuda.a), 30, "the tunings of the H100", pause=0.1)


def test_objects_of_cuda_12_under_cuda_13(cuda, tmp_path):
    """By facts: what was made with CUDA 13 is nothing to a host of CUDA 12. By content: a library that wants libcudart.so.12
    is not published where no such library is; a job that loads it all the same crashes."""
    reader = cuda.node("cuda-12", of_cuda_12(cuda.facts))
    sees_only(reader, cuda.a, {"fxgraph", "aotautograd", "triton_launcher"})

    writer, other, name, failure = build_with_cuda_12(cuda, "runtime", tmp_path / "cuda12.so")
    assert "libcudart.so.12" in failure, failure
    assert any("libcudart.so.12" in line for line in refused(writer)), refused(writer)
    assert not is_there(other, name)


def test_graph_made_under_another_fp_fusion(cuda):
    """TRITON_DEFAULT_FP_FUSION is in Triton's keys, not in torch's: on a plain directory the job is a full hit and runs
    kernels of the other setting. On the mount the writer's environment is not the declared one: it stays private, and
    says so; and a mount that declares another value is another scope."""
    there = keys(made_by(cuda.unfused))
    assert there and not there & keys(made_by(cuda.h200))
    plain = cuda.plain("other-fusion", cuda.unfused)
    hits(cuda.job(plain), misses(cuda.cold))
    assert keys(compare.lasting(plain.cache)) == there

    assert misses(cuda.cold) == misses(cuda.first["unfused"]) > 0
    assert not graphs(cuda.before)
    assert cuda.unfused.status()["file_system"]["foreign"] > 0
    assert any("TRITON_DEFAULT_FP_FUSION" in why for why in cuda.unfused.status()["file_system"]["foreign_reasons"])
    sees_only(cuda.node("declares-another", cuda.facts.edited(*OTHER_FUSION)), cuda.a, {"fxgraph", "aotautograd", "best_config"})


# ---- needless misses

def test_newer_patch_level_of_the_driver(cuda):
    """The level shows in the driver's version, and in some MiB of memory that it keeps for itself."""
    newer = {"FAKE_CUDA_MEM_MB": "81540"}
    facts = Facts.learn(cuda.cluster.python, **cuda.sees_gpu, **H100, **newer)
    assert facts.values == cuda.facts.values
    second_node_hits(cuda, cuda.node("newer-driver", facts.with_details("gpu", "driver_version=580.126.09")), **newer)


def test_another_order_of_equal_devices(cuda):
    two = {"FAKE_CUDA_COUNT": "2"}
    orders = [Facts.learn(cuda.cluster.python, **cuda.sees_gpu, **H100, **two, CUDA_VISIBLE_DEVICES=order)
              for order in ("0,1", "1,0")]
    assert orders[0].values == orders[1].values == cuda.facts.values
    second_node_hits(cuda, cuda.node("other-order", orders[1]), **two, CUDA_VISIBLE_DEVICES="1,0")


def test_a_node_without_ptxas(cuda, installation):
    """And without any compiler. Triton's kernels are launched from their cubins, so that torch needs neither on a hit."""
    path = few_tools(cuda.directory / "few-tools")
    away = installation.ptxas.with_name("bin-away")
    installation.ptxas.rename(away)
    try:
        facts = Facts.learn(cuda.cluster.python, **cuda.sees_gpu, **H100, PATH=path)
        assert facts.values["compiler"] is None
        second_node_hits(cuda, cuda.node("no-ptxas", facts), PATH=path)
    finally:
        away.rename(installation.ptxas)
