#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the fuzz targets with clang, ASan and UBSan, and runs each over its corpus for INDUCTORFS_FUZZ_SECONDS (60), two at
a time. One line for each; what it found lies in BUILD/fuzz-findings. Exit code 1 when one found something, 77 when there is
no clang (not where CI is set).   run_fuzzers.py [--build-dir BUILD] [--junitxml FILE] [--build-only] [TARGET]...
"""
import argparse
import concurrent.futures
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as tree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT / "tests" / "fuzz" / "corpus"
SKIPPED = 77
AT_ONCE = 2
ONE_INPUT_SECONDS = 20  # an input that takes longer is a finding
MEMORY_MB = 2048  # so is one that needs more
MARGIN_SECONDS = 300  # after which a target that does not end is killed
TAIL = 60
NICE = 15  # of a build beside tests


def give_way():
    """Where the kernel shares the processor among sessions first (sched_autogroup), a nice value counts within one only; a test has a
    session of its own."""
    os.nice(NICE)
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(NICE))


def seconds():
    return int(os.environ.get("INDUCTORFS_FUZZ_SECONDS", "60"))


def build(directory):
    if not (directory / "build.ninja").exists():
        subprocess.run([ROOT / "scripts" / "sanitize", "--setup", "asan", directory], check=True)
    subprocess.run(["ninja", "-C", directory, "fuzzers"], check=True)


def memory_directory():
    """Where files cost no disk: some targets read what they are given from one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def run(directory, target):
    """(target, whether nothing was found, its log, seconds)"""
    findings = directory / "fuzz-findings" / target
    findings.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=memory_directory(), prefix="inductorfs-fuzz-") as temporary:
        grown = Path(temporary) / "corpus"
        grown.mkdir()
        command = [directory / "tests" / "fuzz" / f"{target}_fuzz", f"-max_total_time={seconds()}",
                   f"-timeout={ONE_INPUT_SECONDS}", f"-rss_limit_mb={MEMORY_MB}", "-print_final_stats=1",
                   f"-artifact_prefix={findings}/", grown, CORPUS / target]
        with open(findings / "log", "w+", errors="replace") as log:
            try:
                done = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, timeout=seconds() + MARGIN_SECONDS,
                                      env={**os.environ, "TMPDIR": temporary}, check=False)
                sound = done.returncode == 0
            except subprocess.TimeoutExpired:
                sound = False
            log.seek(0)
            return target, sound, log.read(), time.monotonic() - began


def line(target, sound, log, took):
    runs = re.search(r"stat::number_of_executed_units:\s*(\d+)", log)
    features = re.findall(r"ft: (\d+)", log)
    what = f"{runs[1] if runs else '?'} runs in {took:.0f} s, {features[-1] if features else '?'} features"
    return f"fuzz: {target}: {what if sound else 'FOUND SOMETHING, ' + what}"


def write_junit(path, results):
    suite = tree.Element("testsuite", name="fuzz")
    for target, sound, log, took in results:
        case = tree.SubElement(suite, "testcase", classname="fuzz", name=target, time=f"{took:.1f}")
        if not sound:
            # XML has no control characters, and libFuzzer prints the input.
            text = re.sub(r"[^\n\x20-\x7e]", "?", "\n".join(log.splitlines()[-TAIL:]))
            tree.SubElement(case, "failure", message="found something").text = text
    if not results:
        case = tree.SubElement(suite, "testcase", classname="fuzz", name="all")
        tree.SubElement(case, "skipped", message="no clang")
    tree.ElementTree(suite).write(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build-dir", type=Path, default=ROOT / "build-asan")
    parser.add_argument("--junitxml", type=Path)
    parser.add_argument("--build-only", action="store_true", help="build with what others leave of the cores, and run nothing")
    parser.add_argument("targets", nargs="*")
    given = parser.parse_args()
    if shutil.which("clang++") is None and not os.environ.get("CI"):
        print("fuzz: no clang++: skipped")
        if given.junitxml:
            write_junit(given.junitxml, [])
        return SKIPPED
    if given.build_only:
        give_way()
    build(given.build_dir.resolve())
    if given.build_only:
        return 0
    targets = given.targets or sorted(path.name for path in CORPUS.iterdir())
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        results = []
        for done in concurrent.futures.as_completed([pool.submit(run, given.build_dir.resolve(), name) for name in targets]):
            results.append(done.result())
            print(line(*results[-1]), flush=True)
    for target, sound, log, _ in results:
        if not sound:
            print(f"--- {target}, the end of its log:", *log.splitlines()[-TAIL:], sep="\n")
    if given.junitxml:
        write_junit(given.junitxml, results)
    return 0 if all(sound for _, sound, _, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
