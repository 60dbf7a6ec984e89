"""Every rule finds what it documents, and leaves its near miss alone."""

import ast
import re
from pathlib import Path

from forkpoint.lint import Options, lint
from forkpoint.lint.catalogue import all_rules
from forkpoint.lint.edits import plan_changes, write_change
from forkpoint.lint.rule import LintRule, Violation
from forkpoint.lint.rules import RULES
from looping import for_each
from tests.lint.samples import program_of

every_rule = for_each("rule", RULES, ids=lambda rule: rule.code)


def violations_of(rule: LintRule, folder: Path, source: str) -> tuple[Violation, ...]:
    return lint(program_of(folder, source), Options(select=(rule.code,))).violations


@every_rule
def test_it_finds_something_in_its_example(rule: LintRule, tmp_path: Path) -> None:
    found = violations_of(rule, tmp_path, rule.found_in)

    assert {violation.rule for violation in found} == {rule.code}
    lines = rule.found_in.count("\n") + 1
    assert all(1 <= violation.line <= violation.end_line <= lines and violation.column >= 1 for violation in found)


@every_rule
def test_it_finds_nothing_in_its_near_miss(rule: LintRule, tmp_path: Path) -> None:
    assert violations_of(rule, tmp_path, rule.silent_in) == ()


@every_rule
def test_it_documents_itself(rule: LintRule) -> None:
    assert rule.doc.strip()
    assert rule.title
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.code)
    ast.parse(rule.found_in)
    ast.parse(rule.silent_in)


@every_rule
def test_what_it_offers_as_a_fix_is_python_in_which_it_finds_less(rule: LintRule, tmp_path: Path) -> None:
    program = program_of(tmp_path, rule.found_in)
    report = lint(program, Options(select=(rule.code,)))
    changes = plan_changes(report, program).changes
    for change in changes:
        write_change(change)

    if changes:
        repaired = (tmp_path / "train.py").read_text()
        ast.parse(repaired)
        assert len(violations_of(rule, tmp_path, repaired)) < len(report.violations)


def test_no_two_rules_have_the_same_code() -> None:
    codes = [rule.code for rule in all_rules()]

    assert len(set(codes)) == len(codes)
