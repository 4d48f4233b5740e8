# SPDX-License-Identifier: Apache-2.0
"""The incident table and the tests of this directory name each other."""
import re
from pathlib import Path

from incident_table import CONTROLS, NEEDLESS_MISS, WRONG_REUSE


def test_each_line_has_its_tests_and_each_test_its_line():
    found = [name for path in Path(__file__).parent.glob("test_*.py") if path.name != Path(__file__).name
             for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)]
    named = [name for line in (*WRONG_REUSE, *NEEDLESS_MISS) for name in line.tests]
    assert sorted(found) == sorted([*named, *CONTROLS])
