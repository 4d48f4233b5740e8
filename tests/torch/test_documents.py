# SPDX-License-Identifier: Apache-2.0
"""The commands in the documents. A block of a shell runs as it stands, with real torch and a real server, in a container of its own that has the
paths which the text names. A block whose first line says where it runs (`# on each node, as root`) needs another machine, or the
network: it is checked for its syntax, and for the commands and options that it names."""
import os
import re
import subprocess
from pathlib import Path

import pytest
from inductorfs_testing import places
from inductorfs_testing.fixtures import Cluster, lack
from inductorfs_testing.pods import PATH, KubeNode, PodContainer, Volumes
from inductorfs_testing.processes import run

DOCUMENTS = ["README.md", "docs/tutorial.md", "docs/containers.md", "docs/serving.md", "docs/sizing.md",
             *sorted(path.relative_to(places.REPOSITORY).as_posix() for path in (places.REPOSITORY / "docs/operations").rglob("*.md"))]
RUN = ["README.md", "docs/serving.md", "docs/tutorial.md"]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ELSEWHERE = re.compile(r"# (?:on|in|where) ")
SAID = re.compile(r"It prints `([^`]+)`")
COMMAND = re.compile(r"(?:^|[\s(\"$])inductorfs ([a-z]+(?:-[a-z]+)*)\b([^|;&)\n]*)", re.MULTILINE)
TEXTS = {"toml", "yaml", "text", "ini", "python"}
# What a document takes for granted: the server at cache.example, and a job.
GRANTED = """
ip link set lo up
echo '127.0.0.1 cache.example' >> /etc/hosts
mkdir -p /tmp/home /tmp/work
cd /tmp/work
"""
GRANTED_BY = {"README.md": GRANTED + """
redis-server --port 6379 --save '' --daemonize yes
cp /tools/train.py .
""", "docs/serving.md": GRANTED + """
redis-server --port 6379 --save '' --daemonize yes
mkdir -p /var/cache/inductor
inductorfs mount /var/cache/inductor --remote redis://cache.example:6379/0 --store /tmp/home/store
trap 'inductorfs unmount /var/cache/inductor' EXIT
""", "docs/tutorial.md": GRANTED}


def text_of(name):
    return (places.REPOSITORY / name).read_text()


def blocks(name):
    """(language, text) of each block of a document."""
    return BLOCK.findall(text_of(name))


def shell(name):
    return [text for language, text in blocks(name) if language == "sh"]


def job_of_the_tutorial():
    [text] = re.findall(r"^cat > \S+/train\.py <<'END'\n(.*?)^END$", text_of("docs/tutorial.md"), re.MULTILINE | re.DOTALL)
    return text


@pytest.mark.parametrize("name", DOCUMENTS)
def test_each_block_says_what_it_is(name):
    """So that no command goes unchecked."""
    wrong = [text for language, text in blocks(name) if language not in {"sh", *TEXTS}]
    assert not wrong
    assert text_of(name).count("```") == 2 * len(blocks(name))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_shell_reads_it(name):
    for text in shell(name):
        done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
        assert done.returncode == 0 and not done.stderr, (text, done.stderr)


def test_its_options_exist():
    manifests = [path.read_text() for path in sorted((places.REPOSITORY / "packaging/kubernetes").glob("*.yaml"))]
    said, helps = {}, {}
    for text in [*manifests, *(text for name in DOCUMENTS for text in shell(name))]:
        for command, rest in COMMAND.findall(text.replace("\\\n", " ")):
            said.setdefault(command, set()).update(re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest))
    for command, options in said.items():
        done = run([places.program(), command, "--help"])
        assert done.code == 0, (command, done)
        helps[command] = set(re.findall(r"--[a-z][a-z-]*", done.out))
        assert options <= helps[command], (command, options - helps[command])
    assert len(said) > 6 and said["mount"], "are the commands found?"


@pytest.mark.parametrize("name", RUN)
def test_it_runs_as_it_stands(name):
    here = [text for text in shell(name) if not ELSEWHERE.match(text)]
    assert here, name
    environment = places.venv("2.15")
    script = "set -euo pipefail\n" + GRANTED_BY[name] + "".join(f"echo '== {number}'\n{text}" for number, text in enumerate(here))
    out = in_a_container(script, environment)
    assert out.code == 0, f"{out.out[-6000:]}\n{out.err[-3000:]}"
    assert f"== {len(here) - 1}\n" in out.out
    rest = out.out
    for said in SAID.findall(text_of(name)):
        assert said in rest, (said, out.out)
        rest = rest.split(said, 1)[1]


def in_a_container(script, environment):
    """Runs the script where nothing of this host is in /var, /tmp, /run and /opt, with torch at /opt/train, without a network."""
    if os.geteuid() != 0:
        lack("namespaces: root only")
    base = Path(re.search(r"^home = (.*)/bin$", (environment / "pyvenv.cfg").read_text(), re.MULTILINE)[1])
    with Cluster() as cluster, KubeNode("host", cluster.directory) as node:
        tools = cluster.directory / "tools"
        tools.mkdir()
        (tools / "script").write_text(script)
        (tools / "train.py").write_text(job_of_the_tutorial())
        binds = {environment: "/opt/train", tools: "/tools"} | ({} if base == Path("/usr") else {base: base})
        pod = {"containers": [{"name": "reader", "command": ["sleep", "infinity"]}], "volumes": []}
        with PodContainer(node, pod, "reader", Volumes(node, pod), binds=binds,
                          environment={"PATH": f"{PATH}:/opt/train/bin", "HOME": "/tmp/home"}) as reader:
            done = reader.run("unshare", "--net", "bash", "/tools/script", seconds=900)
            assert reader.run("grep", "-c", "fuse.inductorfs", "/proc/mounts").out == "0\n", "a mount is left"
        return done
