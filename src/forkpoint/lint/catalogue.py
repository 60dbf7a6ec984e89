"""Every code that `--select`, `ignore[...]` and `explain` take."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from forkpoint.lint import rules
from forkpoint.lint.rule import Rule


@dataclass(frozen=True, slots=True)
class IgnoreRule:
    """A rule about `ignore[...]` comments: judged once all other rules have spoken."""

    code: str
    title: str
    advisory: bool
    doc: str
    found_in: str
    silent_in: str


AnyRule = Rule | IgnoreRule

_MAX_CODE = 80
"""Longer than any code; comparing costs the square of the length."""

IGNORE_WITHOUT_REASON = IgnoreRule(
    code="ignore-without-reason",
    title="a violation is ignored and nobody says why",
    advisory=False,
    doc="""A violation is ignored and nobody says why.

    `# forkpoint: ignore[code]` without words after it. Whoever reads the line next cannot tell a considered exception
    from a hurried one. The violation it names stays ignored.

    Fix
        Say why ranks cannot part here, in a few words after the bracket.
    """,
    found_in="if rank == 0:  # forkpoint: ignore[collective-under-branch]\n    dist.barrier()\n",
    silent_in="if rank == 0:  # forkpoint: ignore[collective-under-branch] a group of one\n    dist.barrier(alone)\n",
)
UNUSED_IGNORE = IgnoreRule(
    code="unused-ignore",
    title="an ignore that ignores nothing",
    advisory=True,
    doc="""An ignore that ignores nothing.

    `# forkpoint: ignore[code] reason` where that rule finds nothing: the code was repaired, or the comment stands on
    another line. It would hide the next violation that is written there. Only rules that ran are judged.

    Fix
        Remove the comment, or move it to the line that the violation names.
    """,
    found_in="x = 1  # forkpoint: ignore[ignore-without-reason] nothing to ignore here\n",
    silent_in="x = 1\n",
)
IGNORE_RULES = (IGNORE_WITHOUT_REASON, UNUSED_IGNORE)


def all_rules() -> tuple[AnyRule, ...]:
    return (*rules.RULES, *IGNORE_RULES)


def rule_named(code: str) -> AnyRule | None:
    return next((rule for rule in all_rules() if rule.code == code), None)


def near_codes(text: str) -> list[str]:
    """Codes spelled nearly like it, the nearest first."""
    return get_close_matches(text[:_MAX_CODE], [rule.code for rule in all_rules()])


def nearest(name: str, names: Sequence[str]) -> str:
    """`; did you mean 'x'?`, or nothing where no name is near."""
    near = get_close_matches(name[:_MAX_CODE], names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def unknown_code(code: str) -> str | None:
    """What is wrong with a code, with the nearest one that exists."""
    codes = [rule.code for rule in all_rules()]
    return None if code in codes else f"no rule is called {code[:_MAX_CODE]!r}{nearest(code, codes)}"
