"""Claim: a thread of a rank waits for a lock that another of its threads holds."""

import ast
from collections.abc import Iterator
from typing import Literal

from forkpoint.agent.case import Claim, ClaimCheck, ClaimStatus
from forkpoint.agent.claims.guards import Line, find_line
from forkpoint.agent.claims.quoted import FrameAt, same_files
from forkpoint.brief.case import Case, Fact
from forkpoint.brief.naming import fact, is_plain, named, number
from forkpoint.evidence.stacks.shapes import Shape, find_shape
from forkpoint.model.op import Stack
from forkpoint.source.syntax import last_word, own_nodes

# ---------------------------------------------------------------------------------------------------------------------
# | the rank's threads, as its stacks show them | is |
# |---|---|
# | one waits at the first line, another is at the second, and the source takes the same lock at both | supported |
# | the one at the first line is in something else (a collective, a file); or no thread is at one of the lines, and all stacks
#   were read | contradicted |
# | are at both lines, but the source does not show which lock; no stacks of the rank | unverifiable |
#
# No stack says who holds a lock. A `with` over the same name around the other thread's line shows it.

_NOT_A_LOCK = frozenset(
    {Shape.COLLECTIVE, Shape.FILE_IO, Shape.NETWORK_IO, Shape.SLEEP, Shape.COMPILE, Shape.SUBPROCESS}
)


class WaitsForLock(Claim):
    """A thread of a rank waits for a lock that another of its threads holds."""

    kind: Literal["waits-for-lock"]
    rank: int
    file: str
    line: int
    """Where the thread waits."""
    holder_file: str
    holder_line: int
    """Where the other is while it holds the lock."""

    def sentence(self) -> str:
        return (
            f"a thread of rank {number(self.rank)} waits at {named(self.file)} line {number(self.line)} for a lock held by "
            f"another at {named(self.holder_file)} line {number(self.holder_line)}"
        )

    def check(self, case: Case) -> ClaimCheck:
        places = ((self.file, self.line), (self.holder_file, self.holder_line))
        if not all(is_plain(n) for n in (self.rank, self.line, self.holder_line)):
            return ClaimCheck.unverifiable("name a rank and two lines")
        for file, line in places:
            stands = FrameAt(kind="frame", rank=self.rank, file=file, line=line).check(case)
            if stands.status is not ClaimStatus.SUPPORTED:
                return stands
        waiting, holding = (list(_threads_at(self.rank, file, line, case)) for file, line in places)
        facts = tuple(fact(case, where, f"thread at {self.file}:{self.line}") for where, _ in waiting[:2])
        if not waiting or not holding:
            return ClaimCheck(
                ClaimStatus.UNVERIFIABLE, "these lines are in recorded calls, not in stacks of threads", facts
            )
        shapes = {find_shape(stack) for _, stack in waiting}
        if shapes <= _NOT_A_LOCK:
            return ClaimCheck(
                ClaimStatus.CONTRADICTED, f"the thread there is in {', '.join(sorted(shapes))}, not at a lock", facts
            )
        return self._by_name(case, facts)

    def _by_name(self, case: Case, facts: tuple[Fact, ...]) -> ClaimCheck:
        lines = [find_line(*place, case) for place in ((self.file, self.line), (self.holder_file, self.holder_line))]
        asked, held = (_locks_at(one) if isinstance(one, Line) else frozenset[str]() for one in lines)
        shared = asked & held
        if shared:
            return ClaimCheck(
                ClaimStatus.SUPPORTED, f"both use {named(min(shared))}: one waits for it, the other is inside it", facts
            )
        return ClaimCheck(
            ClaimStatus.UNVERIFIABLE,
            "threads are at both lines, but the source does not show that it is the same lock",
            facts,
        )


def _threads_at(rank: int, file: str, line: int, case: Case) -> Iterator[tuple[str, Stack]]:
    for live in case.incident.capture.stacks:
        if live.rank == rank:
            for name, stack in (("main", live.stack), *live.others):
                files = same_files(file, {frame.filename for frame in stack}, case)
                if any(frame.filename in files and frame.line == line for frame in stack):
                    yield f"{live.file} thread {name}", stack


def _locks_at(line: Line) -> frozenset[str]:
    """Names of locks taken on the line (`with` or `acquire`), and of `with` blocks around it."""
    found: set[str] = set()
    for node in own_nodes(line.function.node):
        inside = isinstance(node, ast.With | ast.AsyncWith) and node.lineno <= line.number <= (node.end_lineno or 0)
        if inside and isinstance(node, ast.With | ast.AsyncWith):
            found |= {last_word(item.context_expr) for item in node.items}
        is_acquire = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "acquire"
        if is_acquire and isinstance(node, ast.Call) and node.lineno == line.number:
            found |= {last_word(node.func.value)} if isinstance(node.func, ast.Attribute) else set()
    return frozenset(found - {""})
