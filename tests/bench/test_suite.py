# SPDX-License-Identifier: Apache-2.0
"""The suite behind scripts/bench: its tables, and the smallest run of the groups that need no torch, without thresholds."""
import json
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import ANY

import pytest
from inductorfs_testing import places
from inductorfs_testing.fixtures import need
from inductorfs_testing.processes import run

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from table import Hole, Table, section, write  # noqa: E402
from torch_record import record  # noqa: E402

# Calls of two threads, one of which closes what the other opened, and of a child, to files below the directory that is given and elsewhere.
JOB = """
import os, subprocess, sys, threading
top = sys.argv[1]
os.makedirs(top + "/ab")
file = open(top + "/ab/.12.34.tmp", "wb")
def write():
    with file:
        file.write(b"text")
    os.rename(top + "/ab/.12.34.tmp", top + "/ab/cabc.py")
thread = threading.Thread(target=write)
thread.start()
thread.join()
assert open(top + "/ab/cabc.py").read() == "text" and not os.path.exists(top + "/absent") and os.listdir(top + "/ab") == ["cabc.py"]
subprocess.run(["sh", "-c", "echo more >>" + top + "/ab/log; rm " + top + "/ab/log"], check=True)
open(os.devnull).close()
"""


def table_of(ours, other, **settings):
    table = Table("A title", "s", "ours", "raw")
    row = table.row("a row", **settings)
    for side, values in (("raw", other), ("ours", ours)):
        for value in values:
            row.add(side, value)
    return table


def test_a_ratio_is_of_one_round():
    """The medians of both sides are 2 and 1; round by round ours is never twice as slow."""
    table = table_of([1.0, 2.0, 9.0], [1.0, 1.6, 9.0], aim=1.3)
    assert table.rows[0].ratios == [1.0, 1.25, 1.0]
    assert table.markdown().splitlines()[2] == "| a row | 1.60 s (1.00-9.00) | 2.00 s (1.00-9.00) | 1.00 (1.00-1.25) | at most 1.30: met |"


def test_an_aim_that_is_missed_is_said():
    assert "at most 1.50: missed" in table_of([2.0], [1.0], aim=1.5).markdown()
    assert "at most 60.0 s: missed" in table_of([61.0], [1.0], bound=60.0).markdown()
    assert "at most 60.0 s: met" in table_of([60.0], [1.0], bound=60.0).markdown()


@pytest.mark.parametrize("ours, other", [([1.0, 1.0], [1.0]), ([], [1.0]), ([1.0], [])])
def test_what_was_not_measured_is_an_error(ours, other):
    with pytest.raises(Hole):
        table_of(ours, other).markdown()
    with pytest.raises(Hole):
        Table("nothing", "s", "ours", "raw").markdown()


def test_a_group_is_written_as_table_chart_and_figures(tmp_path):
    table = table_of([1.0, 2.0], [1.0, 1.0], aim=1.0)
    write("link", table, "Measured somewhere.", tmp_path)
    assert section("link", table, "Measured somewhere.", "charts/").endswith("![A title](charts/link.svg)\n")
    assert (tmp_path / "link.svg").read_text().count("<rect") == 3
    (row,) = json.loads((tmp_path / "link.json").read_text())["rows"]
    assert row["ratios"] == [1.0, 2.0] and row["met"] is False


def replay(recording, contents, directory, processes):
    program = places.program().parents[2] / "tests" / "bench" / "replay"
    return run([program, recording, contents, directory, processes]).json


def test_a_recording_is_played_with_the_answers_and_bytes_of_the_job(tmp_path):
    need("strace")
    top, scratch = tmp_path / "top", tmp_path / "scratch"
    for directory in (top, scratch / "tmp", tmp_path / "one", tmp_path / "four"):
        directory.mkdir(parents=True)
    text = record([sys.executable, "-c", JOB, top], top, scratch, "small")
    lines = text.read_text().splitlines()
    assert {"mkdir\tab\t511\t0", "stat\tabsent\t2", "rename\tab/.12.34.tmp%\tab/cabc.py\t0", "unlink\tab/log\t0"} <= set(lines), lines
    assert not [line for line in lines if "null" in line]

    assert replay(text, top, tmp_path / "one", 1) == {"seconds": ANY, "calls": len(lines), "different": 0}
    assert (tmp_path / "one/ab/cabc.py").read_text() == "text" and os.listdir(tmp_path / "one/ab") == ["cabc.py"]
    assert replay(text, top, tmp_path / "one", 1)["different"] == 1, "the directory is there already"
    assert replay(text, top, tmp_path / "four", 4)["calls"] == len(lines)
    assert (tmp_path / "four/ab/cabc.py").read_text() == "text"


def test_the_groups_without_torch_measure(tmp_path):
    need("redis-server", "openssl")
    done = subprocess.run([sys.executable, "-B", HERE / "suite.py", "ops", "link", "store", "--smoke", "--out", tmp_path], capture_output=True,
                          text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("ops", "link", "store"):
        rows = json.loads((tmp_path / f"{name}.json").read_text())["rows"]
        assert len(rows) >= 2 and all(value > 0 for row in rows for values in row["sides"].values() for value in values), rows
