"""Ends a process when its parent exits."""

from __future__ import annotations

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1  # linux/prctl.h
_prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)  # Linux only


def exit_with_parent(parent_id: int) -> None:
    """Make the kernel kill this process, even if it is suspended, when its parent exits for any reason (Linux only).

    :param parent_id: process ID of the parent, passed by the parent itself.
    """
    if _prctl is not None:
        _prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    if os.getppid() != parent_id:  # the parent exited before the call above
        os.kill(os.getpid(), signal.SIGKILL)
