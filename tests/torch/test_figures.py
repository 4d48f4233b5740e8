# SPDX-License-Identifier: Apache-2.0
"""What `jobs` and `stats` say of real jobs, with strace as the judge: it sees what each of them asked the kernel for."""
import json
import re
import shutil
import subprocess

from inductorfs_testing import places
from inductorfs_testing.fixtures import Cluster, lack

JOB = (places.WORKLOADS / "cpu_jobs.py", "--jobs", "inference")
HASH = "[a-z2-7]{51}"
KEY = re.compile(f"(aotautograd/a{HASH}|fxgraph/[a-z2-7]{{2}}/f{HASH}|[a-z2-7]{{2}}/c{HASH}[.](?:main[.])?(?:py|cpp|so|so[.]load_ok))(/.*)?$")
CALL = re.compile(r"^(?:<[.]+ )?(\w+)\((.*)\) += (-?\d+)(?: (E[A-Z]+))?")


def keys_of(log, cache):
    """By key: `found` or `missed`, as the first look told, if there was one; and whether it was made."""
    asked, made = {}, set()
    for file in sorted(log.parent.glob(f"{log.name}.*")):
        for line in file.read_text(errors="replace").splitlines():
            call = CALL.match(line.split(" ", 1)[1])
            paths = [path[len(str(cache)) + 1:] for path in re.findall(r'"([^"]*)"', call[2] if call else "") if path.startswith(f"{cache}/")]
            key = KEY.match(paths[-1]) if paths else None
            if not key or call[4] not in (None, "ENOENT"):
                continue
            name, result = key[1], int(call[3])
            makes = call[1].startswith("rename") or "O_CREAT" in call[2]
            if makes and result >= 0:
                made.add((float(line.split(" ", 1)[0]), name))
            elif not makes and not key[2] and call[1] not in ("mkdir", "unlink", "execve"):
                asked.setdefault(name, []).append((float(line.split(" ", 1)[0]), result >= 0))
    first_made = {name: min(at for at, one in made if one == name) for _, name in made}
    found = {name: min(looks)[1] for name, looks in asked.items() if min(looks)[0] < first_made.get(name, float("inf"))}
    return {"asked": len(found), "found": sum(found.values()), "missed": len(found) - sum(found.values()), "made": len(first_made)}


def traced(node, tmp_path, name):
    """Runs the job under strace, which stands between it and this test: else they would be one job."""
    log = tmp_path / name
    python = places.venv_python("2.15")
    done = subprocess.run(["strace", "--seccomp-bpf", "-ff", "-ttt", "-qq", "-s", "4096", "-e", "trace=%file", "-o", log, python, *map(str, JOB)],
                          env=node.env(), capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    return keys_of(log, node.cache)


def last_job(node):
    done = node.cli("jobs", node.cache, "--json")
    assert done.code == 0, done.err
    return next(job for job in json.loads(done.out)["jobs"] if job["script"] == str(JOB[0]))


def agrees(job, judge):
    told = {"asked": job["asked"], "found": job["local"] + job["cluster"], "missed": job["missed"], "made": job["made"]}
    assert all(abs(told[name] - judge[name]) <= 0.1 * judge[name] for name in judge), (told, judge, job)


def test_figures_are_those_that_strace_sees(tmp_path):
    if not shutil.which("strace"):
        lack("strace is missing (scripts/deps installs it)")
    with Cluster(torch="2.15", environment={"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}, patient=True) as cluster:
        a, b = cluster.node("a"), cluster.node("b")
        cold = traced(a, tmp_path, "cold")
        assert cold["missed"] >= 5 and cold["made"] >= 5, cold
        agrees(last_job(a), cold)
        a.sync()
        b.catch_up(a)
        warm = traced(b, tmp_path, "warm")
        assert warm["found"] >= 3 and warm["missed"] <= warm["asked"] / 10, warm
        agrees(last_job(b), warm)
        assert last_job(b)["saved_s"] > 0
        a.unmount()
        a.start()
        local = traced(a, tmp_path, "local")
        agrees(last_job(a), local)
        assert last_job(a)["saved_s"] == 0, "what this host made saves nothing that was not its own"
