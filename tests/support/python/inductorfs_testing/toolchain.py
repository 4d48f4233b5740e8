# SPDX-License-Identifier: Apache-2.0
"""Tools that stand first in PATH, log what they are asked for and run the real one, or refuse."""
import collections
import hashlib
import os
import re
import shutil
from pathlib import Path

from . import places

# One short line per call (a whole command line is longer than PIPE_BUF, and lines of two compilers would mix).
COMPILER = """#!/bin/sh
# {name}: logs its kind of work, then is the real one.
kind= output= source=
previous=
for word do
  case $previous in -o) output=$word ;; -x) case $word in *-header) kind=header ;; esac ;; esac
  case $word in
    --version|-dumpversion|-dumpfullversion|-dumpmachine|-print*|--print*) kind=query ;;
    -v|-Q|--help*) [ -n "$kind" ] || kind=query ;;
    -E|-M|-MM) kind=preprocess ;;
    -c|-S) kind=compile ;;
    -) source=- ;;
    *.cpp|*.c|*.cc|*.h|*.hpp|*.o|*.s) [ "$previous" = -o ] || [ "$previous" = -include ] || source=$word ;;
  esac
  previous=$word
done
if [ -n "$source" ] && [ "${{kind:-query}}" = query ]; then kind=link; fi
printf '%s\\t%s\\t%s\\n' "${{kind:-other}}" "$output" "$source" >> '{log}'
{compiler_cache}exec '{real}' "$@"
"""
# ccache gives back what the same compiler has made from the same text and the same headers for another node of a test: a precompiled
# header, and the object of a source that is compiled and linked in one call, which is linked each time. Paths below the base are
# relative for it, and -march=native is another compiler on another processor. Other users than its owner have no part in it.
COMPILER_CACHE = """cached() {{
  CCACHE_DIR='{cache}' CCACHE_MAXSIZE=1G CCACHE_NAMESPACE='{processor}' CCACHE_BASEDIR='{base}' CCACHE_NOHASHDIR=1 \\
    CCACHE_SLOPPINESS=pch_defines,time_macros '{ccache}' '{real}' "$@"
}}
if [ -w '{cache}' ]; then
  case $kind:$source in
    header:*) cached "$@"; exit ;;
    link:*.cpp)
      object=$(mktemp --suffix=.o) || exit
      trap 'rm -f "$object"' EXIT
      cached "$@" -c -o "$object" || exit
      for word do
        shift
        [ "$word" = "$source" ] && word=$object
        set -- "$@" "$word"
      done
      '{real}' "$@"
      exit ;;
  esac
fi
"""

PTXAS = """#!/bin/sh
# ptxas: logs; answers --version as the real one does (that text is in Triton's keys); {rule} at anything else.
case "$*" in --version) exec '{real}' --version ;; esac
printf '%s\\n' "$*" >> '{log}'
{action}
"""


def _write(path: Path, text: str):
    path.write_text(text)
    path.chmod(0o755)


class CountingCompilers:
    """g++, gcc, cc and c++ in `directory`, each logging one line per call. A mount knows a compiler by its files and looks through
    programs with ccache's name, so these have it. Where INDUCTORFS_HEADER_CACHE is "yes", precompiled headers and objects are kept
    for other nodes of other tests (CONTRIBUTING.md); such a call is logged as every other."""

    KINDS = ("query", "preprocess", "header", "compile", "link", "other")

    def __init__(self, directory: Path, log: Path):
        directory.mkdir(parents=True, exist_ok=True)
        self._log = log
        log.touch()
        cache, ccache = places.outside_the_tree() / "headers", shutil.which("ccache")
        keeps = ccache and os.environ.get("INDUCTORFS_HEADER_CACHE") == "yes"
        if keeps:
            cache.mkdir(parents=True, exist_ok=True)
        paths = [part for part in os.environ["PATH"].split(os.pathsep) if part != str(directory)]
        for name in ("g++", "gcc", "cc", "c++"):
            if real := self._real(name, paths):
                # The base is above the directories of all tests: directory is BASE/CLUSTER/NODE/tools.
                kept = COMPILER_CACHE.format(cache=cache, base=directory.parents[2], ccache=ccache, real=real,
                                             processor=self._processor()) if keeps else ""
                script = directory / f"ccache-{name}"
                _write(script, COMPILER.format(name=name, log=log, real=real, compiler_cache=kept))
                (directory / name).unlink(missing_ok=True)
                (directory / name).symlink_to(script.name)

    @staticmethod
    def _processor():
        """A digest of its model and of what it can do."""
        says = re.findall(r"^(?:model name|flags|Features)\s.*$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        return hashlib.sha256("\n".join(sorted(set(says))).encode()).hexdigest()[:16]

    @staticmethod
    def _real(name, paths):
        """ccache under a compiler's name takes the next one of that name in PATH: this one, which would call it again for ever."""
        found = (shutil.which(name, path=path) for path in paths)
        return next((path for path in found if path and os.path.basename(os.path.realpath(path)) != "ccache"), None)

    def clear(self):
        self._log.write_text("")

    def calls(self):
        """[(kind, output, source)]"""
        return [tuple(line.split("\t")) for line in self._log.read_text().splitlines()]

    def counts(self):
        """{kind: number}; a call that makes an object from a source and links it in one is a "link"."""
        return dict(collections.Counter(kind for kind, _, _ in self.calls()))


class PtxasCalls:
    """Counts the runs of ptxas without another one in its place, which would be another environment: by a hook in each Python process of a
    job (workloads/calls_of_ptxas)."""

    def __init__(self, log: Path):
        self._log = log
        log.write_text("")
        log.chmod(0o666)  # jobs of any user
        self.env = {"PYTHONPATH": str(places.WORKLOADS / "calls_of_ptxas"), "CALLS_OF_PTXAS": str(log)}

    def calls(self):
        return self._log.read_text().splitlines()


class CountingPtxas:
    """Triton's ptxas and ptxas-blackwell. `works=False`: only --version is answered. To a mount each directory of them is another
    environment, unless all writers count as one (`--writers all`) or as the one that was declared."""

    def __init__(self, directory: Path, log: Path, triton_bin: Path, works: bool):
        directory.mkdir(parents=True, exist_ok=True)
        self._log = log
        log.touch()
        self.env = {}
        for name, variable in (("ptxas", "TRITON_PTXAS_PATH"), ("ptxas-blackwell", "TRITON_PTXAS_BLACKWELL_PATH")):
            real = triton_bin / name
            if not real.exists():
                continue
            action = f"exec '{real}' \"$@\"" if works else "echo 'ptxas: this node must not compile' >&2; exit 1"
            _write(directory / name, PTXAS.format(real=real, log=log, action=action,
                                                  rule="is the real one" if works else "fails"))
            self.env[variable] = str(directory / name)

    def calls(self):
        return self._log.read_text().splitlines()
