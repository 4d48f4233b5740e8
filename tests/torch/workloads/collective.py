#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of a job whose ranks compile one graph with a collective in it, over gloo, and decide together whether all of them have found it in
the cache (torch._functorch.config._sync_cache_decision_cross_ranks). Prints one JSON object: counters (dynamo's, of caches), result.

  collective.py RANK RANKS FILE [--within]    FILE: where the ranks meet. --within: a pass of the job issues a collective while torch compiles
                                              the graph, too; it is a barrier, for torch 2.15 can lock itself up in two all_gather_object in a
                                              row (those of spmd_check.py): the binding keeps Python's lock, which the end of the first needs
"""
import argparse
import json


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rank", type=int)
    parser.add_argument("ranks", type=int)
    parser.add_argument("file")
    parser.add_argument("--within", action="store_true")
    arguments = parser.parse_args()

    import torch
    import torch.distributed as dist
    from torch._dynamo.utils import counters
    from torch._functorch import config as functorch_config
    from torch._inductor import config
    from torch._inductor.custom_graph_pass import CustomGraphPass
    from torch.distributed import _functional_collectives as collectives

    class Meeting(CustomGraphPass):
        def __call__(self, graph):
            dist.barrier()

        def uuid(self):
            return "meeting"

    functorch_config._sync_cache_decision_cross_ranks = True
    if arguments.within:
        config.post_grad_custom_post_pass = Meeting()
    dist.init_process_group("gloo", init_method=f"file://{arguments.file}", rank=arguments.rank, world_size=arguments.ranks)

    @torch.compile
    def step(x):
        return collectives.all_reduce(torch.relu(x * 3.5 + 1.25), "sum", dist.group.WORLD) * 2

    with torch.no_grad():
        result = step(torch.linspace(-2, 2, 256))
    dist.barrier()
    dist.destroy_process_group()
    print(json.dumps({"result": result[-1].item(), "counters": {
        f"{group}.{key}": value for group, values in counters.items() for key, value in values.items() if "cache" in key}}))


if __name__ == "__main__":
    main()
