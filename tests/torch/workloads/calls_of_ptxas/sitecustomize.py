# SPDX-License-Identifier: Apache-2.0
"""Python imports this when it starts, if the directory is in PYTHONPATH: each run of ptxas, but for its version, is a line in the file that
CALLS_OF_PTXAS names. Workers of a job inherit both. Nothing that Triton or a mount looks at is another one than without it."""
import os
import sys


def note(event, arguments):
    if event != "subprocess.Popen" or "CALLS_OF_PTXAS" not in os.environ:
        return
    words = arguments[1] if isinstance(arguments[1], (list, tuple)) else [arguments[1]]
    words = [os.fsdecode(word) if isinstance(word, bytes) else str(word) for word in words]
    if os.path.basename(words[0]).startswith("ptxas") and "--version" not in words:
        with open(os.environ["CALLS_OF_PTXAS"], "a", encoding="utf-8") as file:
            file.write(" ".join(words)[:1000] + "\n")


sys.addaudithook(note)
