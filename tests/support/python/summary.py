#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the single test cases of one `meson test` run: those of gtest from Meson's JUnit file, those of pytest from the
files that pytest wrote, and every other test as one. The last line is `N passed, N failed, N skipped`.

  summary.py [MESON_LOGS STATUS] [--emulated MESON_LOGS STATUS]

STATUS is the exit status of meson test, or of scripts/cross. --emulated: the logs of a run under an emulator of another processor, whose
test cases are counted with the others.
"""
import json
import os
import re
import sys
import xml.etree.ElementTree as tree
from pathlib import Path

MAY_BE_SKIPPED = "gpu"  # the one test of the ring; whatever else skips, where and why, is red in CI
# What a user-mode emulator lacks (tests/support/emulator.h), what needs CUDA's stand-in driver, and what is about x86-64.
EMULATOR_LACKS = re.compile(r"lacks (?:openat2\(2\)|its programs in /proc|a stand-in driver|nvcc|g\+\+ or clang\+\+ for x86-64|.* under qemu-user)")
EMULATED = "emulated "  # before the name of a test
# Meson's JUnit file calls a test that ran out of time a passed one, and a gtest that crashed leaves no case.
BAD_RESULTS = {"FAIL", "ERROR", "TIMEOUT", "INTERRUPT", "UNEXPECTEDPASS"}


def outcome(case):
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "skipped" if case.find("skipped") is not None or case.get("status") == "notrun" else "passed"


def reason(case):
    """Where the test was skipped, and why: gtest has both in lines of their own."""
    skipped = case.find("skipped")
    return [] if skipped is None else (skipped.get("message") or skipped.text or "").strip().splitlines()[0:2]


def may_be_skipped(test, why):
    return test == MAY_BE_SKIPPED or test.startswith(EMULATED) and EMULATOR_LACKS.search(" ".join(why))


def test_name(text):
    """Without the project and suites that Meson puts before it: "inductorfs:unit / base"."""
    return text.rsplit(" / ", 1)[-1]


def read(logs):
    """[(test, case, outcome, reason)]"""
    found, by_pytest = [], {}
    for path in sorted(logs.glob("pytest-*.xml")):
        name = path.stem.removeprefix("pytest-").replace("-", "_")
        by_pytest[name] = [(name, f"{case.get('classname')}.{case.get('name')}", outcome(case), reason(case))
                           for case in tree.parse(path).iter("testcase")]
    for suite in tree.parse(logs / "testlog.junit.xml").iter("testsuite"):
        for case in suite.iter("testcase"):
            # Meson gives a test that is not gtest as a case of the suite it belongs to, named as the test.
            name = test_name(case.get("name"))
            if name in by_pytest:
                found += by_pytest[name]
            else:
                # "<project>.<test>.<gtest suite>" for a gtest, else the project's name
                test, dot, group = test_name(suite.get("name").removeprefix("inductorfs.")).partition(".")
                found.append((test if dot else name, f"{group}.{name}" if dot else name, outcome(case), reason(case)))
    unseen = unseen_failures(logs, found)
    wrong = {entry[0] for entry in unseen}
    return [entry for entry in found if entry[:3] not in {(name, name, "passed") for name in wrong}] + unseen


def unseen_failures(logs, found):
    """Tests that did not end well and of which no case says so."""
    failed = {entry[0] for entry in found if entry[2] == "failed"}
    lines = (json.loads(line) for line in (logs / "testlog.json").read_text().splitlines() if line)
    bad = [(test_name(line["name"]), line["result"]) for line in lines if line["result"] in BAD_RESULTS]
    return [(name, name, "failed", [result]) for name, result in bad if name not in failed]


def all_of(logs, status, before=""):
    """What read() finds, with this before the name of each test. A run that did not end well without a failed case is a failed case."""
    try:
        found = read(Path(logs))
    except (OSError, tree.ParseError) as error:
        return [(f"{before}meson test", str(error), "failed", [])]
    if status and not any(entry[2] == "failed" for entry in found):
        found.append(("meson test", f"ended with {status}, though no case failed", "failed", []))
    return [(before + entry[0], *entry[1:]) for entry in found]


def main():
    words, found = sys.argv[1:], []
    while words:
        emulated = words[0] == "--emulated"
        logs, status, *words = words[emulated:]
        found += all_of(logs, int(status), EMULATED if emulated else "")
    of = {kind: [entry for entry in found if entry[2] == kind] for kind in ("passed", "failed", "skipped")}
    for kind in ("failed", "skipped"):
        for test, case, _, why in of[kind]:
            print(f"{kind}: {test}: {case} {' '.join(why)}")
    loud = [entry for entry in of["skipped"] if os.environ.get("CI") and not may_be_skipped(entry[0], entry[3])]
    if loud:
        print(f"CI: {len(loud)} skipped that may not be skipped here")
    print(f"{len(of['passed'])} passed, {len(of['failed'])} failed, {len(of['skipped'])} skipped")
    return 1 if of["failed"] or loud or not of["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
