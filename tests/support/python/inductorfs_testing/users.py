# SPDX-License-Identifier: Apache-2.0
"""Python functions in processes of other users. Root only."""
import os
import pickle
import traceback

from .processes import Failed


def begin_as(uid, umask, function, *arguments, groups=()):
    """Starts function(*arguments) in a process of that user, for result_of()."""
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
    return child, reading, f"user {uid}, umask {umask:03o}"


def result_of(begun):
    """Its result, or its error with the traceback."""
    child, reading, who = begun
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    kind, told = pickle.loads(data)
    if kind == "error":
        raise Failed(f"{who}: {told}")
    return told


def as_user(uid, umask, function, *arguments, groups=()):
    """Runs function(*arguments) in a process of that user; its result."""
    return result_of(begin_as(uid, umask, function, *arguments, groups=groups))
