# SPDX-License-Identifier: Apache-2.0
"""The suite behind scripts/bench: its tables, and the smallest run of the groups that need no torch, without thresholds."""
import json
import subprocess
import sys
from pathlib import Path

import pytest
from inductorfs_testing.fixtures import need

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from table import Hole, Table, write  # noqa: E402


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
    write("link", table_of([1.0, 2.0], [1.0, 1.0], aim=1.0), "Measured somewhere.", tmp_path)
    assert "![A title](link.svg)" in (tmp_path / "link.md").read_text()
    assert (tmp_path / "link.svg").read_text().count("<rect") == 3
    (row,) = json.loads((tmp_path / "link.json").read_text())["rows"]
    assert row["ratios"] == [1.0, 2.0] and row["met"] is False


def test_the_groups_without_torch_measure(tmp_path):
    need("redis-server", "openssl")
    done = subprocess.run([sys.executable, "-B", HERE / "suite.py", "ops", "link", "store", "--smoke", "--out", tmp_path], capture_output=True,
                          text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("ops", "link", "store"):
        rows = json.loads((tmp_path / f"{name}.json").read_text())["rows"]
        assert len(rows) >= 2 and all(value > 0 for row in rows for values in row["sides"].values() for value in values), rows
