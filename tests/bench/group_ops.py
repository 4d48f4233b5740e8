# SPDX-License-Identifier: Apache-2.0
"""What files and names cost, in C (file_costs.cc, name_costs.cc) and in Python. Of a FUSE file system the kernel answers what is warm by itself; what
it costs is the kernel's, and the bare one shows it."""
import json
import os
import shutil
import statistics
import time

from inductorfs_testing import artefacts
from inductorfs_testing.processes import run
from sides import BARE, OURS, PLAIN, three_sides
from suite import order
from table import Table

NAMES = {"open_read_close": "open+read+close, 16 KiB", "stat": "stat", "absent": "lookup of an absent name", "readdir": "listing of 100 names"}
AIMS = {"open_read_close": 1.02, "stat": 1.02}
ALLOWED = "1.3 ext4 + FUSE"
BYTES = b"# 16 KiB\n" * 1821


def prepare(directory):
    """A warm file, with 99 others beside it."""
    directory.mkdir()
    for number in range(100):
        (directory / f"file{number}").write_bytes(BYTES if number == 0 else b"x")
    return directory / "file0"


def open_read_close(path):
    with open(path, "rb") as file:
        file.read()


PYTHON = {"open_read_close": open_read_close, "stat": os.stat, "absent": lambda path: os.path.exists(path + ".absent"),
          "readdir": lambda path: os.listdir(os.path.dirname(path))}


def python_costs(files, rounds, batches=9, calls=100):
    """As file_costs: {side: {what: [ns of each round]}}, batch by batch in turn."""
    costs = {side: {what: [] for what in PYTHON} for side in files}
    for what, call in PYTHON.items():
        for _ in range(rounds):
            taken = {side: [] for side in files}
            for batch in range(batches):
                for side in order(files, batch):
                    path = str(files[side])
                    began = time.perf_counter_ns()
                    for _ in range(calls):
                        call(path)
                    taken[side].append((time.perf_counter_ns() - began) / calls)
            for side, values in taken.items():
                costs[side][what].append(statistics.median(values))
    return costs


def write_files(directory, count):
    """Seconds for so many files, as torch writes them (torch/_inductor/codecache.py: write_atomic)."""
    finals = [f"{directory}/c{directory.name}{artefacts.torch_hash(str(number))[:49]}.cpp" for number in range(count)]
    began = time.perf_counter()
    for number, final in enumerate(finals):
        temporary = f"{directory}/.{number}.1.tmp"
        with open(temporary, "xb") as file:
            file.write(b"what a small artefact may hold, some hundred bytes of it: ")
        os.rename(temporary, final)
    return time.perf_counter() - began


def warm(plan, directories, table):
    files = {side: prepare(directory / "warm") for side, directory in directories.items()}
    rounds = plan.pick(1, 5, 11)
    told = json.loads(run([plan.program("file_costs"), "--rounds", "1", *files.values()]).out)  # the first touch
    told = json.loads(run([plan.program("file_costs"), "--rounds", rounds, *files.values()], seconds=300).out)
    of_c = {side: told[str(path)] for side, path in files.items()}
    for language, costs in (("C", of_c), ("Python", python_costs(files, rounds))):
        for what, name in NAMES.items():
            row = table.row(f"{language}: {name}", aim=AIMS.get(what) if language == "C" else None)
            for side in files:
                for value in costs[side][what]:
                    row.add(side, value / 1e3)


def names(plan, directories, node, table):
    """A directory of its own for each round. What the mount still has to do when it has answered all is waited for, so that no other side
    pays for it."""
    count, letters = plan.pick(50, 1000, 1000), "abcdefghijklmnopqrstuvwxyz"

    def in_c(directory):
        (told,) = json.loads(run([plan.program("name_costs"), "--files", count, "--batches", 1, directory], seconds=120).out).values()
        return sum(told.values()) * count / 1e9

    for first, (language, write) in enumerate({"C": in_c, "Python": lambda directory: write_files(directory, count)}.items()):
        row = table.row(f"{language}: create+write+close+rename, {count:,} files", unit="ms", other=ALLOWED, aim=1.0)
        for number in range(plan.pick(1, 2, 7)):
            taken = {}
            for side in order(directories, number):
                made = directories[side] / (letters[first] + letters[number])
                made.mkdir()
                taken[side] = write(made) * 1e3
                node.sync(120)
                if side == BARE:
                    shutil.rmtree(made)  # it holds a descriptor for each name that the kernel knows
            for side in directories:
                row.add(side, taken[side])
            row.add(ALLOWED, 1.3 * taken[PLAIN] + taken[BARE] - taken[PLAIN])


def measure(plan):
    table = Table("Files and names", "µs", OURS, BARE)
    with three_sides(plan) as (directories, node):
        plan.phase("warm files, in C and in Python")
        warm(plan, directories, table)
        plan.phase("new files, in C and in Python")
        names(plan, directories, node, table)
    table.notes.append(f"*{ALLOWED}*: 1.3 times what ext4 takes, and what the bare FUSE file system takes more than ext4.")
    return table
