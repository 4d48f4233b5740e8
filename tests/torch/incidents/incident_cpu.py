# SPDX-License-Identifier: Apache-2.0
"""What the lines of the incident table about the CPU, the compiler and torch's content need."""
import contextlib

from inductorfs_testing import compare

from incident_binaries import needing_a_newer_glibc
from incident_hosts import Facts, builds, families, hits, made_by
from incident_worlds import ONE_KERNEL

KERNEL = "[a-z2-7][a-z2-7]/c*.main.so"
NATIVE = {"cpp_binary", "vec_isa_marker"}
GRAPHS = {"fxgraph", "aotautograd"}
CHANGES = {
    "source": ("torch/_inductor/cpp_builder.py", b"\n# another build of the same version\n"),
    "header": ("torch/include/ATen/cpu/vec/vec_base.h", b"\n// another build of the same version\n"),
}


@contextlib.contextmanager
def other_torch(installation, change):
    """The installation's facts while one of its files is another; its version is the same."""
    name, added = CHANGES[change]
    before = (installation.site / name).read_bytes()
    records = [(path, path.read_text()) for path in installation.site.glob("torch-*.dist-info/RECORD")]
    installation.replace(name, before + added)
    try:
        yield Facts.learn(installation.python)
    finally:
        installation.replace(name, before)
        for path, text in records:
            path.write_text(text)


def build_with_a_newer_glibc(cpu, hand, name, file):
    """(writer, reader, version): a node on which torch has built a kernel that needs this version of glibc, which lies in the file
    too, and one of equal facts."""
    (kernel,) = cpu.of_a(KERNEL)
    newer, version = needing_a_newer_glibc((cpu.a.cache / kernel).read_bytes())
    file.write_bytes(newer)
    writer, reader = (cpu.node(f"{name}-{which}", None, "--prefix", name) for which in ("writer", "reader"))
    source = kernel.removesuffix(".so") + ".cpp"
    hand("write_atomic", path=writer.cache / source, source=cpu.a.cache / source)
    hand("build", path=writer.cache / kernel, source=file)
    writer.sync()
    return writer, reader, version


STUB = """#!/bin/sh
case "$*" in --version|-v) exec '{real}' "$@" ;; esac
echo "this host cannot compile" >&2
exit 1
"""


def put_stub_compiler(path, real):
    """A g++ that tells its version and can do no more."""
    path.write_text(STUB.format(real=real))
    path.chmod(0o755)


def with_all_of_a(cpu, node):
    """What the node lists before its job, which is all that the job needs."""
    before = compare.lasting(node.cache)
    assert before >= {name for name, family in families(cpu.a).items() if family in NATIVE | GRAPHS}
    return before


def second_node_hits(cpu, node, job=None, before=None):
    """The job on this node compiles nothing, leaves nothing, and computes the same. `before`: of a job that has begun, what
    the node listed then."""
    before = before or with_all_of_a(cpu, node)
    out = (job or node.begin(ONE_KERNEL)).wait().json
    hits(out)
    assert out["digest"] == cpu.cold["digest"] and out["isa"] == cpu.cold["isa"]
    assert builds(node) == 0, node.compilers.calls()
    after = compare.lasting(node.cache)
    left = (after - before) & made_by(node)  # other nodes publish meanwhile
    assert before <= after and not left, left
    return out
