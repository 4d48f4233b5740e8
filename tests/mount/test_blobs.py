# SPDX-License-Identifier: Apache-2.0
"""The store's blobs stay what they were, whatever a job does to a file that has their inode; and disks of other kinds below it."""
import pytest
from inductorfs_testing import artefacts, environments, mounts
from inductorfs_testing.environments import Writer
from inductorfs_testing.processes import wait_until

# Names of shared families whose content the bytes of generated code are not, and a private one.
NAMES = {"kernel": "cache/" + "a" * 64, "graph": "fxgraph/ab/f" + "ab" * 25 + "a/" + "c" * 51, "private": "private/mine"}


@pytest.fixture(name="node", params=["learned", "all"])
def one_node(request, cluster):
    cluster.directory.chmod(0o755)
    options = ["--writers", request.param, *mounts.QUICK]
    if request.param == "all":  # what each process writes is of the mount's own environment
        environments.bare(cluster.directory / "bare")
        options += ["--python", cluster.directory / "bare/bin/python"]
    made = cluster.node("a", options=options)
    for root in ("one", "two"):
        (made.cache / root).mkdir()
    return made


@pytest.fixture(name="packages")
def one_environment(cluster):
    return environments.make(cluster.directory / "environment")


@pytest.mark.parametrize(("kind", "size"), [("kernel", 1), ("kernel", 3 << 20), ("graph", 1), ("private", 1)])
def test_a_write_to_an_artefact_under_another_name_changes_no_blob(node, packages, kind, size):
    name = NAMES[kind]
    text = "print('shared')#" + "x" * size
    with Writer(node.cache / "one", packages) as one, Writer(node.cache / "two", packages) as two:
        code = one.write(text)
        node.sync()
        one.move(code, name)
        node.sync()
        one.spoil(name)
        assert one.read(name).startswith("SPOILT")
        assert two.read("fxgraph/none") is None  # as torch asks first
        wait_until(lambda: two.read(code) is not None, 20, "what the first root has published")
        assert two.read(code) == text, "another root is shown what this one has written"
    node.unmount()
    checked = node.cli("check", "--store", node.store, seconds=60)
    assert checked.code == 0, checked


@pytest.mark.usefixtures("root")
def test_a_store_on_a_disk_that_tells_no_size_serves_and_publishes(cluster):
    writer = cluster.quick("writer")
    names = [artefacts.code(f"{number}") for number in range(6)]
    for name in names:
        artefacts.write_atomic(writer.cache, name, f"int of_{name[-9:-4]};")
    writer.sync()
    node = cluster.node("a", start=False)
    with mounts.tmpfs(cluster.directory / "disk", "mode=0700,size=0,nr_inodes=0") as disk:
        node.store = disk / "store"
        mounts.remount(node, cluster)
        for name in names:
            assert mounts.appears(node.cache / name).read_bytes() == (writer.cache / name).read_bytes()
        own = artefacts.code("own")
        artefacts.write_atomic(node.cache, own, "int own;")
        node.sync()
        assert own in mounts.published(cluster)
        assert not [line for line in node.status()["warnings"] if "disk of --store" in line]
        node.unmount()
