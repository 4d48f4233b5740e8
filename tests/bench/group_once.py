# SPDX-License-Identifier: Apache-2.0
"""`--compile-once`: ranks on two nodes that begin one job of real torch at the same moment, of which the cluster has nothing; and very many
mounts, which are simulated (bench_leases.cc)."""
from inductorfs_testing import places
from inductorfs_testing.fixtures import Cluster
from suite import order
from table import Table
from told import told_by

ONCE, EACH = "compile once", "each compiles"
JOBS = places.WORKLOADS / "cpu_jobs.py"
# One small graph: eight ranks that compile a whole job each, on few cores, are ten minutes a round.
GRAPH = ("--jobs", "dynamic")
ENVIRONMENT = {"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}


def ranks(plan, table):
    """Imports are in none of the figures: a rank counts from its first call to its last result."""
    count, rounds = plan.pick((2, 1), (4, 1), (8, 2))
    plan.phase(f"{count} ranks on two nodes")
    compiles = table.row(f"{count} ranks: graphs compiled", unit="")
    slowest = table.row(f"{count} ranks: the slowest rank", unit="s")
    for number in range(rounds):
        for side in order((ONCE, EACH), number):
            with Cluster(torch=plan.torch, patient=True, declared=True) as cluster:
                options = ("--compile-once", "300") if side == ONCE else ()
                nodes = [cluster.node(name, options=options) for name in ("a", "b")]
                jobs = [nodes[rank % 2].begin(JOBS, *GRAPH, **ENVIRONMENT) for rank in range(count)]
                told = [job.wait(900).json for job in jobs]
            if len({str(one["results"]) for one in told}) != 1:
                raise SystemExit("bench: the ranks' results differ")
            compiles.add(side, sum(one["counters"].get("inductor.fxgraph_cache_miss", 0) for one in told))
            slowest.add(side, max(one["compile_seconds"] for one in told))


def simulated(plan, table):
    for mounts, rounds in plan.pick({5: 1}, {50: 1}, {50: 3, 1_000: 1}).items():
        plan.phase(f"{mounts:,} simulated mounts")
        compiles, slowest, work = (table.row(f"{mounts:,} simulated mounts, 5 graphs of 1 s: {what}", unit=unit) for what, unit in (
            ("compiles", ""), ("the slowest mount", "s"), ("the server's processor time", "s")))
        for number in range(rounds):
            for side in order((ONCE, EACH), number):
                told = told_by(plan.program("bench_leases"), "once" if side == ONCE else "each", mounts)
                compiles.add(side, told["compiles"])
                slowest.add(side, told["slowest"])
                work.add(side, told["server_seconds"])


def measure(plan):
    table = Table("Ranks that want the same graphs", "s", ONCE, EACH)
    ranks(plan, table)
    simulated(plan, table)
    return table
