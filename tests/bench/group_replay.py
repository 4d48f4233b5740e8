# SPDX-License-Identifier: Apache-2.0
"""What the files of a real job cost without its computing: a cold and a warm start, recorded once (torch_record.py) and played as fast as the files
answer (replay.cc). Each round begins with empty directories and an empty cluster."""
from inductorfs_testing.processes import run
from sides import BARE, OURS, three_sides
from suite import order
from table import Table
from torch_record import recorded

MANY = 4


def play(plan, recording, contents, directory, processes):
    """Milliseconds, and the number of calls."""
    told = run([plan.program("replay"), recording, contents, directory, processes], seconds=300)
    if told.json["different"] and processes == 1:
        raise SystemExit(f"bench: a replay got other answers than the job: {told.err}")
    return told.json["seconds"] * 1e3, told.json["calls"]


def one_round(plan, made, number, processes, table):
    with three_sides(plan) as (directories, node):
        for what, recording, repeat in (("cold", made.cold, 1), ("warm", made.warm, plan.pick(1, 3, 5))):
            for turn in range(repeat):
                for side in order(directories, number + turn):
                    milliseconds, calls = play(plan, recording, made.directory, directories[side], processes)
                    table.row(f"{what} start, {processes} process{'es' if processes > 1 else ''}, {calls:,} calls each").add(side, milliseconds)
                    node.sync(300)


def measure(plan):
    table = Table("The files of a job's start, played again", "ms", OURS, BARE)
    made = recorded(plan)
    for processes in (1, MANY):
        for number in range(plan.pick(1, 1, 3)):
            plan.phase(f"round {number + 1} with {processes} process{'es' if processes > 1 else ''}")
            one_round(plan, made, number, processes, table)
    return table
