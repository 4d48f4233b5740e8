# SPDX-License-Identifier: Apache-2.0
"""What a program that knows local disks expects of names, modes and attributes, where the cluster or a restart plays a part."""
import os
import stat

from inductorfs_testing import artefacts
from inductorfs_testing.mounts import appears
from inductorfs_testing.processes import run

NOBODY = 65534
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


# ---- modes

def test_a_writer_with_umask_077_hides_nothing_from_other_users_of_other_nodes(cluster, root):
    a, b = cluster.quick("a"), cluster.quick("b")
    cluster.directory.chmod(0o755)
    before = os.umask(0o077)
    try:
        graph = artefacts.write_graph(a.cache, "k", "value").relative_to(a.cache)
        library = artefacts.build_library(a.cache, "library").relative_to(a.cache)
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(a.cache / graph).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(a.cache / library).st_mode) == 0o700
    a.sync()
    assert stat.S_IMODE(os.stat(appears(b.cache / graph)).st_mode) == 0o644
    assert stat.S_IMODE(os.stat(appears(b.cache / library)).st_mode) == 0o755
    os.chmod(b.root, 0o755)
    done = run([*AS_NOBODY, "cat", b.cache / graph], seconds=20)
    assert (done.code, done.out) == (0, "value"), done.err
    assert run([*AS_NOBODY, "cmp", b.cache / library, b.cache / library], seconds=20).code == 0
