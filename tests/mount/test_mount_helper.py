# SPDX-License-Identifier: Apache-2.0
"""The helper of mount(8): the program under the name mount.inductorfs, called as mount(8) calls it."""
from inductorfs_testing import artefacts, compare, places
from inductorfs_testing.mounts import suspended
from inductorfs_testing.processes import run


def helper(cluster, node, *options, source="none"):
    link = node.root / "mount.inductorfs"
    if not link.is_symlink():
        link.symlink_to(places.program())
    facts = cluster.options()[1]
    told = ["rw", f"store={node.store}", f"log={node.log}", f"fingerprint={facts}", "no-also", "writers=all", *options]
    return run([link, source, node.cache, "-o", ",".join(map(str, told))], node.env(), seconds=30)


def test_a_mount_by_the_helper_answers_and_a_second_call_does_nothing(cluster, place):
    done = helper(cluster, place, "nofail", "_netdev", "x-systemd.requires=a.service")
    assert done.code == 0, done.err
    marker = artefacts.write_graph(place.cache, "k", "value")
    assert marker.read_bytes() == b"value"
    again = helper(cluster, place)
    assert again.code == 0 and "already" in again.err
    assert len(compare.mounts_below(place.cache)) == 1
    words = [place.root / "mount.inductorfs", "none", place.cache.name, "-o", f"store={place.store}"]
    relative = run(["env", "-C", place.cache.parent, *words], place.env(), 30)
    assert relative.code == 0 and "already" in relative.err, relative.err
    place.unmount()


def test_a_refused_option_and_a_failed_mount_have_the_exit_codes_of_mount(cluster, place):
    for option in ("noexec", "ro", "colour=red", "threads=many"):
        done = helper(cluster, place, option)
        assert done.code == 1 and option.partition("=")[0] in done.err and done.err.count("\n") == 1, done.err
    for option, told in (("store-limit=0", "store-limit"), (f"password-file={place.root}/none", "password file"),
                         (f"config={place.root}/none.toml", "configuration")):
        done = helper(cluster, place, option, source="redis://127.0.0.1:1")
        assert done.code == 1 and told in done.err, (done.code, done.err)
    assert helper(cluster, place, source="cache").code == 1
    (place.cache / "precious").write_text("mine")
    assert helper(cluster, place).code == 32
    assert compare.mounts_below(place.cache) == []


def test_a_mount_right_after_umount_waits_for_the_daemon_that_still_publishes(cluster, place):
    """As `umount X; mount X` and a restart of fstab's unit: umount(8) returns when the mount has gone, its daemon ends seconds later."""
    for number in range(3):
        assert helper(cluster, place, source=cluster.redis.url).code == 0
        artefacts.write_graph(place.cache, f"k{number}", "value")
        with suspended(cluster.redis):
            assert run(["umount", place.cache]).code == 0
            done = helper(cluster, place, source="none")
        assert done.code == 0, done.err
        place.unmount()


def test_a_store_whose_mount_lives_is_waited_for_for_a_moment_only(cluster, place):
    assert helper(cluster, place).code == 0
    (place.root / "other").mkdir()
    done = place.cli("mount", place.root / "other", "--store", place.store, *cluster.options())
    assert done.code == 1 and f"is in use by process {place.worker()};" in done.err, done.err
    place.unmount()
