"""`guards` against what happens: small programs are run under every outcome of their conditions."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from agent.claim_cases import with_text
from forkpoint.agent.case import ClaimStatus
from forkpoint.agent.claims import Guards
from looping import one_in

MOST_CONDITIONS = 6
PROGRAMS = 400
"""One in five of them in `make test`."""


@dataclass
class Written:
    """A program under construction: one function, in which every condition is a question of its own."""

    random: Random
    loops: bool
    lines: list[str] = field(default_factory=lambda: ["def program(ask, call):"])
    asked: list[int] = field(default_factory=list)
    """The line of each condition."""
    call_line: int = 0
    handlers: int = 0
    """Around what is being written."""
    in_handlers: set[int] = field(default_factory=set)
    """Lines of the call and of conditions there: any call before may lead to them, as source tells, though none raises."""

    def add(self, depth: int, text: str) -> int:
        self.lines.append("    " * depth + text)
        if self.handlers:
            self.in_handlers.add(len(self.lines))
        return len(self.lines)

    def block(self, depth: int, *, in_loop: bool) -> None:
        for _ in range(self.random.randint(1, 3)):
            self.statement(depth, in_loop=in_loop)

    def statement(self, depth: int, *, in_loop: bool) -> None:
        kinds = ["if", "if", "if else", "call", "call", "try", "finally", "leave"]
        kind = self.random.choice([*kinds, "while"] if self.loops else kinds)
        if kind == "call" or depth > 4 or len(self.asked) == MOST_CONDITIONS:
            if not self.call_line and self.random.random() < 0.6:
                self.call_line = self.add(depth, "call()")
            else:
                self.add(depth, "pass")
        elif kind == "leave":
            self.leave(depth, in_loop=in_loop)
        elif kind in {"try", "finally"}:
            self.add(depth, "try:")
            self.block(depth + 1, in_loop=in_loop)
            self.add(depth, "except KeyError:" if kind == "try" else "finally:")
            if kind == "try":
                self.handlers += 1
                self.block(depth + 1, in_loop=in_loop)
                self.handlers -= 1
            else:
                self.add(depth + 1, "pass")
                self.statement(depth + 1, in_loop=False)
        else:
            self.asked.append(self.add(depth, f"{'while' if kind == 'while' else 'if'} ask({len(self.asked)}):"))
            self.block(depth + 1, in_loop=in_loop or kind == "while")
            if kind == "if else":
                self.add(depth, "else:")
                self.block(depth + 1, in_loop=in_loop)

    def leave(self, depth: int, *, in_loop: bool) -> None:
        """Under a condition: nobody writes what is never come to."""
        if any("finally:" in line for line in self.lines):
            self.add(depth, "pass")
            return
        ways = ["return", "raise KeyError", *(["continue", "break"] if in_loop else [])]
        self.asked.append(self.add(depth, f"if ask({len(self.asked)}):"))
        self.add(depth + 1, self.random.choice(ways))


Answers = tuple[int, ...]


def run(program: Callable[..., object], answers: Answers) -> int:
    """How often the call was made. A condition holds as often as its answer says in a row, then not once."""
    calls, left = 0, list(answers)

    def ask(number: int) -> bool:
        if left[number]:
            left[number] -= 1
            return True
        left[number] = answers[number]
        return False

    def call() -> None:
        nonlocal calls
        calls += 1

    with suppress(KeyError):
        program(ask, call)
    return calls


def all_runs(text: str, questions: int) -> dict[Answers, int]:
    scope: dict[str, Callable[..., object]] = {}
    exec(compile(text, "program", "exec"), scope)
    return {answers: run(scope["program"], answers) for answers in itertools.product((0, 1), repeat=questions)}


def changes_something(number: int, runs: dict[Answers, int]) -> bool:
    """There is a run in which another answer to this one question changes how often the call is made."""
    return any(
        calls != runs[*answers[:number], 1 - answers[number], *answers[number + 1 :]] for answers, calls in runs.items()
    )


def written(share: int, *, loops: bool) -> Iterator[Written]:
    for seed in range(0, PROGRAMS, share):
        made = Written(Random(seed), loops)
        made.block(1, in_loop=False)
        if made.call_line and made.asked:
            yield made


@one_in(5)
@pytest.mark.parametrize("loops", [False, True], ids=["branches", "loops"])
def test_a_decision_guards_a_call_if_it_changes_whether_the_call_is_made(
    tmp_path: Path, share: int, *, loops: bool
) -> None:
    seen = dict.fromkeys(ClaimStatus, 0)
    for made in written(share, loops=loops):
        program = "\n".join(made.lines) + "\n"
        case = with_text(tmp_path, program)
        runs = all_runs(program, len(made.asked))
        for number, line in enumerate(made.asked):
            claim = Guards(kind="guards", evidence=[], file="train.py", line=line, call_line=made.call_line)
            status = claim.check(case).status
            if changes_something(number, runs):
                assert status is ClaimStatus.SUPPORTED, f"line {line}\n{program}"
            elif not loops and made.in_handlers.isdisjoint({line, made.call_line}):
                assert status is not ClaimStatus.SUPPORTED, f"line {line}\n{program}"
            seen[status] += 1
    assert min(seen[ClaimStatus.SUPPORTED], seen[ClaimStatus.CONTRADICTED]) > 50, seen
