"""What a rank that does not come is doing, from its live stack."""

import re

from forkpoint.ingest.live_stacks.known_calls import Shape
from forkpoint.ingest.live_stacks.shapes import find_shape
from forkpoint.model.frames import bare_name, is_python, is_standard
from forkpoint.model.op import Stack

_STALL_SHAPES = (
    Shape.FILE_IO,
    Shape.NETWORK_IO,
    Shape.LOCK,
    Shape.LOADER,
    Shape.COMPILE,
    Shape.SUBPROCESS,
    Shape.SLEEP,
)
_STORAGE_SHAPES = (Shape.FILE_IO, Shape.NETWORK_IO)
# A wait is often wrapped: what the user's functions are called then says more than the lock at the end.
_STORAGE_NAMES = re.compile(r"upload|download|save|write|read|open|flush|fsync|checkpoint|fetch|mount", re.IGNORECASE)


def is_communicating(stack: Stack) -> bool:
    """It waits for others, it does not stall by itself."""
    return find_shape(stack) in (Shape.COLLECTIVE, Shape.COMM_INIT, Shape.DESTROY)


def is_waiting_for_ranks(stack: Stack) -> bool:
    """In a communication call, or in a backward pass, from which C++ makes them."""
    return is_communicating(stack) or next((bare_name(f) for f in stack if is_python(f)), "") == "_engine_run_backward"


def is_making_group(stack: Stack) -> bool:
    return find_shape(stack) is Shape.COMM_INIT


def waits_for_gpu(stack: Stack) -> bool:
    return find_shape(stack) is Shape.CUDA_SYNC


def is_stalling(stack: Stack) -> bool:
    """It waits for something that is no rank and no GPU. Plain Python code may be either, so it does not count."""
    return find_shape(stack) in _STALL_SHAPES


def is_at_work(stack: Stack) -> bool:
    """It is inside a call that waits for no rank and no GPU: a known stall, or one of Python's own library. A line of the
    user's own may call anything, `work.wait()` too.
    """
    return is_stalling(stack) or (find_shape(stack) is Shape.PYTHON and is_standard(stack[0]))


def is_in_storage(stack: Stack) -> bool:
    return find_shape(stack) in _STORAGE_SHAPES or any(_STORAGE_NAMES.search(frame.name) for frame in stack)
