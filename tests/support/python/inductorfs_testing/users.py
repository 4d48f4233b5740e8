# SPDX-License-Identifier: Apache-2.0
"""Steps of a test as processes of other users."""
import os
import pickle
import traceback

from inductorfs_testing.processes import Failed


def as_user(uid, umask, function, *arguments, groups=()):
    """Runs function(*arguments) in a process of that user; its result, or its error with the traceback."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reading)
            os.setgroups(groups)
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            os.umask(umask)
            try:
                told = pickle.dumps(("result", function(*arguments)))
            except BaseException:
                told = pickle.dumps(("error", traceback.format_exc()))
            os.write(writing, told)
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    kind, told = pickle.loads(data)
    if kind == "error":
        raise Failed(f"user {uid}, umask {umask:03o}: {told}")
    return told
