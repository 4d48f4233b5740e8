# SPDX-License-Identifier: Apache-2.0
"""A node whose readers are in a container: their root, processes, mounts, user and host name are not the host's, and they see the mount
at another path."""
from inductorfs_testing import documented
from inductorfs_testing.rooted_container import RootedContainer


class Contained:
    """The container's view of a node, with what the functions of incident_hosts ask of a reader. Use as a context."""

    def __init__(self, node, binds=None):
        self.node, self.name = node, f"a container on {node.name}"
        self._container = RootedContainer(node.cache, binds)
        self.cache = self._container.AT
        self._jobs = 0

    def ask(self, code, **words):
        return self._container.ask(code, **words)

    def command(self, *words):
        return self._container.command(*words)

    def lasting(self):
        return set(self.ask("result = sorted(compare.lasting(cache))"))

    def is_there(self, name):
        return self.ask("result = os.path.lexists(cache / name)", name=name)

    def contents(self, names):
        """{name: content in hexadecimal digits}; None where one of them is a miss."""
        return self.ask("""
try:
    result = {name: (cache / name).read_bytes().hex() for name in names}
except FileNotFoundError:
    result = None
""", names=sorted(names))

    def begin(self, *command, python=None, **environment):
        """A job there, as another user with another home, whose environment has another order."""
        self._jobs += 1
        variables = documented.at(self.node.variables(), self.node.cache, self.cache)
        env = self.node.env(**{**variables, "HOME": "/scratch", "USER": "someone", "LOGNAME": "someone", **environment})
        job = self._container.begin([python or self.node.python, *command], dict(reversed(env.items())), self.node.root / "jobs",
                                    f"contained-{self._jobs}")
        self.node._jobs.append(job)
        return job

    def close(self):
        self._container.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
