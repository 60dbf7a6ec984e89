"""Stacks whose innermost line belongs to the program: which built-in function that line calls.

A function written in C has no Python frame. A rank that waits in `loss.item()` or `sock.recv(4)` is therefore seen at
that line and no deeper, just like a rank that computes. The source tells them apart: had the line called a Python
function, that would be a frame.
"""

import ast
import re
from dataclasses import replace

from forkpoint.model.capture import Capture
from forkpoint.model.frames import bare_name, is_python, is_user_code
from forkpoint.model.log import LogKind
from forkpoint.model.op import Frame, Stack
from forkpoint.source.analysis import Analysis
from forkpoint.source.code import Function
from forkpoint.source.syntax import last_word

_OF_TENSORS = frozenset({"item", "tolist", "cpu", "numpy"})
"""They copy from the GPU, and wait until it has finished all earlier work."""
_SYSTEM = frozenset({
    *("sleep", "recv", "recv_into", "recvfrom", "accept", "connect", "sendall"),
    *("read", "readline", "readlines", "write", "fsync", "flock", "lockf", "open", "waitpid", "acquire"),
})  # fmt: skip
_AS = {
    "recv_into": "recv",
    "sendall": "send",
    "readline": "read",
    "readlines": "read",
    "lockf": "flock",
    "acquire": "lock.acquire",
}
_LOCKS = re.compile(r"lock|mutex|semaphore|condition", re.IGNORECASE)
"""In the name of what a `with` statement enters: entering it waits for another thread."""
_STARTS = frozenset({"isend", "irecv", "batch_isend_irecv"})
_NCCL = frozenset({LogKind.WATCHDOG_TIMEOUT, LogKind.NCCL_INIT, LogKind.NCCL_CALL})


def name_builtins(capture: Capture, analysis: Analysis) -> Capture:
    """The capture with these calls on top of the stacks that end in such a line."""
    on_gpu = any(e.kind in _NCCL for e in capture.events) or any(t.comm_lib.startswith("nccl") for t in capture.traces)
    named = [replace(live, stack=_with_builtin(live.stack, analysis, on_gpu=on_gpu)) for live in capture.stacks]
    return replace(capture, stacks=tuple(named))


def _with_builtin(stack: Stack, analysis: Analysis, *, on_gpu: bool) -> Stack:
    if not stack or not is_python(stack[0]) or not is_user_code(stack[0]):
        return stack
    module = analysis.program.module_at(stack[0].filename)
    function = module.function_at(stack[0].line) if module else None
    if function is None or bare_name(stack[0]) != function.short:
        return stack
    calls = [c for c in _calls_on(stack[0].line, function) if not analysis.resolver.callees(c, function).functions]
    called = {name for call in calls if (name := _builtin(call, function, on_gpu=on_gpu))}
    called |= {"lock.acquire"} if _enters_lock(stack[0].line, function) else set()
    return (Frame(called.pop(), "", 0), *stack) if len(called) == 1 else stack


def _enters_lock(line: int, function: Function) -> bool:
    """`with self.lock:`, where Python shows no frame of the lock."""
    entered = [
        item.context_expr
        for node in ast.walk(function.node)
        if isinstance(node, ast.With)
        for item in node.items
        if item.context_expr.lineno <= line <= (item.context_expr.end_lineno or line)
    ]
    return any(isinstance(one, ast.Name | ast.Attribute) and _LOCKS.search(last_word(one) or "") for one in entered)


def _calls_on(line: int, function: Function) -> list[ast.Call]:
    return [call for call in function.calls if call.lineno <= line <= (call.end_lineno or call.lineno)]


def _builtin(call: ast.Call, function: Function, *, on_gpu: bool) -> str | None:
    name = last_word(call.func)
    if name in _OF_TENSORS and isinstance(call.func, ast.Attribute):
        return f"Tensor.{name}" if on_gpu else None
    if name == "wait" and isinstance(call.func, ast.Attribute) and _is_work(call.func.value, function):
        return "Work.wait"
    return _AS.get(name, name) if name in _SYSTEM else None


def _is_work(expr: ast.expr, function: Function) -> bool:
    """The result of `isend`, `irecv`, or a call with `async_op=True`; or an element of a list of such."""
    name = last_word(expr)
    made = [
        n.value for n in function.own.assignments if isinstance(n, ast.Assign) and name in map(last_word, n.targets)
    ]
    loops = [
        n.iter
        for n in ast.walk(function.node)
        if isinstance(n, ast.For | ast.comprehension) and last_word(n.target) == name
    ]
    over = {last_word(one) for one in loops}
    made += [
        n.value for n in function.own.assignments if isinstance(n, ast.Assign) and over & set(map(last_word, n.targets))
    ]
    grown = [
        a
        for c in function.calls
        if last_word(c.func) == "append" and isinstance(c.func, ast.Attribute) and last_word(c.func.value) in over
        for a in c.args
    ]
    return any(_starts(c) for value in (*made, *grown, *loops) for c in ast.walk(value) if isinstance(c, ast.Call))


def _starts(call: ast.Call) -> bool:
    return last_word(call.func) in _STARTS or any(k.arg == "async_op" for k in call.keywords)
