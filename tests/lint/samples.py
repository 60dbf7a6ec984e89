"""Rules that find a word, so that what surrounds rules can be tested without analysis."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from forkpoint.lint.rule import LineEdit, LintRule, Related, Violation
from forkpoint.source import Program, read_program
from forkpoint.source.analysis import Analysis


def find_bad(analysis: Analysis) -> Iterator[Violation]:
    """A violation on each line with `bad`, over two lines where a line with `end` follows, with an edit to `good`."""
    for file in analysis.program.modules:
        lines = analysis.program.text(file).split("\n")
        for number, line in enumerate(lines, 1):
            if "bad" in line.partition("#")[0]:
                last = number + 1 if "end" in lines[number] else number
                yield violation(file, number, last, line.index("bad") + 1, line.replace("bad", "good") + "\n")


def find_doubtful(analysis: Analysis) -> Iterator[Violation]:
    for file in analysis.program.modules:
        for number, line in enumerate(analysis.program.text(file).split("\n"), 1):
            if "doubtful" in line.partition("#")[0]:
                yield Violation("doubtful-word", file, number, number, 1, "f", "perhaps wrong", advisory=True)


def violation(file: str, line: int, end_line: int, column: int, text: str) -> Violation:
    return Violation(
        rule="bad-word",
        file=file,
        line=line,
        end_line=end_line,
        column=column,
        function="<module>",
        message="a bad word",
        condition="rank == 0",
        why="it is the rank",
        related=(Related(file, line, "[here]"),),
        edit=LineEdit("say good", line, line, text),
    )


def rule(code: str, find: object, *, advisory: bool = False) -> LintRule:
    return LintRule(code, f"finds {code}", find, advisory, f"Finds {code}.", "bad = 1\n", "good = 1\n")


RULES = (rule("bad-word", find_bad), rule("doubtful-word", find_doubtful, advisory=True))


def use_sample_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forkpoint.lint.rules.RULES", RULES)


def program_of(folder: Path, text: str, name: str = "train.py") -> Program:
    (folder / name).write_text(text)
    return read_program([str(folder)])
