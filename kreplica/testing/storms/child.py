"""Work in a copy of this process that ends with it: nothing of what the work leaves behind has to be collected.

A killed broker leaves tens of thousands of objects in cycles; finding them all takes longer than a copy.
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
    """The copy ended without a result."""


def in_child(work: Callable[[], T]) -> T:
    """Do some work in a copy of this process.

    :return: what it returns, pickled on the way.
    :raise ChildFailed: it raised (its traceback is on standard error), or the copy was killed.
    """
    result_end, childs_result_end = os.pipe()
    childs_life_end, life_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(result_end)
        os.close(life_end)
        _be_child(work, childs_result_end, childs_life_end)
    os.close(childs_result_end)
    os.close(childs_life_end)
    with open(result_end, "rb") as results:
        result = results.read()
    os.close(life_end)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        raise ChildFailed(f"the process of a storm ended with {status}")
    done: T = pickle.loads(result)
    return done


def _be_child(work: Callable[[], Any], result_end: int, life_end: int) -> NoReturn:
    status = 1
    try:
        Thread(target=_end_with_parent, args=[life_end], daemon=True).start()
        gc.disable()
        sys.unraisablehook = lambda _: None  # coroutines of killed processes protest
        result = pickle.dumps(work())
        with open(result_end, "wb", closefd=False) as results:  # it ends with the process: until then it is waited for
            results.write(result)
        status = 0
    except BaseException:
        print_exc()
    finally:
        os._exit(status)


def _end_with_parent(life_end: int) -> None:
    os.read(life_end, 1)
    os._exit(1)
