# SPDX-License-Identifier: Apache-2.0
"""What the lines of the incident table about GPUs need."""
import os
import signal

from inductorfs_testing import compare, places

from incident_binaries import cuda_12_library
from incident_containers import Contained
from incident_hosts import Hand, builds, hits, lasting, listed

OTHER_FUSION = ("environment", (r"(?s)\A.*\Z", "TRITON_DEFAULT_FP_FUSION=0"))
KERNEL_LAUNCHES = "kernel launches"


def tunings(reader):
    return {name for name in lasting(reader) if name.endswith(".best_config")}


def contents(reader):
    """{tuning: its content}; None where it was listed under the old facts and opened under the new ones."""
    if isinstance(reader, Contained):
        return reader.contents(tunings(reader))
    try:
        return {name: (reader.cache / name).read_bytes().hex() for name in tunings(reader)}
    except FileNotFoundError:
        return None


def identities(node):
    return {name: ((node.cache / name).stat().st_ino, (node.cache / name).stat().st_mtime_ns) for name in tunings(node)}


def keys(names):
    """Triton's key directories among these names."""
    groups = (name for name in map(compare.canonical, names) if name.startswith("triton/@/") and "__grp__" in name)
    return {name.split("/")[2] for name in groups}


def graphs(names):
    return {name for name in names if name.startswith("fxgraph/")}


def misses(out):
    return out["counters"].get("inductor.fxgraph_cache_miss", 0)


def of_cuda_12(facts):
    return facts.edited("cuda", (r"^driver=.*", "driver=12"), (r"^torch=.*", "torch=12.8"))


def build_with_cuda_12(cuda, name, file):
    """(writer, reader, name, error): torch has built a kernel on the first node that wants the runtime of CUDA 12; what loading it
    there says."""
    library = cuda_12_library(file, places.site_packages("2.9") / "nvidia" / "cuda_runtime" / "lib")
    writer, reader = (cuda.node(f"{name}-{which}", None, "--prefix", name) for which in ("writer", "reader"))
    kernel = f"ab/cab{'c' * 49}.main.so"
    with Hand(writer) as torch:
        failure = torch.attempt("dlopen", path=library).get("error", "")
        torch("build", path=writer.cache / kernel, source=library)
    writer.sync()
    return writer, reader, kernel, failure


def replace_facts(node, facts):
    """Other facts in the file that the mount was given, and the signal to read it again."""
    facts.write(node.root.parent / f"{node.name}-facts.json")
    for pid in node.daemons():
        os.kill(pid, signal.SIGHUP)


def second_node_hits(cuda, node, reader=None, **environment):
    """The job on this node compiles and measures nothing. `reader`: where it is in a container."""
    node.catch_up(cuda.a)
    before = listed(node)
    out = cuda.job(reader or node, **environment)
    hits(out, misses(cuda.cold))
    assert out[KERNEL_LAUNCHES] < cuda.cold[KERNEL_LAUNCHES]  # nothing is measured
    assert builds(node) == 0, node.compilers.calls()
    assert {name for name in listed(node) - before if not name.startswith("triton/@/")} == set()
