"""Variables that a job script sets, read as text: shell, batch script, YAML, Dockerfile or Python. Nothing is run."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

_NAME = r"(?P<name>(?:NCCL|TORCH[A-Z]*|PYTORCH|RAY|PYTHON|CUDA)_?[A-Z0-9_]*|P2P_LEVEL|MASTER_ADDR|MASTER_PORT)"
_VALUE = r"(?P<value>[fr]?\"[^\"]*\"|[fr]?'[^']*'|[^\s,;#\"'\])}&|]*)"
_FORMS = (
    # NAME=value, in a shell, in --export=ALL,NAME=value, behind `env`, `-x` or Docker's ENV
    re.compile(rf"(?<![\w$\{{.-]){_NAME}=(?!=){_VALUE}"),
    # "NAME": "value"; NAME: value
    re.compile(rf"(?<![\w$\{{]){_NAME}[\"']?:\s*{_VALUE}"),
    # setenv NAME value; ENV NAME value
    re.compile(rf"(?:setenv\s+|^\s*ENV\s+){_NAME}\s+{_VALUE}"),
)
_PYTHON = re.compile(rf"(?:\[|setdefault\(|putenv\()[\"']{_NAME}[\"'](?:\]\s*=|,)\s*{_VALUE}")
"""os.environ["NAME"] = "value", or setdefault: what is not quoted there is an expression."""
_YAML_NAME = re.compile(rf"^\s*-?\s*name:\s*[\"']?{_NAME}[\"']?\s*(?:#.*)?$")
_YAML_VALUE = re.compile(rf"^\s*-?\s*value:\s*{_VALUE}")
_COMMENT = re.compile(r"(?:^|\s)#(?!SBATCH|PBS|BSUB).*$")
_QUOTES = ('"', "'")
_UNKNOWN = re.compile(r"[$`{]|%\(")
"""Marks of a value that is known only when the script runs."""


@dataclass(frozen=True, slots=True)
class Assignment:
    name: str
    value: str
    line: int
    is_known: bool
    """Otherwise the script computes the value."""


def assignments(lines: Sequence[str]) -> tuple[Assignment, ...]:
    """In the order of the script; of one that is set twice, both."""
    code = [_COMMENT.sub("", line) for line in lines]
    found = [each for number, line in enumerate(code, 1) for each in _in_line(line, number)]
    found += _yaml_pairs(code)
    return tuple(sorted(found, key=lambda each: each.line))


def _in_line(line: str, number: int) -> Iterator[Assignment]:
    for form in _FORMS:
        for match in form.finditer(line):
            yield _assignment(match["name"], match["value"], number)
    for match in _PYTHON.finditer(line):
        each = _assignment(match["name"], match["value"], number)
        yield each if match["value"][-1:] in _QUOTES else replace(each, is_known=False)


def _yaml_pairs(lines: Sequence[str]) -> Iterator[Assignment]:
    """`- name: NAME` with `value: ...` below it, as Kubernetes wants it."""
    for number, (line, below) in enumerate(pairwise(lines), 1):
        name, value = _YAML_NAME.match(line), _YAML_VALUE.match(below)
        if name and value:
            yield _assignment(name["name"], value["value"], number)


def _assignment(name: str, value: str, line: int) -> Assignment:
    quoted = value[-1:] in _QUOTES
    text = value.lstrip("fr")[1:-1] if quoted else value
    return Assignment(name, text, line, is_known=not _UNKNOWN.search(text))
