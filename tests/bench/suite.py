#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures groups and prints a table for each; `scripts/bench` builds what it needs and calls it. Each number is that of a round; all sides are
measured in each round, in turn, and a ratio is of one round. A measurement that fails ends the run.

  ops      files and names, in C and in Python: ext4, a FUSE file system with nothing in it, the mount
  replay   what a cold and a warm start of a torch job ask of files, recorded and played again by one process and by several
  start    starts of a torch job: cold, warm, and on another node by each way to get there
  once     ranks that want the same graphs, with and without --compile-once
  link     a fresh node over links of some round trips and rates, beside a raw pipelined GET
  scale    many entries, many mounts
  store    the store's calls, beside a file for each blob

  suite.py [GROUP...] [--short | --smoke] [--out DIRECTORY] [--document] [--cells CELL,...]
"""
import argparse
import importlib
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support" / "python"))

from inductorfs_testing import places  # noqa: E402
from table import section, write  # noqa: E402

GROUPS = ("ops", "replay", "start", "once", "link", "scale", "store")
CHARTS, DOCUMENT = places.REPOSITORY / "docs" / "charts", places.REPOSITORY / "docs" / "performance.md"
TORCH = "2.15"


@dataclass
class Plan:
    """How much is measured, and with which programs."""
    size: str  # smoke, short, full
    programs: Path  # what Meson built of this folder
    cells: str = ""
    torch: str = TORCH

    @property
    def jobs(self):
        """Of tests/torch/workloads/cpu_jobs.py."""
        return self.pick("dynamic", "dynamic", "train,inference,dynamic")

    @property
    def recorded_jobs(self):
        """Of the same, under strace, where a call takes a hundred times as long: the three would be five minutes."""
        return self.pick("dynamic", "dynamic", "train")

    @property
    def environment(self):
        """Of the jobs. Less is measured without precompiled headers, one of which takes as long to compile as a small job."""
        return {} if self.size == "full" else {"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}

    def pick(self, smoke, short, full):
        return {"smoke": smoke, "short": short, "full": full}[self.size]

    def program(self, name):
        path = self.programs / name
        if not path.exists():
            raise SystemExit(f"bench: {path} is not built; scripts/bench builds it")
        return path

    @staticmethod
    def phase(what):
        """Says what is done now: one line."""
        print(f"bench:   {what}", flush=True)


def order(sides, number):
    """The sides of a round, in turn from the front and from the back: what drifts hits all of them."""
    return list(sides) if number % 2 == 0 else list(reversed(list(sides)))


def output(*words):
    return subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, check=True).stdout


def machine():
    """What the figures depend on, in one sentence without a full stop."""
    model = next((line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")),
                 platform.machine())
    kind = output("stat", "-f", "-c", "%T", tempfile.gettempdir()).strip().replace("ext2/ext3", "ext4")
    redis = output("redis-server", "--version").split("v=")[1].split()[0]
    program = output(places.program(), "--version").split()[1]
    kernel = ".".join(platform.release().split("-")[0].split(".")[:2])
    return (f"{len(os.sched_getaffinity(0))} cores of {model} with a load of {os.getloadavg()[0]:.1f} before, Linux {kernel}, directories on {kind}, "
            f"redis-server {redis}, Python {platform.python_version()}, torch {TORCH}, inductorfs {program}")


def put_into_document(name, text):
    """Replaces what stands between the marks of this group."""
    whole = DOCUMENT.read_text()
    begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
    if begin not in whole or end not in whole:
        raise SystemExit(f"bench: {DOCUMENT.name} has no marks for {name}")
    before, rest = whole.split(begin, 1)
    DOCUMENT.write_text(f"{before}{begin}{text}{end}{rest.split(end, 1)[1]}")


def one_group(name, plan, said, arguments):
    """Measures it, and says and writes its table."""
    began = time.monotonic()
    print(f"bench: {name}", flush=True)
    table = importlib.import_module(f"group_{name}").measure(plan)
    print(f"\n## {table.title}\n\n{table.markdown()}\n", flush=True)
    if arguments.out:
        write(name, table, said, arguments.out)
        (arguments.out / f"{name}.md").write_text(f"# {table.title}\n\n{section(name, table, said, '')}")
    if arguments.document:
        write(name, table, said, CHARTS)
        put_into_document(name, section(name, table, said, "charts/"))
    print(f"bench: {name} took {time.monotonic() - began:.0f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", metavar="GROUP")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--short", dest="size", action="store_const", const="short", default="full", help="smaller, some minutes in all")
    size.add_argument("--smoke", dest="size", action="store_const", const="smoke", help="the smallest that runs every line, for CI; without torch")
    parser.add_argument("--out", type=Path, help="write a table, a chart and JSON for each group")
    parser.add_argument("--document", action="store_true", help="write the charts of docs/charts and the tables of docs/performance.md")
    parser.add_argument("--cells", default="", help="link: COUNTxKIB@RTT_MS[/GBITS][+tls],... or corpus@...")
    parser.add_argument("--needs", action="store_true", help="only say whether an environment with torch is needed")
    arguments = parser.parse_args()
    if unknown := set(arguments.groups) - set(GROUPS):
        parser.error(f"there is no group {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    groups = arguments.groups or GROUPS
    if arguments.needs:
        corpus = "link" in groups and arguments.size != "smoke" and "corpus" in (arguments.cells or "corpus")
        print("torch" if corpus or {"replay", "start", "once"} & set(groups) else "nothing")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started ends as after Control-C
    plan = Plan(arguments.size, places.program().parents[2] / "tests" / "bench", arguments.cells)
    facts, command = machine(), "scripts/bench {}" + ("" if arguments.size == "full" else f" --{arguments.size}")
    for name in groups:
        cells = f" --cells {arguments.cells}" if arguments.cells and name == "link" else ""
        said = f"Measured by `{command.format(name)}{cells}` on {facts}: medians, and from the least to the most of the rounds."
        one_group(name, plan, said, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
