# SPDX-License-Identifier: Apache-2.0
"""Eight nodes with one Redis, all of which is killed, cut off and delayed at random while jobs work: each promise is an invariant
that is checked at every operation, and what was acknowledged must appear everywhere afterwards. The storms in which the server
loses its data are in test_losses.py."""


def test_a_server_that_keeps_its_data(chaos, storm):
    chaos.start()
    storm(chaos, chaos.stop_server, chaos.kill_server)
