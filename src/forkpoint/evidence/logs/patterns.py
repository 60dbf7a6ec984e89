"""The patterns of `patterns.toml`, compiled once, when the first log is read."""

import re
import tomllib
from functools import cache
from importlib import resources
from typing import Any

from msgspec import Struct

from forkpoint.model.log import LogKind

TRACEBACK = "Traceback (most recent call last):"


class Pattern(Struct, frozen=True):
    name: str
    kind: LogKind
    literals: tuple[str, ...]
    """The line contains at least one of them."""
    scan: tuple[str, ...]
    """Strings by which a log is searched for such lines. Empty: the line has a meaning only inside a block."""
    regex: re.Pattern[str]
    versions: str
    says: str
    of_host: bool
    """About a machine or a job, not about the rank in whose log it is."""
    opens: str | None
    """The kind of block that begins with this line."""

    def find(self, message: str) -> re.Match[str] | None:
        for literal in self.literals:
            if literal in message:
                return self.regex.search(message)
        return None


@cache
def patterns() -> tuple[Pattern, ...]:
    """All patterns, specific ones before general ones."""
    data = _data()
    return tuple(_pattern(entry, data["macros"]) for entry in data["pattern"])


@cache
def anchors() -> tuple[bytes, ...]:
    """A few short strings; every scan literal contains one of them."""
    return tuple(text.encode() for text in _data()["anchors"])


@cache
def scan_literals() -> tuple[bytes, ...]:
    """The strings that a log is searched for, without those that contain another one."""
    every = {literal for pattern in patterns() for literal in pattern.scan} | {TRACEBACK}
    least = {literal for literal in every if not any(other in literal for other in every - {literal})}
    return tuple(sorted(literal.encode() for literal in least))


def match_line(message: str) -> tuple[Pattern, re.Match[str]] | None:
    """The first pattern that matches a message without its prefixes."""
    for pattern in patterns():
        match = pattern.find(message)
        if match:
            return pattern, match
    return None


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads(resources.files(__name__.rpartition(".")[0]).joinpath("patterns.toml").read_text("utf-8"))


def _pattern(entry: dict[str, Any], macros: dict[str, str]) -> Pattern:
    regex: str = entry["regex"]
    for name, text in macros.items():
        regex = regex.replace("{" + name + "}", text)
    return Pattern(
        name=entry["name"],
        kind=LogKind(entry["kind"]),
        literals=tuple(entry["literals"]),
        scan=tuple(entry.get("scan", entry["literals"])),
        regex=re.compile(regex),
        versions=entry["versions"],
        says=entry["says"],
        of_host=entry.get("of") == "host",
        opens=entry.get("opens"),
    )
