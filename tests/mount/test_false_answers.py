# SPDX-License-Identifier: Apache-2.0
"""A worker that was taken over answers who asks it. Commands that ask all mounts of a host tell of the others, and none ends by a signal."""
import contextlib
import json
import os
import pwd
import socket
import subprocess
import threading

import pytest
from inductorfs_testing import places

pytestmark = pytest.mark.usefixtures("root")
PROGRAM = places.program()
NOBODY = pwd.getpwnam("nobody")
ANSWERS = ['{"ok":true,"result":%s}' % text for text in (
    '{"mountpoint":5,"also":[]}', '{"mountpoint":null}', '[]', '[1,2]', '5', '"text"', 'null', '{}', '{"mountpoint":"/x","also":7}',
    '{"mountpoint":"/x","also":[7,{"name":1}]}', '{"mountpoint":["/x"],"also":{"a":1}}', '{"mountpoint":"/x","jobs":[5],"counters":[1],"mounts":{"a":5}}',
    '{"mountpoint":"/x","jobs":[{"number":"x","saved_s":"much","slowest":5,"hints":3}],"takeover":4,"file_system":{"users":[1,"a",{"user":"x"}]}}')]
ANSWERS += ['{"ok":5}', '{"ok":true}', '[]', 'nothing', '{"ok":false,"error":7,"code":9}']


@contextlib.contextmanager
def answering(path, answer):
    """A socket at which each request is answered so."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid)
        listener.listen()

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    with listener.accept()[0] as client:
                        client.recv(65536)
                        client.sendall(answer.encode() + b"\n")
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            path.unlink()


@pytest.fixture
def runtime(tmp_path):
    """A directory of control sockets of a user who has no mount."""
    for above in (tmp_path, *tmp_path.parents):
        if not os.stat(above).st_mode & 0o001:
            os.chmod(above, os.stat(above).st_mode | 0o011)
    directory = tmp_path / "inductorfs"
    directory.mkdir(mode=0o700)
    os.chown(directory, NOBODY.pw_uid, NOBODY.pw_gid)
    os.chown(tmp_path, NOBODY.pw_uid, NOBODY.pw_gid)
    return directory


@pytest.mark.parametrize("words", [["status"], ["status", "--json"], ["metrics"], ["jobs"], ["stats"], ["nodes"]])
def test_no_answer_ends_a_command(runtime, words):
    ended = {}
    for answer in ANSWERS:
        with answering(runtime / "0123456789abcdef.sock", answer):
            done = subprocess.run([PROGRAM, *words], env={"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(runtime.parent)}, user=NOBODY.pw_uid, group=NOBODY.pw_gid,
                                  extra_groups=[], cwd="/", capture_output=True, text=True, timeout=60)
        if done.returncode not in (0, 1, 2):
            ended[answer] = (done.returncode, done.stderr)
        if "--json" in words and done.returncode == 0:
            json.loads(done.stdout)
    assert not ended, ended
