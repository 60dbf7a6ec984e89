"""All rule codes that `--select`, `ignore[...]` and `explain` accept."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from forkpoint.lint import rules
from forkpoint.lint.rule import LintRule


@dataclass(frozen=True, slots=True)
class IgnoreRule:
    """A rule about `ignore[...]` comments, checked after all other rules."""

    code: str
    title: str
    advisory: bool
    doc: str
    found_in: str
    silent_in: str


AnyRule = LintRule | IgnoreRule

_MAX_CODE = 80
"""Longer than any code. The cost of comparing grows with the square of the length."""

IGNORE_WITHOUT_REASON = IgnoreRule(
    code="ignore-without-reason",
    title="a violation is ignored without a reason",
    advisory=False,
    doc="""A violation is ignored without a reason.

    `# forkpoint: ignore[code]` without text after it. The next reader cannot tell a considered exception from a hurried
    one. The violation stays ignored.

    Fix
        After the bracket, say in a few words why ranks cannot diverge here.
    """,
    found_in="if rank == 0:  # forkpoint: ignore[collective-under-branch]\n    dist.barrier()\n",
    silent_in="if rank == 0:  # forkpoint: ignore[collective-under-branch] a group of one\n    dist.barrier(alone)\n",
)
UNUSED_IGNORE = IgnoreRule(
    code="unused-ignore",
    title="an ignore that has no effect",
    advisory=True,
    doc="""An ignore that has no effect.

    `# forkpoint: ignore[code] reason` where that rule finds nothing: the code was repaired, or the comment is on the wrong
    line. It would hide the next violation there. Only rules that ran are checked.

    Fix
        Remove the comment, or move it to the line of the violation.
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
    """Codes with a similar spelling, nearest first."""
    return get_close_matches(text[:_MAX_CODE], [rule.code for rule in all_rules()])


def nearest(name: str, names: Sequence[str]) -> str:
    """`; did you mean 'x'?`, or an empty string."""
    near = get_close_matches(name[:_MAX_CODE], names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def unknown_code(code: str) -> str | None:
    """An error message if no rule has this code."""
    codes = [rule.code for rule in all_rules()]
    return None if code in codes else f"there is no rule {code[:_MAX_CODE]!r}{nearest(code, codes)}"
