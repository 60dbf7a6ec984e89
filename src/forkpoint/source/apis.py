"""What known libraries do: read once from `apis.toml`."""

import tomllib
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any


class Kind(StrEnum):
    COLLECTIVE = "collective"
    P2P = "p2p"
    SETUP = "setup"
    TEARDOWN = "teardown"
    IMPLICIT = "implicit"
    """A forward or backward pass of a wrapped model."""


class Origin(StrEnum):
    """Where a value begins to differ by rank."""

    RANK = "rank"
    LOCAL_DATA = "local-data"
    EXCEPTION = "exception"
    ORDER = "order"
    TIME = "time"
    RANDOM = "random"
    MEMORY = "memory"
    FILES = "files"
    TIMING = "timing"


class Strength(StrEnum):
    """How sure it is that the value differs on some run."""

    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"


@dataclass(frozen=True, slots=True)
class Api:
    """A call that communicates."""

    op: str
    kind: Kind
    made_equal: int | str = ""
    """Position of the argument, or `result`, that is the same on all ranks afterwards."""


@dataclass(frozen=True, slots=True)
class Source:
    origin: Origin
    strength: Strength
    text: str
    calls: frozenset[str]
    methods: frozenset[str]
    environment: frozenset[str]
    receiver: tuple[str, ...]
    unless_equal: bool


@dataclass(frozen=True, slots=True)
class Method:
    api: Api
    receiver: tuple[str, ...]
    """Words of which one must be in the receiver's name; empty: the method's name says it all."""


@dataclass(frozen=True, slots=True)
class Apis:
    modules: tuple[str, ...]
    distinct: frozenset[str]
    functions: dict[str, Api]
    methods: dict[str, Method]
    wrappers: frozenset[str]
    constructors: frozenset[str]
    metrics: frozenset[str]
    distributed: tuple[str, ...]
    sources: tuple[Source, ...]
    words: dict[str, frozenset[str]]


@cache
def known_apis() -> Apis:
    table = tomllib.loads(files("forkpoint.source").joinpath("apis.toml").read_text("utf-8"))
    functions = {
        name: Api(name, Kind(kind), made_equal)
        for kind, named in table["functions"].items()
        for name, made_equal in named.items()
    }
    methods = {
        name: Method(Api(name, Kind.COLLECTIVE, m.get("made_equal", "")), tuple(m.get("receiver", ())))
        for m in table["method"]
        for name in m["names"]
    }
    wrappers = table["wrappers"]
    return Apis(
        modules=tuple(table["modules"]),
        distinct=frozenset(table["distinct"]),
        functions=functions,
        methods=methods,
        wrappers=frozenset(wrappers["names"]),
        constructors=frozenset(wrappers["communicating_constructors"]),
        metrics=frozenset(wrappers["metric_bases"]),
        distributed=tuple(table["distributed"]["modules"]),
        sources=tuple(_source(s) for s in table["source"]),
        words={name: frozenset(words) for name, words in table["words"].items()},
    )


def _source(table: dict[str, Any]) -> Source:
    return Source(
        origin=Origin(table["origin"]),
        strength=Strength(table["strength"]),
        text=table["text"],
        calls=frozenset(table.get("calls", ())),
        methods=frozenset(table.get("methods", ())),
        environment=frozenset(table.get("environment", ())),
        receiver=tuple(table.get("receiver", ())),
        unless_equal=table.get("unless_equal", False),
    )
