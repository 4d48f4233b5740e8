# SPDX-License-Identifier: Apache-2.0
"""check_documented_use.py finds what it is for: each case breaks one thing in a small project that is in order."""
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import check_documented_use  # noqa: E402

PROJECT = {
    "README.md": "```sh\ninductorfs mount /m --remote R\neval \"$(inductorfs env /m)\"\n```\n`THE_VARIABLE` `inductorfs sync PATH`\n",
    "docs/a.md": "",
    "docs/operations/b.md": "`PAGE_VARIABLE`",
    "docs/man/a.1": ".It Ev OTHER_VARIABLE\n",
    "src/cli/commands.cc": "".join(f'    {{"{name}", "help", {name}_command}},\n' for name in ("mount", "env", "sync")),
    "src/layout/engines/one.cc": '    {"one", "ONE_CACHE", "one", "",\n',
    "src/layout/user_caches.cc": '    {"Triton", "TRITON_CACHE_DIR", "triton_cache", "",\n    {"one", "NOT_PRINTED", nullptr, "",\n',
    "tests/mount/test_a.py": "run([PROGRAM, 'mount', '--remote', x]); run('inductorfs env'); cli(\"sync\"); THE_VARIABLE OTHER_VARIABLE PAGE_VARIABLE\n",
    "tests/torch/test_b.py": 'variables()["TRITON_CACHE_DIR", "ONE_CACHE"]\n',
    "tests/torch/test_c.py": "Cluster(declared=True)\n",
    "packaging/kubernetes/a.yaml": "",
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    for name, text in PROJECT.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(check_documented_use, "VARIANTS", {"tests/torch/test_c.py": "why"})
    monkeypatch.setattr(check_documented_use, "NOT_USED", {})
    return tmp_path.resolve()


def test_a_project_in_order_has_no_offence(project):
    assert list(check_documented_use.check(project)) == []


@pytest.mark.parametrize("name, old, new, offence", [
    ("README.md", "--remote", "--unused", "README.md: no test uses inductorfs mount --unused"),
    ("tests/mount/test_a.py", "sync", "other", "README.md: no test uses inductorfs sync"),
    ("README.md", "THE_VARIABLE", "NEW_VARIABLE", "README.md: no test uses the variable NEW_VARIABLE"),
    ("docs/operations/b.md", "PAGE_VARIABLE", "NEW_VARIABLE", "docs/operations/b.md: no test uses the variable NEW_VARIABLE"),
    ("docs/man/a.1", "OTHER_VARIABLE", "NEW_VARIABLE", "docs/man/a.1: no test uses the variable NEW_VARIABLE"),
    ("tests/torch/test_b.py", "TRITON_CACHE_DIR", "", "no ring of real software uses the variable TRITON_CACHE_DIR"),
    ("tests/torch/test_b.py", "variables()", "TRITON_CACHE_DIR=x", "tests/torch/test_b.py: runs on a mount that was told of something"),
    ("tests/torch/test_b.py", "variables()", 'start("--python")', "tests/torch/test_b.py: runs on a mount that was told of something"),
    ("tests/torch/test_c.py", "declared=True", "", "VARIANTS has tests/torch/test_c.py, which is none"),
    ("src/layout/user_caches.cc", '{"', "{ '", "no variable was found"),
    ("src/layout/engines/one.cc", '{"', "{ '", "no variable was found"),
    ("src/cli/commands.cc", '{"', "{ '", "no command was found"),
])
def test_finds(project, name, old, new, offence):
    path = project / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    assert any(offence in line for line in check_documented_use.check(project)), list(check_documented_use.check(project))
