"""Rules -> plain text and JSON: `forkpoint lint --list`, `forkpoint explain CODE`."""

import inspect
import json
import textwrap
from collections.abc import Sequence

from forkpoint.lint.catalogue import AnyRule

SCHEMA = "forkpoint.rules/1"


def render_list(rules: Sequence[AnyRule]) -> str:
    """One line per rule: its code, its title, and whether it is off by default."""
    column = max(len(rule.code) for rule in rules)
    return "\n".join(f"{rule.code:<{column}}  {rule.title}{' (advisory)' if rule.advisory else ''}" for rule in rules)


def render_rule(rule: AnyRule) -> str:
    """Everything about one rule."""
    default = "off by default (advisory)" if rule.advisory else "on by default"
    return "\n\n".join(
        [
            f"{rule.code}: {rule.title}\n  a rule of `forkpoint lint`, {default}",
            inspect.cleandoc(rule.doc),
            f"Finds something\n{_indented(rule.found_in)}",
            f"Finds nothing\n{_indented(rule.silent_in)}",
        ]
    )


def render_rules_json(rules: Sequence[AnyRule]) -> str:
    """One ASCII document, schema `forkpoint.rules/1`."""
    rows = [
        {
            "code": rule.code,
            "title": rule.title,
            "advisory": rule.advisory,
            "doc": inspect.cleandoc(rule.doc),
            "found_in": rule.found_in,
            "silent_in": rule.silent_in,
        }
        for rule in rules
    ]
    return json.dumps({"schema": SCHEMA, "rules": rows}, indent=2)


def _indented(source: str) -> str:
    return textwrap.indent(textwrap.dedent(source).strip(), "    ")
