# SPDX-License-Identifier: Apache-2.0
"""Completions: a real bash and zsh read what `inductorfs completion` prints."""
import os
import re
import shlex
import shutil

import pytest
from inductorfs_testing import places
from inductorfs_testing.fixtures import lack
from inductorfs_testing.processes import run

PROGRAM = places.program()
# The completions ask the program for its options.
SHELL = {"PATH": f"{os.path.dirname(PROGRAM)}:{os.environ['PATH']}"}


def completions(shell):
    done = run([PROGRAM, "completion", shell], dict(os.environ))
    assert done.code == 0 and done.err == "", done.err
    return done.out


@pytest.fixture
def bash(tmp_path):
    """What TAB offers after a command line. The last word is the one that is completed."""
    script = tmp_path / "inductorfs.bash"
    script.write_text(completions("bash"))

    def complete(*words, cwd=None):
        line = ["inductorfs", *words]
        program = (f"source {script}; complete -p inductorfs >/dev/null || exit 9; cd {shlex.quote(str(cwd or tmp_path))}; "
                   f"COMP_WORDS=({shlex.join(line)}); COMP_CWORD={len(words)}; _inductorfs; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
        done = run(["bash", "--norc", "--noprofile", "-c", program], SHELL)
        assert done.code == 0 and done.err == "", done
        return done.out.split("\n")[:-1] if done.out.strip() else []
    return complete


def shown_commands():
    text = run([PROGRAM, "--help"], dict(os.environ)).out
    return re.findall(r"^  (\w[\w-]+)  ", text.partition("Subcommands:")[2], re.MULTILINE)


def test_bash_completes_commands(bash):
    assert bash("mo") == ["mount"]
    commands = shown_commands()
    assert "unmount" in commands and bash("") == [*commands, "--help", "--version"]


def test_bash_completes_the_options_of_a_command(bash):
    assert bash("mount", "--pass") == ["--password-file"]
    assert "--no-allow-other" in bash("mount", "--no-") and bash("status", "--pass") == []
    for command in shown_commands():
        text = run([PROGRAM, command, "--help"], dict(os.environ)).out
        assert set(re.findall(r"^  (?:-h,)?(--[\w-]+)", text, re.MULTILINE)) <= set(bash(command, "--")), command


def test_bash_completes_values(bash, tmp_path):
    (tmp_path / "facts.json").write_text("")
    (tmp_path / "directory").mkdir()
    assert bash("mount", "--config", "fa") == ["facts.json"] == bash("mount", "--config", "=", "fa")
    assert bash("mount", "--store", "") == ["directory"]
    assert bash("env", "--format", "s") == ["sh", "systemd"]
    assert bash("mount", "--threads", "") == []
    assert bash("config", "ch") == ["check"] and bash("completion", "z") == ["zsh"]


@pytest.mark.usefixtures("root")
def test_bash_completes_mountpoints_and_evaluates_none(cluster, bash, tmp_path):
    """Every user may make a mountpoint with any name, and root may press TAB."""
    node = cluster.node("a", start=False)
    mountpoint = tmp_path / "a $(touch evaluated) b"
    mountpoint.mkdir()
    done = run([PROGRAM, "mount", mountpoint, "--store", node.store, "--log", node.log, *cluster.options()], node.env(), seconds=30)
    assert done.code == 0, done.err
    try:
        for command in ("unmount", "status", "sync"):
            (found,) = bash(command, str(tmp_path))
            assert shlex.split(found) == [str(mountpoint)], found
        assert not (tmp_path / "evaluated").exists() and bash("status", "/nowhere") == []
    finally:
        run([PROGRAM, "unmount", "--lazy", mountpoint], node.env(), seconds=30)


# In a mount namespace of its own: mounts come and go before the one that is completed.
AMONG_OTHERS = """
source {script}; cd {directory}; mkdir others others/{{0..1}} kept
while mount -t tmpfs none others/0 && mount -t tmpfs none others/1 && umount others/0 && umount others/1; do :; done & others=$!
for ((turn = 0; turn < 1000; turn++)); do
  mount --bind {cache} kept && COMPREPLY=() && _inductorfs_mountpoints "$PWD/kept" && umount kept || exit 8
  echo "${{COMPREPLY[*]}}"
done
kill $others
"""


@pytest.mark.usefixtures("root")
def test_bash_completes_a_mountpoint_among_others_that_come_and_go(cluster, tmp_path):
    node = cluster.quick("a")
    (tmp_path / "inductorfs.bash").write_text(completions("bash"))
    program = AMONG_OTHERS.format(script=tmp_path / "inductorfs.bash", directory=shlex.quote(str(tmp_path)), cache=node.cache)
    done = run(["unshare", "--mount", "--propagation", "private", "bash", "--norc", "--noprofile", "-c", program], SHELL, seconds=300)
    assert done.code == 0 and done.out.split() == [str(tmp_path / "kept")] * 1000, done


def test_zsh_reads_its_completions(tmp_path):
    zsh = shutil.which("zsh")
    if zsh is None:
        lack("zsh is not here")
    (tmp_path / "_inductorfs").write_text(completions("zsh"))
    done = run([zsh, "-f", "-c", "fpath=($1 $fpath); autoload -Uz compinit; compinit -u -d $1/dump; print -r -- ${_comps[inductorfs]}; "
                "autoload +X _inductorfs && whence -w _inductorfs", "zsh", tmp_path], SHELL | {"HOME": str(tmp_path)})
    assert done.out.split() == ["_inductorfs", "_inductorfs:", "function"] and done.err == "", done


def test_zsh_tells_its_completion_system_what_the_program_takes(tmp_path):
    """What the functions of zsh's own completion system are given: they work only where a person presses TAB."""
    zsh = shutil.which("zsh")
    if zsh is None:
        lack("zsh is not here")
    (tmp_path / "_inductorfs").write_text(completions("zsh").removesuffix('_inductorfs "$@"\n'))

    def told(state, *words):
        program = (f'source {tmp_path}/_inductorfs; _describe() {{ print -rl -- $commands }}; '
                   f'_arguments() {{ if [[ $1 == -C ]]; then state={state}; words=({shlex.join(words)}); else print -rl -- "$@"; fi }}; '
                   "words=(inductorfs); _inductorfs")
        done = run([zsh, "-f", "-c", program], SHELL)
        assert done.code == 0 and done.err == "", done
        return done.out.splitlines()
    commands = told("command", "")
    assert [line.split(":")[0] for line in commands] == shown_commands()
    assert "completion:Print the completions of this program for a shell" in commands
    mount = told("arguments", "mount")
    assert "1:MOUNTPOINT:_files -/" in mount and "1:MOUNTPOINT:_inductorfs_mountpoints" in told("arguments", "unmount")
    assert "1:SHELL:(bash zsh)" in told("arguments", "completion")
    (config,), (store,) = ([line for line in mount if line.startswith(f"*--{name}=")] for name in ("config", "store"))
    assert config.endswith(":FILE:_files") and store.endswith(":DIR:_files -/")
    for command in shown_commands():
        text = run([PROGRAM, command, "--help"], dict(os.environ)).out
        options = [re.match(r"\*(--[\w-]+)=?\[\S.*\]", line) for line in told("arguments", command) if line.startswith("*--")]
        assert all(options) and set(re.findall(r"^  (?:-h,)?(--[\w-]+)", text, re.MULTILINE)) <= {option[1] for option in options}, command
