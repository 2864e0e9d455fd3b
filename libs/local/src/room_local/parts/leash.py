"""Start a program that dies with the process which asked for it.

Run as a script, not imported: ``python -I -S leash.py SIGNAL UID GID PROGRAM ARGUMENT...``. It becomes PROGRAM, so the
pid stays. On Linux the kernel then sends SIGNAL to the program once the thread that started it is gone, also after a
``kill -9``. A ``preexec_fn`` could do the same but is not safe in a process with threads, as test runs are.
"""

from __future__ import annotations

import os
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Drop to the given user (-1: stay), ask the kernel for the signal, become the program."""
    death_signal, uid, gid = (int(argument) for argument in arguments[:3])
    parent = os.getppid()
    libc = None
    if sys.platform == "linux":
        import ctypes  # before the change of user, who need not be able to read our interpreter

        libc = ctypes.CDLL(None, use_errno=True)
    if uid >= 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    if libc is not None:
        # after the change of user, which clears it
        libc.prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
        if os.getppid() != parent:
            sys.exit(1)
    os.execv(arguments[3], arguments[3:])


if __name__ == "__main__":
    main(sys.argv[1:])
