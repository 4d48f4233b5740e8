# SPDX-License-Identifier: Apache-2.0
"""The incident table and the tests of this directory name each other."""
import re
from pathlib import Path

from incident_table import CONTROLS, NEEDLESS_MISS, WRONG_REUSE


def test_each_line_has_its_tests_and_each_test_its_line():
    found = [name for path in Path(__file__).parent.glob("test_*.py") if path.name != Path(__file__).name
             for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)]
    lines = (*WRONG_REUSE, *NEEDLESS_MISS)
    assert all(line.tests and line.contained for line in lines)
    named = {name for line in lines for name in line.tests}
    contained = {name for line in lines for name in line.contained}
    assert sorted(found) == sorted([*named, *contained, *CONTROLS])
