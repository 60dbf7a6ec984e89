"""What holds a thread, by the call that the user's code made last.

Read are the frames from the innermost up to the first of the user's own: the call in which the thread is. Among them:

1. Creating or destroying a group wins wherever it stands: a barrier inside `new_group` is part of making the group.
2. Else the innermost frame with a purpose: a collective, the loader, the compiler, an import. A lock, a socket or a GPU
   wait inside the loader is the loader's; a collective inside the compiler or the loader is a collective.
3. Else the innermost that shows a means: GPU wait, subprocess, file, network. A lock inside them is theirs.
4. Else the innermost plain wait: file or network system calls, sleep, lock.
5. Else importing, where the user's frame is a module that is being imported; else Python, where any Python runs.

The user's frame itself is not interpreted: `event.wait()` in `upload` is a lock, and `find_user_frame` gives `upload`.
"""

from forkpoint.ingest.live_stacks.known_calls import MEANS, PURPOSES, WAITS, Rule, Shape, find_rule
from forkpoint.model.frames import is_library, is_python, is_user_code, place_of
from forkpoint.model.op import Frame, Stack

__all__ = ["Shape", "find_last_call", "find_shape", "find_user_frame"]

_FIRST = frozenset({Shape.COMM_INIT, Shape.DESTROY})


def find_shape(stack: Stack) -> Shape:
    call = find_last_call(stack)
    purposes = _shapes(call, PURPOSES)
    for shapes in ([s for s in purposes if s in _FIRST], purposes, _shapes(call, MEANS), _shapes(call, WAITS)):
        if shapes:
            return shapes[0]
    if _is_importing(stack[len(call) :]):
        return Shape.IMPORT
    return Shape.PYTHON if any(is_python(f) or _is_interpreter(f) for f in stack) else Shape.UNKNOWN


def find_last_call(stack: Stack) -> Stack:
    """The frames inside the innermost of the user's own: the library call in which the thread is. All, without one."""
    depth = next((depth for depth, frame in enumerate(stack) if is_user_code(frame)), len(stack))
    return stack[:depth]


def find_user_frame(stack: Stack) -> Frame | None:
    """The innermost frame of the user's own: the place to look at."""
    return next((frame for frame in stack if is_user_code(frame)), None)


def _shapes(call: Stack, rules: tuple[Rule, ...]) -> list[Shape]:
    found = (find_rule(frame, rules) for frame in call)
    return [rule.shape for rule in found if rule]


def _is_importing(rest: Stack) -> bool:
    """The user's innermost frame is a module's body, and the import system called it."""
    return len(rest) > 1 and rest[0].name == "<module>" and is_library(rest[1]) and "importlib." in place_of(rest[1])


def _is_interpreter(frame: Frame) -> bool:
    return frame.name.startswith(("_PyEval_EvalFrame", "PyEval_EvalCode"))
