#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds that what the documents tell a user to do is what the rings do: every command with its options, and every variable, that README.md, a
document below docs or a man page names is used by a test; the variables that `inductorfs env` prints are used by a ring of real
software; and these rings run on mounts that were told of nothing, but for the variants that are listed here. Exit code 1 and one
line for each offence.   check_documented_use.py [ROOT]"""
import re
import sys
from pathlib import Path

from documented_pages import documents_for_users

# A block or inline code of a document; and of a man page the lines of code, names of variables and literals.
CODE = re.compile(r"^```\w*\n(.*?)^```$|`([^`\n]+)`", re.MULTILINE | re.DOTALL)
MANUAL = re.compile(r"^(?:\.(?:Ev|It Ev|Li|Dl) )?(.*)$", re.MULTILINE)
COMMAND = re.compile(r"(?:^|[\s(\"$])inductorfs ([a-z]+(?:-[a-z]+)*)\b([^|;&)\n#]*)", re.MULTILINE)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
VARIABLE = re.compile(r"(?<![\w-])([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)\b")
# What has such a name and is no variable; and the variables of other programs about which a document only gives advice, which no command or
# test could use as written. {name: reason}
NOT_USED = {"FUSE_ALLOW_IDMAP": "a flag of the kernel", "LOCK_TIMEOUT": "a constant of torch", "SGLANG_DG_CACHE_DIR": "SGLang sets it; env says to leave it alone",
            "TRITON_OVERRIDE_DIR": "its directory alone is used, by file operations (tests/mount/test_triton.py)",
            "TORCHINDUCTOR_CPP_DYNAMIC_THREADS": "a reason for a rule", "VLLM_DP_RANK_LOCAL": "of engines with several ranks, which no test has"}
NAME = re.compile(r'^ +\{"([a-z-]+)",', re.MULTILINE)
# What `inductorfs env` prints and no ring of real software can have: {name: reason}. Other tests use them.
NOT_REAL = {"DG_JIT_CACHE_DIR": "DeepGEMM is built with a GPU alone; tests/serving/protocols.py replays what it does",
            "SGLANG_CACHE_DIR": "SGLang's engine needs a GPU; its own kernels lie in SGLANG_JIT_CACHE_DIR"}
REAL = ("tests/torch", "tests/serving")
# What declares an environment, or leads a job elsewhere than `inductorfs env` does.
VARIANT = re.compile(r'declared=(?!False)|"--(?:python|fingerprint|writers)"|(?:TRITON|TORCHINDUCTOR)_CACHE_DIR=')
# {file of these rings: which variant it has, and why}
VARIANTS = {
    "tests/torch/test_compile_once.py": "the older torch is declared",
    "tests/torch/test_cpu_jobs.py": "the older torch is declared; a root below the mountpoint",
    "tests/torch/test_environments.py": "jobs of a directory below the mountpoint",
    "tests/torch/test_fingerprint.py": "about the command",
    "tests/torch/test_matrix.py": "besides, a directory of root's in which all may write",
    "tests/torch/test_pgo.py": "the older torch is declared",
    "tests/torch/test_private.py": "one case more for --writers all",
    "tests/torch/test_sidecar.py": "docs/containers.md: a daemon that does not see the jobs",
    "tests/torch/test_triton_kernels.py": "the older Triton is declared, in directories of torch's form",
    "tests/torch/test_two_environments.py": "jobs of directories below the mountpoint",
    "tests/torch/test_why_miss.py": "two users' directories, of the names that env prints for them",
    "tests/torch/incidents/conftest.py": "nodes of other hardware, by facts from files",
    "tests/torch/incidents/incident_hosts.py": "nodes of other hardware, by facts from files",
    "tests/torch/incidents/test_cpu.py": "nodes of other hardware, by facts from files",
    "tests/torch/incidents/test_triton.py": "nodes of other hardware, by facts from files",
    "tests/serving/test_incidents.py": "nodes of other hardware, by facts from files",
}


def documents(root):
    return [*documents_for_users(root), *sorted((root / "docs/man").glob("*"))]


def code_of(path):
    text = path.read_text()
    if path.suffix == ".md":
        return [block or inline for block, inline in CODE.findall(text)]
    return MANUAL.findall(text.replace("\\-", "-"))


def tests_of(root):
    """{file: its text} of what runs: the rings, and the manifests that tests/mount/test_kubernetes.py runs."""
    found = {}
    for folder in ("tests", "packaging/kubernetes"):
        for path in sorted((root / folder).rglob("*")):
            name = path.relative_to(root)
            if path.suffix in (".py", ".cc", ".h", ".yaml") and not {"lint", "bench"} & set(name.parts):
                found[name.as_posix()] = path.read_text(errors="replace")
    return found


def check_commands(root, tests):
    said = {}
    for path in documents(root):
        for piece in code_of(path):
            for command, rest in COMMAND.findall(piece.replace("\\\n", " ")):
                said.setdefault(command, {}).setdefault("", path)
                for option in OPTION.findall(rest):
                    said[command].setdefault(option, path)
    commands = set(NAME.findall((root / "src/cli/commands.cc").read_text()))
    if not commands & said.keys():
        yield "README.md: no command was found; have the documents another form?"
    for command, options in sorted(said.items()):
        if command not in commands:
            continue
        users = [text for text in tests.values() if re.search(rf"""["' ]{command}["' ]""", text)]
        for option, path in sorted(options.items()):
            if not any(re.search(rf"(?:^|[^\w-]){option}(?![\w-])", text) for text in users):
                yield f"{path.relative_to(root)}: no test uses inductorfs {command} {option}".rstrip()


def check_variables(root, tests):
    said = {}
    for path in documents(root):
        for piece in code_of(path):
            for name in VARIABLE.findall(piece):
                said.setdefault(name, path)
    everything = "\n".join(tests.values())
    for name, path in sorted(said.items()):
        used = re.search(rf"(?<!\w){name}(?!\w)", everything)
        if not used and name not in NOT_USED:
            yield f"{path.relative_to(root)}: no test uses the variable {name}"
        if used and name in NOT_USED:
            yield f"tests/lint/check_documented_use.py: NOT_USED has {name}, which a test uses"
    yield from (f"tests/lint/check_documented_use.py: NOT_USED has {name}, which no document names" for name in sorted(NOT_USED.keys() - said.keys()))


def check_printed(root, tests):
    """The tables of caches in src/layout: {"engine", "VARIABLE", "directory" ...; one without a directory is not printed."""
    printed = []
    for source in [root / "src/layout/user_caches.cc", *sorted((root / "src/layout/engines").glob("*.cc"))]:
        found = re.findall(r'^ +\{"[^"]+", "([A-Z_]+)", (?:"|nullptr)', source.read_text(), re.MULTILINE)
        printed += re.findall(r'^ +\{"[^"]+", "([A-Z_]+)", "', source.read_text(), re.MULTILINE)
        if not found and source.stem != "engines":
            yield f"{source.relative_to(root)}: no variable was found; has the table another form?"
    real = "\n".join(text for name, text in tests.items() if name.startswith(REAL))
    for name in printed:
        if name not in NOT_REAL and not re.search(rf"(?<!\w){name}(?!\w)", real):
            yield f"src/layout: no ring of real software uses the variable {name}, which `inductorfs env` prints"


def check_variants(tests):
    found = {name for name, text in tests.items() if name.startswith(REAL) and "/workloads/" not in name and VARIANT.search(text)}
    yield from (f"{name}: runs on a mount that was told of something, or elsewhere than `inductorfs env` says, and is not in VARIANTS" for name in
                sorted(found - VARIANTS.keys()))
    yield from (f"tests/lint/check_documented_use.py: VARIANTS has {name}, which is none" for name in sorted(VARIANTS.keys() - found))


def check(root):
    tests = tests_of(root)
    yield from check_commands(root, tests)
    yield from check_variables(root, tests)
    yield from check_printed(root, tests)
    yield from check_variants(tests)


def main():
    root = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
    offences = list(check(root))
    print("\n".join(offences), end="\n" if offences else "")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
