# SPDX-License-Identifier: Apache-2.0
"""The manifests in packaging/kubernetes: by the schemas of Kubernetes, and run as far as namespaces allow, with the paths, the propagation, the
namespaces, the variables and the commands that stand in them."""
import contextlib
import copy
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from inductorfs_testing import artefacts, compare, environments, mounts, places
from inductorfs_testing.containers import TOOLS
from inductorfs_testing.environments import Writer
from inductorfs_testing.pods import MANIFESTS, KubeNode, PodContainer, Volumes, container_of, documents, pod_of
from inductorfs_testing.ports import free_port
from inductorfs_testing.processes import run, wait_until

pytestmark = pytest.mark.usefixtures("root")

NAMES = ["daemonset.yaml", "pod.yaml", "serving.yaml", "sidecar.yaml", "publish-job.yaml"]
DOCUMENT = places.REPOSITORY / "docs" / "kubernetes.md"
# Since which all that they use exists, and one of today.
VERSIONS = ["1.29", "1.37"]
REMOTE = "rediss://cache.compile-cache.svc:6379/0"
SIDECARS_REMOTE = "rediss://cache.example:6379/0"
CA_FILE = 'ca-file = "/etc/inductorfs-ca/ca.crt"\n'
PASSWORD = "a password"
IDLE = ["sleep", "infinity"]
# A job that runs on while its daemon goes: it answers for each line what it sees. It holds a file open and mapped of which the kernel has
# the first half alone.
JOB = """
import mmap, os, sys
at = os.environ["TORCHINDUCTOR_CACHE_DIR"]
os.makedirs(at, exist_ok=True)
half = 4 << 20
with open(at + "/file", "wb") as made:
    made.write(b"x" * 2 * half)
    made.flush()
    os.fsync(made.fileno())
file = os.open(at + "/file", os.O_RDONLY)
view = mmap.mmap(file, 0, prot=mmap.PROT_READ)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
view.madvise(mmap.MADV_RANDOM)
sum(view[:half:4096])

def attempt(what):
    try:
        return what()
    except OSError as error:
        return os.strerror(error.errno)

def write(name):
    os.makedirs(at, exist_ok=True)
    with open(at + "/" + name, "x") as made:
        made.write("text")

def touch(offset):
    child = os.fork()
    if child == 0:
        view[offset]
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

print("ready", flush=True)
for line in sys.stdin:
    name = line.strip()
    print(repr({"names": attempt(lambda: sorted(os.listdir(at))), "write": attempt(lambda: write(name)),
                "kept": touch(0), "not kept": touch(2 * half - 1), "read": attempt(lambda: len(os.pread(file, 4096, 2 * half - 4096)))}), flush=True)
"""


def manifest(name, **changes):
    """The pod of a manifest, with other values at the top of its spec."""
    return {**copy.deepcopy(pod_of(name)), **changes}


@pytest.fixture
def cluster_of_nodes(cluster):
    """Makes nodes, and gives back what they need at the end. The server wants the password of the secret."""
    cluster.redis.command("ACL", "SETUSER", "pods", "on", f">{PASSWORD}", "~*", "&*", "+@all")
    with contextlib.ExitStack() as stack:
        cluster.enter = stack.enter_context
        cluster.kube_node = lambda name: stack.enter_context(KubeNode(name, cluster.directory))
        yield cluster


def url(cluster):
    return cluster.redis.url.replace("unix://", "unix://pods@")


def texts(cluster, pod):
    """What the config map and the secret of the DaemonSet have, for this cluster's server."""
    data = documents("daemonset.yaml")["ConfigMap"]["data"]
    assert REMOTE in data["mount.toml"] and CA_FILE in data["mount.toml"]
    found = {}
    for volume in pod["volumes"]:
        if volume.get("configMap") == {"name": "server-ca"}:
            found[volume["name"]] = {"ca.crt": "of a server with TLS"}
        elif "configMap" in volume:
            found[volume["name"]] = {key: text.replace(REMOTE, url(cluster)).replace(CA_FILE, "") for key, text in data.items()}
        elif "secret" in volume:
            found[volume["name"]] = {"password": PASSWORD + "\n"}
    return found


def server(cluster):
    """The server's socket, for a container."""
    return {cluster.redis.directory: cluster.redis.directory}


def daemon(cluster, node, pod=None, **more):
    """The daemon's pod on a node, which answers."""
    pod = pod or manifest("daemonset.yaml")
    container = cluster.enter(PodContainer(node, pod, "inductorfs", Volumes(node, pod, texts(cluster, pod)), binds=server(cluster), **more))
    return container.ready()


def job(cluster, node, pod=None, **more):
    """The job's pod on a node; its first process does nothing. The image has the packages of `environment` at /environment."""
    pod = pod or manifest("pod.yaml")
    environment = cluster.directory / "environment"
    if not environment.exists():
        environments.make(environment)
    more.setdefault("command", IDLE)
    return cluster.enter(PodContainer(node, pod, "train", Volumes(node, pod), binds={TOOLS: "/tools", environment: "/environment"}, **more))


def writer(container):
    """A process of the job that has torch and Triton loaded, in the directory that the manifest names."""
    cache = container.environment["TORCHINDUCTOR_CACHE_DIR"]
    done = container.run("mkdir", "-p", cache)
    assert done.code == 0, done
    packages = next((container.root.parent / "environment/lib").glob("python3*/site-packages"))
    inside = f"/environment/{packages.relative_to(container.root.parent / 'environment')}"
    return Writer(cache, inside, enter=container.enter(), tools="/tools")


def mountpoint(container):
    """The mount that the DaemonSet's command makes."""
    [told] = json.loads(container.run("inductorfs", "status", "--json").out)
    return told["mountpoint"]


def status(container):
    return json.loads(container.run("inductorfs", "status", mountpoint(container), "--json").out)


def sync(container):
    return container.run("inductorfs", "sync", mountpoint(container))


@pytest.fixture(scope="module")
def tools():
    """The directory of kubernetes-validate and kubectl."""
    done = subprocess.run([places.REPOSITORY / "scripts/venv", places.REPOSITORY / "tests/mount/requirements/kubernetes.txt"],
                          stdout=subprocess.PIPE, text=True, check=True, timeout=600)
    return Path(done.stdout.strip()) / "bin"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", NAMES)
def test_kubernetes_takes_it(tools, version, name):
    done = run([tools / "kubernetes-validate", "--strict", "--kubernetes-version", version, MANIFESTS / name])
    assert done.code == 0, done


@pytest.fixture(scope="module")
def tree(tools, tmp_path_factory):
    """(directory, objects): the tree with the password and the certificate as the document says, and what kustomize makes of it."""
    directory = tmp_path_factory.mktemp("tree") / "kubernetes"
    shutil.copytree(MANIFESTS, directory)
    [script] = [block for block in re.findall(r"```sh\n(.*?)```", DOCUMENT.read_text(), re.DOTALL) if "openssl req" in block]
    done = run(["sh", "-e", "-c", script.split("\nkubectl")[0].replace("packaging/kubernetes/", f"{directory}/")], seconds=60)
    assert done.code == 0, done
    built = run([tools / "kubectl", "kustomize", directory], seconds=60)
    assert built.code == 0, built
    (directory / "built.yaml").write_text(built.out)
    return directory, list(yaml.safe_load_all(built.out))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_tree_is_what_kubernetes_takes(tools, tree, version):
    directory, objects = tree
    done = run([tools / "kubernetes-validate", "--strict", "--kubernetes-version", version, directory / "built.yaml"])
    assert done.code == 0, done
    assert {one["metadata"].get("namespace", "compile-cache") for one in objects} == {"compile-cache"}
    names = {(one["kind"], one["metadata"]["name"]) for one in objects}
    for one in objects:
        spec = one.get("spec", {}).get("template", {}).get("spec", {})
        for volume in spec.get("volumes", []):  # kustomize does not say that a name leads nowhere
            for kind, key in (("ConfigMap", "name"), ("Secret", "secretName")):
                source = volume.get(kind[0].lower() + kind[1:])
                assert not source or (kind, source[key]) in names, volume
    [policy] = [one["spec"] for one in objects if one["kind"] == "NetworkPolicy"]
    labels = {one["kind"]: one["spec"]["template"]["metadata"]["labels"] for one in objects if "template" in one.get("spec", {})}
    assert policy["podSelector"]["matchLabels"] == labels["StatefulSet"]
    assert policy["ingress"][0]["from"] == [{"podSelector": {"matchLabels": labels["DaemonSet"]}}]


def test_the_trees_server_serves_a_mount_over_tls(tree, cluster, tmp_path):
    """Redis in place of Valkey, of which Debian 12 has none, by the same command and configuration; no kubelet and no network plugin."""
    directory, objects = tree
    [stateful] = [one["spec"]["template"]["spec"] for one in objects if one["kind"] == "StatefulSet"]
    [config] = [one["data"] for one in objects if one["kind"] == "ConfigMap" and one["metadata"]["name"] == "server"]
    [container] = stateful["containers"]
    port, places_of = free_port(), {mount["mountPath"]: tmp_path / mount["name"] for mount in container["volumeMounts"]}
    for place in places_of.values():
        place.mkdir()
    (places_of["/config"] / "valkey.conf").write_text(config["valkey.conf"].replace("6379", str(port)))
    for name, to in (("password", "/password"), ("tls.crt", "/tls"), ("tls.key", "/tls")):
        shutil.copy(directory / name, places_of[to])

    def here(script):
        for path, place in places_of.items():
            script = script.replace(f"{path}/", f"{place}/")
        return script.replace("valkey-server", "redis-server").replace("valkey-cli", f"redis-cli -p {port}")

    conf = places_of["/config"] / "valkey.conf"
    conf.write_text(here(conf.read_text()).replace("dir /data", f"dir {places_of['/data']}"))
    with open(tmp_path / "server.log", "wb") as log:
        child = subprocess.Popen(["sh", "-c", here(container["args"][0])], stdout=log, stderr=log)
    try:
        probe = here(container["readinessProbe"]["exec"]["command"][2])
        wait_until(lambda: child.poll() is not None or run(["sh", "-c", probe]).code == 0, 30, "the server's readinessProbe")
        assert child.poll() is None, (tmp_path / "server.log").read_text()
        node = cluster.node("node", start=False)
        node.remote = f"rediss://localhost:{port}/0"
        node.start(*cluster.options(), "--ca-file", directory / "tls.crt", "--password-file", directory / "password")
        told = node.status()["remote"]
        assert told["reachable"] and told["eviction_policy"] == "volatile-ttl" and told["memory_limit"] == 8 << 30, told
        assert "password" not in Path(f"/proc/{child.pid}/cmdline").read_text()
    finally:
        child.terminate()
        child.wait(20)


def test_only_what_was_left_over_last_is_kept(cluster_of_nodes):
    cluster = cluster_of_nodes
    node = cluster.kube_node("node")
    place = node.path("/var/cache/inductorfs")
    for number in range(5):
        (place / "left-over" / str(number + 1)).mkdir(parents=True)
    (place / "mount").mkdir()
    (place / "mount/written").write_text("by a job")
    daemon(cluster, node)
    kept = sorted((place / "left-over").iterdir(), key=lambda one: int(one.name))
    assert [one.name for one in kept[:2]] == ["4", "5"] and len(kept) == 3
    assert (kept[2] / "written").read_text() == "by a job"


def test_metrics_and_the_job_that_syncs_ask_the_daemon(cluster_of_nodes):
    """Each in a container of its own; the listener, socat, is the image's."""
    cluster, pod = cluster_of_nodes, manifest("daemonset.yaml")
    node = cluster.kube_node("node")
    volumes = Volumes(node, pod, texts(cluster, pod))
    served = cluster.enter(PodContainer(node, pod, "inductorfs", volumes, binds=server(cluster))).ready()
    listener = container_of(pod, "metrics")["command"]
    assert listener[2] == "EXEC:inductorfs metrics --http" and "max-children=4" in listener[1]
    assert "socat" in (MANIFESTS / "Containerfile").read_text()
    user = str(container_of(pod, "metrics")["securityContext"]["runAsUser"])
    ask = ["sh", "-c", f"printf 'GET /metrics HTTP/1.0\\n\\n' | setpriv --reuid={user} --regid={user} --clear-groups {listener[2].removeprefix('EXEC:')}"]
    metrics = cluster.enter(PodContainer(node, pod, "metrics", volumes, command=ask))
    assert metrics.child.wait(20) == 0
    assert f'inductorfs_up{{mountpoint="{mountpoint(served)}"}} 1\n' in metrics.log.read_text(), metrics.log.read_text()
    container = job(cluster, node)
    with writer(container) as process:
        process.write_graph("by a pod")
        sync_pod = manifest("publish-job.yaml")
        done = cluster.enter(PodContainer(node, sync_pod, "sync", Volumes(node, sync_pod)))
        assert done.child.wait(60) == 0 and done.log.read_text().startswith("published 1 group"), done.log.read_text()


@pytest.mark.parametrize("name", NAMES)
def test_only_what_mounts_is_privileged(name):
    """Kubernetes refuses Bidirectional without it when a pod is made, which no schema says."""
    pod = manifest(name)
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        is_daemon = any(mount.get("mountPropagation") == "Bidirectional" for mount in container.get("volumeMounts", []))
        assert container.get("securityContext", {}).get("privileged", False) == is_daemon, container["name"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes


def test_the_image_has_the_package():
    text = (MANIFESTS / "Containerfile").read_text()
    assert "COPY inductorfs_*.deb " in text and 'ENTRYPOINT ["inductorfs"]' in text
    assert container_of(manifest("daemonset.yaml"), "inductorfs")["image"] in text
    # One address of each image, so that `images` of the kustomization changes all.
    for name in NAMES:
        for one in re.findall(r"image: (\S+inductorfs\S*)", (MANIFESTS / name).read_text()):
            assert one in text


def test_what_a_pod_compiles_is_there_on_another_node(cluster_of_nodes):
    cluster, seen = cluster_of_nodes, []
    for number in range(2):
        node = cluster.kube_node(f"node-{number}")
        served, container = daemon(cluster, node), job(cluster, node)
        assert served.probe("readinessProbe")
        with writer(container) as process:
            if number == 0:
                graph = process.write_graph("by a pod")
                done = sync(served)
                assert done.code == 0 and done.out.startswith("published 1 group"), done
            else:
                wait_until(lambda: process.read(graph) == "by a pod", 20, "the other node's graph")
        seen.append(served.run("inductorfs", "env", "--format", "k8s", "--root", "train", mountpoint(served)).out)
    assert variables_in(seen[0]) == given(manifest("pod.yaml"), "train")
    assert seen[0] == seen[1]


def variables_in(text):
    """What `env --format k8s` printed."""
    return {one["name"]: one["value"] for one in yaml.safe_load(text)["env"]}


def given(pod, name):
    return {one["name"]: one["value"] for one in container_of(pod, name)["env"]}


def test_replicas_of_an_engine_have_its_variables_and_directories(cluster_of_nodes):
    cluster, pod = cluster_of_nodes, manifest("serving.yaml")
    node = cluster.kube_node("node")
    (node.root / "srv/models").mkdir(parents=True)
    served = daemon(cluster, node)
    variables = given(pod, "engine")
    assert variables_in(served.run("inductorfs", "env", "--format", "k8s", "--root", "serving", mountpoint(served)).out) == variables
    with PodContainer(node, pod, "cache", Volumes(node, pod)) as init:
        assert init.child.wait(20) == 0, init.log.read_text()
    with PodContainer(node, pod, "engine", Volumes(node, pod), command=IDLE) as engine:
        for variable, path in variables.items():
            assert engine.run("test", "-d", path, "-a", "-w", path).code == 0, variable
        [script] = container_of(pod, "engine")["args"]
        started = engine.run("sh", "-c", script.replace("exec vllm serve", "echo starts"))
        assert started.code == 0 and started.out.endswith("starts /models/model\n"), started
        headers = "/tmp/torchinductor_root/precompiled_headers"
        assert engine.run("readlink", headers).out == f"{variables['TORCHINDUCTOR_CACHE_DIR']}/precompiled_headers\n", started
        assert engine.run("test", "-d", headers, "-a", "-w", headers).code == 0


def test_without_hostpid_nothing_is_shared(cluster_of_nodes):
    cluster = cluster_of_nodes
    node = cluster.kube_node("node")
    served, container = daemon(cluster, node, manifest("daemonset.yaml", hostPID=False)), job(cluster, node)
    with writer(container) as process:
        process.write_graph("by a pod")
        done = sync(served)
    assert done.code == 3 and "is shared with nobody" in done.err, done
    assert mounts.published(cluster) == []


def test_a_job_sees_the_mount_that_comes_after_it(cluster_of_nodes):
    """HostToContainer; and without it, or without Bidirectional, no job would see any mount that is made after it began."""
    cluster = cluster_of_nodes
    node = cluster.kube_node("node")
    early, deaf = job(cluster, node), manifest("pod.yaml")
    for mount in container_of(deaf, "train")["volumeMounts"]:
        del mount["mountPropagation"]
    deaf = job(cluster, node, deaf)
    served = daemon(cluster, node)
    for container, sees in ((early, True), (deaf, False), (job(cluster, node), True)):
        done = container.run("grep", "-c", f" {mountpoint(served)} fuse.inductorfs ", "/proc/mounts")
        assert done.out == f"{int(sees)}\n", (container.root, done)
    done = early.run("grep", "-c", " /tmp/torchinductor_root/[a-z_/]* fuse.inductorfs ", "/proc/mounts")
    assert done.out == "3\n", ("the header and torch's on-disk caches", done)
    assert {also["state"] for also in status(served)["also"]} == {"bound"}
    served.end()
    assert [place for place in compare.mounts_below(node.root) if "inductorfs/" in place.removeprefix(str(node.root))] == []


def test_the_mount_is_only_where_the_daemon_shows_it(cluster_of_nodes):
    cluster, pod = cluster_of_nodes, manifest("daemonset.yaml")
    node = cluster.kube_node("node")
    for mount in container_of(pod, "inductorfs")["volumeMounts"]:
        mount.pop("mountPropagation", None)
    served, container = daemon(cluster, node, pod), job(cluster, node)
    assert container.run("grep", "-c", f" {mountpoint(served)} fuse.inductorfs ", "/proc/mounts").out == "0\n"


def test_a_job_waits_for_the_mount_for_a_minute_at_most(cluster_of_nodes):
    cluster, pod = cluster_of_nodes, manifest("pod.yaml")
    node = cluster.kube_node("node")
    [wait] = pod["initContainers"]
    script = wait["args"][0]
    assert "left=60" in script
    wait["args"] = [script.replace("left=60", "left=2")]
    with PodContainer(node, pod, "wait-for-cache", Volumes(node, pod)) as late:
        assert late.child.wait(20) == 0
    daemon(cluster, node)
    wait["args"] = [script]
    with PodContainer(node, pod, "wait-for-cache", Volumes(node, pod)) as early:
        assert early.child.wait(5) == 0


class Running:
    """A job that goes on while its daemon is replaced."""

    def __init__(self, cluster, node):
        self.container = job(cluster, node, command=["/usr/bin/python3", "-c", JOB], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        told = self.container.child.stdout.readline()
        assert told == "ready\n", (told, self.container.log.read_text())

    def sees(self, name):
        self.container.child.stdin.write(name + "\n")
        self.container.child.stdin.flush()
        return eval(self.container.child.stdout.readline(), {"__builtins__": {}})  # a dict of strings and numbers


# The second: while the last process of the daemon ends.
DEAD = {"Transport endpoint is not connected", "Software caused connection abort"}
WELL = {"write": None, "kept": 0, "not kept": 0, "read": 4096}


def test_a_rollout_takes_the_mount_from_a_running_job(cluster_of_nodes):
    """It sees the directory below the mount until the next daemon serves; what it had open works as far as the kernel has kept it."""
    cluster = cluster_of_nodes
    node = cluster.kube_node("node")
    first = daemon(cluster, node)
    place = mountpoint(first)
    running = Running(cluster, node)
    assert first.end() == 0
    between = running.sees("between")
    assert (between["names"], between["write"]) == ("No such file or directory", None), between
    assert (between["kept"], between["not kept"]) == (0, -7) and between["read"] in DEAD, "SIGBUS"
    second = daemon(cluster, node)
    after = running.sees("after")
    assert after["names"] == ["file"] and after["write"] is None, "the new daemon has what the job wrote to the one before"
    assert after["read"] in DEAD, "the open file is that of the mount before"
    [kept] = node.path(place).parent.glob("left-over/*/train")
    assert sorted(os.listdir(kept)) == ["between"]
    running.container.end(grace=0)
    assert second.end() == 0 and list(node.path(place).iterdir()) == []


def test_a_daemon_that_is_killed_leaves_a_dead_mount_which_the_next_one_replaces(cluster_of_nodes):
    cluster = cluster_of_nodes
    node = cluster.kube_node("node")
    first = daemon(cluster, node)
    running = Running(cluster, node)
    first.end(grace=0)
    between = running.sees("between")
    assert {between["names"], between["write"]} <= DEAD, between
    daemon(cluster, node)
    after = running.sees("after")
    assert (after["names"], after["write"]) == (["file"], None), after


def test_an_upgrade_inside_of_the_container_takes_nothing_from_a_running_job(cluster_of_nodes):
    cluster = cluster_of_nodes
    node = cluster.kube_node("node")
    served = daemon(cluster, node)
    running = Running(cluster, node)
    [store] = [mount["mountPath"] for mount in container_of(manifest("daemonset.yaml"), "inductorfs")["volumeMounts"] if mount["name"] == "store"]
    shutil.copy2(places.program(), node.path(store))
    before = status(served)
    done = served.run("inductorfs", "upgrade", mountpoint(served), "--program", f"{store}/{places.program().name}")
    assert done.code == 0, done
    after = status(served)
    assert after["pid"] != before["pid"] and after["takeover"]["upgrades"] == 1
    assert os.readlink(f"/proc/{after['pid']}/exe").endswith(f"{store}/{places.program().name}")
    assert running.sees("upgraded") == {"names": ["file"], **WELL}


def test_a_sidecar_shares_what_its_pod_compiles(cluster_of_nodes):
    cluster, pod = cluster_of_nodes, manifest("sidecar.yaml")
    node = cluster.kube_node("node")
    sidecar = container_of(pod, "inductorfs")
    assert SIDECARS_REMOTE in sidecar["args"][0]
    sidecar["args"] = [sidecar["args"][0].replace(SIDECARS_REMOTE, url(cluster))]
    volumes = Volumes(node, pod, texts(cluster, pod))
    with PodContainer(node, pod, "facts", volumes) as facts:
        assert facts.child.wait(60) == 0, facts.log.read_text()
    [place] = [volumes.source(mount["name"]) for mount in container_of(pod, "facts")["volumeMounts"]]
    assert json.loads((place / "facts.json").read_text())["facets"]
    artefacts.fingerprint(place / "facts.json")  # the job's image has torch
    served = cluster.enter(PodContainer(node, pod, "inductorfs", volumes, binds=server(cluster))).ready()
    container = cluster.enter(PodContainer(node, pod, "train", volumes, command=IDLE, binds={TOOLS: "/tools"}))
    cache, graph = container.environment["TORCHINDUCTOR_CACHE_DIR"], artefacts.graph("key", "text")
    code = f"import sys; sys.path.insert(0, '/tools'); from pathlib import Path; from inductorfs_testing import artefacts; cache = Path({cache!r})\n"
    done = container.run("/usr/bin/python3", "-B", "-c", code + "artefacts.write_graph(cache, 'key', 'text')\nartefacts.triton_compile(cache, 'k', 'pod')")
    assert done.code == 0, done
    done = sync(served)
    assert done.code == 0 and done.out.startswith("published 2 groups"), done
    told = status(served)
    assert told["facts"]["writers"] == "pod" and {also["state"] for also in told["also"]} == {"bound"}
    [header] = [also["path"] for also in told["also"] if also["path"].endswith("precompiled_headers")]
    assert header.startswith(container.environment["TMPDIR"] + "/")
    # The supervisor is the first process of its container: the kernel gives it all orphans.
    assert served.run("sh", "-c", f"kill -9 {told['pid']}").code == 0
    wait_until(lambda: served.probe("startupProbe") and status(served)["pid"] != told["pid"], 20, "the next worker")
    done = container.run("cat", f"{cache}/{graph}")
    assert done.out == "text", done
    container.end(grace=0)
    assert served.end() == 0
    assert [name for name in compare.mounts_below(node.root) if "/volumes-" in name] == []
