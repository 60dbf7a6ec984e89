"""Statements that may wait for ever for something outside the job: a lock, a queue, a file, a socket, another process."""

import ast
from collections.abc import Iterator

from forkpoint.source.analysis import Analysis
from forkpoint.source.code import Class, Function
from forkpoint.source.syntax import called_name, last_word, names_and_attributes_in, shortened

_BY_CLASS = {
    "Lock": "acquire", "RLock": "acquire", "Semaphore": "acquire", "BoundedSemaphore": "acquire", "FileLock": "acquire",
    "Queue": "get join", "SimpleQueue": "get", "JoinableQueue": "get join", "LifoQueue": "get join",
    "Event": "wait", "Condition": "wait", "Barrier": "wait", "Thread": "join", "Process": "join",
    "Popen": "wait communicate", "socket": "recv accept recv_into", "Connection": "recv",
}  # fmt: skip
"""Methods that return only when somebody else does something."""
_BY_NAME = (
    (("lock", "mutex"), "acquire"), (("queue", "_q"), "get"), (("sock", "socket"), "recv accept"), (("proc",), "wait join"),
)  # fmt: skip
_LOCKS = frozenset({"Lock", "RLock", "Semaphore", "BoundedSemaphore", "Condition", "FileLock"})
_FUNCTIONS = frozenset({
    "subprocess.run", "subprocess.call", "subprocess.check_call", "subprocess.check_output", "input", "os.waitpid",
    "fcntl.flock", "fcntl.lockf", "urllib.request.urlopen", "requests.get", "requests.post", "requests.put",
})  # fmt: skip
_NEED_ARGUMENTS = frozenset({"recv", "recv_into", "communicate"})
"""Methods whose arguments are no time limit."""
_LIMITS = ("timeout", "deadline", "limit", "tries", "attempt", "retries", "max_")
_CLOCKS = frozenset({"time", "monotonic", "perf_counter"})
_SLEEPS = frozenset({"sleep", "wait"})
_SHOWN = 50


def find_waits(function: Function, analysis: Analysis) -> Iterator[tuple[int, str]]:
    """Lines, and what they wait for."""
    for node in ast.walk(function.node):
        if isinstance(node, ast.While) and _polls(node, function, analysis):
            yield node.lineno, "this loop asks again and again, without a limit"
        elif isinstance(node, ast.With):
            for item in node.items:
                if _is_lock(item.context_expr, function, analysis):
                    yield node.lineno, f"`{_text(item.context_expr, function)}` may be held by somebody else"
    for call in function.calls:
        if _waits(call, function, analysis) and not _is_limited(call):
            yield call.lineno, f"`{_text(call, function)}` waits without a limit"


def _polls(loop: ast.While, function: Function, analysis: Analysis) -> bool:
    """It sleeps between two checks, reads no clock, counts nothing and makes no call of the job."""
    calls = [n for n in ast.walk(loop) if isinstance(n, ast.Call)]
    looks = isinstance(loop.test, ast.Constant) or any(isinstance(n, ast.Call) for n in ast.walk(loop.test))
    words = {name.lower() for name in names_and_attributes_in(loop)}
    limited = any(limit in word for word in words for limit in _LIMITS)
    reads_clock = any(last_word(call.func) in _CLOCKS for call in calls)
    works = any(analysis.communication.api(call, function) is not None for call in calls)
    sleeps = any(last_word(call.func) in _SLEEPS for call in calls)
    return looks and sleeps and not limited and not reads_clock and not works


def _is_lock(expr: ast.expr, function: Function, analysis: Analysis) -> bool:
    kind = _kind(expr, function, analysis)
    return kind in _LOCKS or (kind is None and not isinstance(expr, ast.Call) and _named(expr, ("lock", "mutex")))


def _waits(call: ast.Call, function: Function, analysis: Analysis) -> bool:
    name = analysis.resolver.dotted(call.func, function)
    if name in _FUNCTIONS:
        return True
    if not isinstance(call.func, ast.Attribute):
        return False
    receiver, method = call.func.value, call.func.attr
    kind = _kind(receiver, function, analysis)
    if kind is not None:
        return method in _BY_CLASS.get(kind, "").split()
    return any(_named(receiver, words) and method in methods.split() for words, methods in _BY_NAME)


def _kind(expr: ast.expr, function: Function, analysis: Analysis) -> str | None:
    """The last word of its class; None if that is not known."""
    found = analysis.resolver.class_of(expr, function)
    return found.name.rpartition(".")[2] if isinstance(found, Class) else found.rpartition(".")[2] if found else None


def _named(expr: ast.expr, words: tuple[str, ...]) -> bool:
    return called_name(expr).lower().endswith(words)


def _is_limited(call: ast.Call) -> bool:
    """It has a keyword that limits it, or, for a method that needs no argument, any argument."""
    if any(k.arg and any(limit in k.arg for limit in _LIMITS) for k in call.keywords):
        return True
    if not isinstance(call.func, ast.Attribute) or call.func.attr in _NEED_ARGUMENTS:
        return False
    plain = call.func.attr in {"acquire", "get", "wait", "join", "accept"}
    return plain and bool(call.args or call.keywords)


def _text(expr: ast.expr, function: Function) -> str:
    return shortened(function.module.source(expr), _SHOWN)
