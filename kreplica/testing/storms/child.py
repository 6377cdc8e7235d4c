"""Runs a function in a forked process, so that its garbage disappears with the process.

A killed broker leaves tens of thousands of objects in reference cycles; collecting them takes longer than a fork.
"""

from __future__ import annotations

import gc
import os
import pickle
import sys
from collections.abc import Callable
from threading import Thread
from traceback import print_exc
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")


class ChildFailed(Exception):
    """The child process ended without a result."""


def call_in_child(work: Callable[[], T]) -> T:
    """Call ``work`` in a forked process and return its result, which is pickled.

    :raise ChildFailed: ``work`` raised (the traceback is on standard error), or the process was killed.
    """
    result_end, child_result_end = os.pipe()
    child_lifeline, lifeline = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(result_end)
        os.close(lifeline)
        _run_child(work, child_result_end, child_lifeline)
    os.close(child_result_end)
    os.close(child_lifeline)
    with open(result_end, "rb") as results:
        result = results.read()
    os.close(lifeline)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        raise ChildFailed(f"the storm's process ended with status {status}")
    returned: T = pickle.loads(result)
    return returned


def _run_child(work: Callable[[], Any], result_end: int, lifeline: int) -> NoReturn:
    status = 1
    try:
        Thread(target=_exit_with_parent, args=[lifeline], daemon=True).start()
        gc.disable()
        sys.unraisablehook = lambda _: None  # collected coroutines of killed processes raise errors
        result = pickle.dumps(work())
        with open(result_end, "wb", closefd=False) as results:  # the parent reads until this process has ended
            results.write(result)
        status = 0
    except BaseException:
        print_exc()
    finally:
        os._exit(status)


def _exit_with_parent(lifeline: int) -> None:
    os.read(lifeline, 1)
    os._exit(1)
