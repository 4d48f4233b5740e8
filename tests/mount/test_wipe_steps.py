# SPDX-License-Identifier: Apache-2.0
"""Random steps of two nodes in overlapping directories of Triton's, with workers that are killed between them: what a process has made
is there, what is listed is found, and `rm -rf` leaves nothing. Before it both nodes know the same, since what comes from the other one
meanwhile would be listed late, as from any other process."""
import errno
import os
import random
import shutil

import pytest
from inductorfs_testing import artefacts
from inductorfs_testing.processes import wait_until

PLACES = ("triton", "triton/0", "triton/1", "triton_cache", "alice/triton", "alice/triton/0", "alice", "bob/k", "")
STEPS = int(os.environ.get("INDUCTORFS_WIPE_STEPS", "150"))
MOST_KILLS = 3  # of one worker: after five crashes a mount is in safe mode
KINDS = ("make", "make", "make", "look", "wipe", "wipe", "rename", "kill")
MAY_REFUSE = (errno.ENOTEMPTY, errno.EXDEV, errno.EINVAL, errno.EEXIST)


class Steps:
    def __init__(self, nodes, seed):
        self.nodes, self.choose, self.told, self.markers = nodes, random.Random(seed), [], 0

    def tell(self, node, *words):
        self.told.append(" ".join((node.name, *words)))

    def settle(self):
        for node, other in (self.nodes, self.nodes[::-1]):
            self.markers += 1
            marker = f"marker {self.markers}"
            artefacts.triton_compile_in(node.cache / "marks", marker, "nobody")
            node.sync()
            wait_until(lambda: artefacts.triton_read_in(other.cache / "marks", marker), 20, marker)  # noqa: B023

    def make(self, node, place, kernel):
        writer = self.choose.choice(("one", "two"))
        self.tell(node, "makes", kernel, "by", writer, "in", place)
        artefacts.triton_compile_in(node.cache / place, kernel, writer)
        made = artefacts.triton_read_in(node.cache / place, kernel)
        assert made and artefacts.triton_writers(made) == {writer}

    def look(self, node, place, kernel):
        self.tell(node, "looks for", kernel, "in", place)
        found = artefacts.triton_read_in(node.cache / place, kernel)
        assert not found or len(artefacts.triton_writers(found)) == 1
        # The kernel learns of what came a moment ago when the listing has it.
        wait_until(lambda: not self.listed_and_not_found(node), 5, "what is listed to be found")

    def listed_and_not_found(self, node):
        return [os.path.join(above, name) for above, directories, files in os.walk(node.cache) for name in directories + files
                if not os.path.lexists(os.path.join(above, name))]

    def wipe(self, node, place, kernel):
        target = node.cache / place
        if not place or self.choose.random() < 0.3:
            target /= artefacts.triton_key(kernel)
        self.settle()
        if not target.exists():
            return
        self.tell(node, "removes", str(target.relative_to(node.cache)))
        shutil.rmtree(target)
        assert not target.exists()

    def rename(self, node, place, kernel):
        key = artefacts.triton_key(kernel)
        source, target = (node.cache / one / key for one in (place, self.choose.choice(PLACES)))
        if not source.exists() or target.exists():
            return
        self.tell(node, "renames", str(source.relative_to(node.cache)), "to", str(target.relative_to(node.cache)))
        os.makedirs(target.parent, exist_ok=True)
        try:
            os.rename(source, target)
        except OSError as error:
            if error.errno not in MAY_REFUSE:
                raise

    def kill(self, node, _place, _kernel):
        if sum(told == f"{node.name} is killed" for told in self.told) < MOST_KILLS:
            self.tell(node, "is killed")
            node.next_worker(node.kill_worker())


@pytest.mark.parametrize("seed", (0, 3, 6, 7))
def test_what_is_listed_can_be_removed(cluster, seed):
    steps = Steps([cluster.node(name, options=cluster.options()) for name in "ab"], seed)
    try:
        for _ in range(STEPS):
            node, kind = steps.choose.choice(steps.nodes), steps.choose.choice(KINDS)
            getattr(steps, kind)(node, steps.choose.choice(PLACES), steps.choose.choice(("first", "second")))
    finally:
        print("\n".join(steps.told))
