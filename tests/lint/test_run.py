# SPDX-License-Identifier: Apache-2.0
"""scripts/run is the first thing that a newcomer starts: it is quiet, and its last line says whether it works. So does that of
scripts/cross. scripts/bench says what it is. The summary of scripts/test counts what was not run."""
import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests/support/python"))
import two_nodes  # noqa: E402


def test_a_build_that_fails_is_one_line_and_a_log(tmp_path):
    for name, text in {"dpkg-query": "exit 0", "apt-get": "exit 0", "sudo": "exit 0", "systemctl": "exit 0", "update-rc.d": "exit 0",
                       "ninja": "echo 'file.cc:1: an error of the compiler'; exit 1"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    build = tmp_path / "build"
    build.mkdir()
    (build / "build.ninja").touch()
    done = subprocess.run([REPOSITORY / "scripts/run"], capture_output=True, text=True, timeout=60, check=False,
                          env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "TMPDIR": str(tmp_path),
                               "INDUCTORFS_BUILD_DIR": str(build)})
    assert done.returncode == 1
    assert "an error of the compiler" not in done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert last.startswith('scripts/run: it does not work: "building') and " failed; its output is in " in last
    assert "file.cc:1: an error of the compiler" in Path(last.split()[-1]).read_text()


def out(seconds, hit, miss, compiled=0):
    return {"compile_seconds": seconds, "kernels": (3, compiled), "counters": {"inductor.fxgraph_cache_hit": hit, "inductor.fxgraph_cache_miss": miss}}


def test_the_verdict_is_one_line():
    wrong, line = two_nodes.verdict(out(40.0, 0, 7), out(2.0, 7, 0), True)
    assert not wrong and line.startswith("scripts/run: it works: node B was 20 times as fast as node A (2.0 s instead of 40.0 s): it compiled nothing, took 7 graphs and 3 Triton kernels of")
    wrong, line = two_nodes.verdict(out(40.0, 0, 7), out(9.0, 5, 2), False)
    assert wrong and line == "scripts/run: it does not work: the results of the nodes differ, and node B compiled 2 of 7 graphs itself"
    wrong, line = two_nodes.verdict(out(40.0, 0, 7, 3), out(2.0, 7, 0, 1), True)
    assert wrong and line == "scripts/run: it does not work: node B compiled 1 of 3 Triton kernels itself"
    wrong, line = two_nodes.verdict(out(40.0, 0, 7), out(9.0, 0, 0), True)
    assert wrong and "node B compiled 0 of 0" in line


def test_run_says_what_it_is_without_doing_it():
    done = subprocess.run([REPOSITORY / "scripts/run", "--help"], capture_output=True, text=True, timeout=20, check=False,
                          env={"PATH": os.environ["PATH"]})
    assert done.returncode == 0 and "usage: scripts/run" in done.stdout and "installing" not in done.stdout, done


def bench(*arguments):
    return subprocess.run([REPOSITORY / "scripts/bench", *arguments], capture_output=True, text=True, timeout=60, check=False,
                          env={"PATH": os.environ["PATH"]})


def test_bench_says_what_it_is_and_takes_no_wrong_word_before_it_builds():
    done = bench("--help")
    assert done.returncode == 0 and done.stdout.startswith("Measures this host") and "bench: installing" not in done.stdout, done
    done = bench("opps", "--short")
    assert done.returncode == 2 and "there is no group opps; there are ops, replay, start, once, link, scale, store" in done.stderr and not done.stdout, done


def fakes(folder, **programs):
    for name, text in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)


def cross(folder, *arguments):
    return subprocess.run([REPOSITORY / "scripts/cross", *arguments], capture_output=True, text=True, timeout=60, check=False,
                          env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "TMPDIR": str(folder),
                               "INDUCTORFS_VENVS": str(folder / "sysroots"), "INDUCTORFS_BUILD_DIR": str(folder / "build")})


def test_cross_says_what_it_is_without_doing_it(tmp_path):
    for arguments in ((), ("riscv64",), ("--help",)):
        done = cross(tmp_path, *arguments)
        assert done.returncode == 2 and "scripts/cross arm64" in done.stderr and done.stdout == "", done


def test_cross_shows_a_phase_that_fails_and_runs_none_behind_it(tmp_path):
    installed = "\n".join(f"echo 'ii {name}'" for name in subprocess.run(
        [REPOSITORY / "scripts/deps", "--list", "build", "cross"], capture_output=True, text=True, check=True).stdout.split())
    fakes(tmp_path, **{"dpkg-query": installed, "apt-get": "exit 1", "mmdebstrap": "echo 'E: no such release' >&2; exit 25"})
    done = cross(tmp_path, "arm64")
    assert done.returncode == 1 and "E: no such release" in done.stderr
    assert done.stdout.splitlines()[-1].startswith("scripts/cross: it does not work: \"unpacking Debian's libraries for arm64\" failed")
    assert "compiling" not in done.stdout


def test_deps_lists_the_packages_of_groups_without_installing():
    listed = subprocess.run([REPOSITORY / "scripts/deps", "--list", "cross"], capture_output=True, text=True, timeout=20, check=True)
    assert "g++-aarch64-linux-gnu" in listed.stdout.split() and listed.stderr == ""


EMULATOR_LACKS = "its programs in /proc: their emulator is there"


def logs_of(folder, *whys):
    """The logs of a run of the gtest program `look`: a case that passed, and for each reason one that was skipped. Their folder."""
    folder.mkdir()
    skipped = "".join(f'<testcase name="S{number}" status="run"><skipped message="../look_test.cc:7&#x0A;NOT TESTED: this host lacks {why}"/></testcase>'
                      for number, why in enumerate(whys))
    (folder / "testlog.junit.xml").write_text(f"""<testsuites><testsuite name="inductorfs.inductorfs:unit / look.Look">
        <testcase name="Passes" status="run"/>{skipped}</testsuite></testsuites>""")
    (folder / "testlog.json").write_text('{"name": "inductorfs:unit / look", "result": "OK"}\n')
    return folder


def summary(*arguments, **environment):
    """(exit status, lines)"""
    done = subprocess.run([sys.executable, "-B", REPOSITORY / "tests/support/python/summary.py", *arguments], capture_output=True, text=True,
                          timeout=20, check=False, env=environment)
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout.splitlines()


def test_what_an_emulator_lacks_may_be_skipped_in_ci_under_an_emulator_alone(tmp_path):
    host, lacking, other = (logs_of(tmp_path / str(number), *whys) for number, whys in enumerate([(), (EMULATOR_LACKS,), ("redis-server",)]))
    status, lines = summary(host, "0", "--emulated", lacking, "0", CI="true")
    assert status == 0 and lines[-1] == "2 passed, 0 failed, 1 skipped", lines
    assert lines[0] == f"skipped: emulated look: Look.S0 ../look_test.cc:7 NOT TESTED: this host lacks {EMULATOR_LACKS}"
    for arguments in ((lacking, "0"), (host, "0", "--emulated", other, "0")):
        status, lines = summary(*arguments, CI="true")
        assert status == 1 and lines[-2] == "CI: 1 skipped that may not be skipped here", lines
        assert summary(*arguments)[0] == 0, "a developer's machine may lack it"


def test_a_run_under_an_emulator_that_did_not_happen_has_failed(tmp_path):
    host = logs_of(tmp_path / "host")
    status, lines = summary(host, "0", "--emulated", tmp_path / "none", "1")
    assert status == 1 and lines[-1] == "1 passed, 1 failed, 0 skipped" and "emulated meson test" in lines[0], lines
    status, lines = summary(host, "0", "--emulated", logs_of(tmp_path / "ended"), "2")
    assert status == 1 and lines[-1] == "2 passed, 1 failed, 0 skipped" and "ended with 2" in lines[0], lines


def test_a_compile_for_arm64_that_fails_is_a_failed_case_of_the_whole(tmp_path):
    """scripts/test --arm64 starts it beside the tests and looks at it afterwards."""
    installed = "\n".join(f"echo 'ii {name}'" for name in subprocess.run(
        [REPOSITORY / "scripts/deps", "--list", "build", "test", "cross"], capture_output=True, text=True, check=True).stdout.split())
    logs, build = logs_of(tmp_path / "logs"), tmp_path / "build"
    (build / "meson-logs").mkdir(parents=True)
    (build / "build.ninja").touch()
    fakes(tmp_path, **{"dpkg-query": installed, "apt-get": "exit 1", "ninja": "exit 0", "meson": f"cp {logs}/* {build}/meson-logs",
                       "chrt": 'echo "$@" > ' + str(tmp_path / "chrt.log") + '; shift 2; exec "$@"', "mmdebstrap": "echo 'E: no such release' >&2; exit 25"})
    done = subprocess.run([REPOSITORY / "scripts/test", "--arm64", "--suite", "unit"], capture_output=True, text=True, timeout=60, check=False,
                          env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "INDUCTORFS_VENVS": str(tmp_path / "sysroots"),
                               "INDUCTORFS_BUILD_DIR": str(build)})
    lines = done.stdout.splitlines()
    assert done.returncode == 1 and lines[-1] == "1 passed, 1 failed, 0 skipped", done
    assert any(line.startswith("failed: emulated meson test") for line in lines) and "E: no such release" in done.stdout
    assert (tmp_path / "chrt.log").read_text().startswith("--idle 0 "), "beside the tests, and not in their way"
