"""A process that ends with the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1  # linux/prctl.h
_prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)  # Linux only


def end_with_parent(parent_id: int) -> None:
    """Have the kernel kill this process, even where it stands still, as soon as its parent has ended in whatever way.

    :param parent_id: the parent's process id, as the parent itself knows it.
    """
    if _prctl is not None:
        _prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    if os.getppid() != parent_id:  # it had ended before the kernel was told
        os.kill(os.getpid(), signal.SIGKILL)
