# SPDX-License-Identifier: Apache-2.0
"""What the mount, cluster and torch rings share: a private Redis, nodes, jobs, counting tools, comparisons."""
