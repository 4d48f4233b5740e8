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


def one_round(plan, made, number, table):
    """A cold start by one process, for others would wait for it and then be warm; warm starts by one and by several at once, as ranks begin."""
    kinds = (("cold", made.cold, 1, 1), *(("warm", made.warm, processes, plan.pick(1, 3, 5)) for processes in (1, MANY)))
    with three_sides(plan) as (directories, node):
        for what, recording, processes, repeat in kinds:
            for turn in range(repeat):
                for side in order(directories, number + turn):
                    milliseconds, calls = play(plan, recording, made.directory, directories[side], processes)
                    table.row(f"{what} start, {processes} process{'es' if processes > 1 else ''}, {calls:,} calls each").add(side, milliseconds)
                    node.sync(300)


def measure(plan):
    table = Table("The files of a job's start, played again", "ms", OURS, BARE)
    made = recorded(plan)
    for number in range(plan.pick(1, 2, 3)):
        plan.phase(f"round {number + 1}")
        one_round(plan, made, number, table)
    return table
