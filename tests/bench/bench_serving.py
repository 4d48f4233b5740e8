#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real vLLM (tests/serving/engine.py): how long an engine of a second pod takes until it is ready, beside a warm restart on a plain directory;
medians of seconds, both sides in one run and taken in turn.

  cold, directory    an empty plain directory
  warm, directory    the same directory again: what the second pod is compared with
  cold, first pod    an empty mount, an empty Redis
  second pod         a pod on another node, mounted after the first pod has published; each time another one

  bench_serving.py [--repeat N] [--modes mega,index,artifacts,unpacked]
"""
import argparse
import json
import statistics
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "support" / "python"), str(TESTS / "serving")]

from serving_pods import LOADED, Pods  # noqa: E402

# A second pod has no precompiled header in its temporary directory, a restart has; neither needs one when it compiles nothing.
VARIABLES = {"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}
LIMIT = 1.10  # second pod / warm, directory
SIDES = ("cold, directory", "warm, directory", "cold, first pod", "second pod")


def seconds(outcome):
    """From the start of the process until it has answered."""
    return outcome.told["answered_seconds"]


def shown(values):
    spread = f" ({min(values):.1f}-{max(values):.1f})" if len(values) > 1 else ""
    return f"{statistics.median(values):.1f} s{spread}"


def one_mode(mode, repeat):
    times = {side: [] for side in SIDES}
    with Pods() as pods:
        plain = pods.pod("plain", backing="directory")
        times["cold, directory"].append(seconds(plain.run(mode, **VARIABLES)))
        first = pods.pod("first")
        times["cold, first pod"].append(seconds(first.run(mode, **VARIABLES)))
        first.node.sync(120)
        for number in range(repeat):
            times["warm, directory"].append(seconds(plain.run(mode, **VARIABLES)))
            second = pods.pod(f"second-{number}")
            outcome = second.run(mode, **VARIABLES)
            times["second pod"].append(seconds(outcome))
            print(f"{mode}, round {number + 1}: warm {times['warm, directory'][-1]}, second pod {times['second pod'][-1]}, "
                  f"it made {outcome.compiled or 'nothing'}, compilers {len(outcome.made)} files", flush=True)
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--modes", default=",".join((*LOADED, "unpacked")))
    arguments = parser.parse_args()
    table = {mode: one_mode(mode, arguments.repeat) for mode in arguments.modes.split(",")}
    print("| mode | " + " | ".join(SIDES) + " | second pod / warm, directory |\n|" + "---|" * (len(SIDES) + 2))
    for mode, times in table.items():
        ratio = statistics.median(times["second pod"]) / statistics.median(times["warm, directory"])
        print(f"| {mode} | " + " | ".join(shown(times[side]) for side in SIDES) + f" | {ratio:.2f}{'' if ratio <= LIMIT else ' OVER'} |")
    print(json.dumps(table))
    return 0


if __name__ == "__main__":
    sys.exit(main())
