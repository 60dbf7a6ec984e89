"""Known library functions, read from `apis.toml`."""

import tomllib
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any


class ApiKind(StrEnum):
    COLLECTIVE = "collective"
    P2P = "p2p"
    SETUP = "setup"
    TEARDOWN = "teardown"
    IMPLICIT = "implicit"
    """A forward or backward pass of a wrapped model."""


class Origin(StrEnum):
    """Why a value can differ by rank."""

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
    """How certain it is that the value differs in some run."""

    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"


@dataclass(frozen=True, slots=True)
class Api:
    """A call that communicates."""

    op: str
    kind: ApiKind
    made_equal: int | str = ""
    """What is the same on all ranks afterwards: the position of an argument, or `result`."""


@dataclass(frozen=True, slots=True)
class ValueSource:
    origin: Origin
    strength: Strength
    text: str
    calls: frozenset[str]
    methods: frozenset[str]
    environment: frozenset[str]
    receiver: tuple[str, ...]
    unless_equal: bool


@dataclass(frozen=True, slots=True)
class MethodApi:
    api: Api
    receiver: tuple[str, ...]
    """One of these words must be in the receiver's name; empty if the method's name is enough."""


@dataclass(frozen=True, slots=True)
class Apis:
    modules: tuple[str, ...]
    distinct: frozenset[str]
    functions: dict[str, Api]
    methods: dict[str, MethodApi]
    wrappers: frozenset[str]
    constructors: frozenset[str]
    metrics: frozenset[str]
    distributed: tuple[str, ...]
    sources: tuple[ValueSource, ...]
    words: dict[str, frozenset[str]]


@cache
def known_apis() -> Apis:
    table = tomllib.loads(files("forkpoint.source").joinpath("apis.toml").read_text("utf-8"))
    functions = {
        name: Api(name, ApiKind(kind), made_equal)
        for kind, named in table["functions"].items()
        for name, made_equal in named.items()
    }
    methods = {
        name: MethodApi(Api(name, ApiKind.COLLECTIVE, m.get("made_equal", "")), tuple(m.get("receiver", ())))
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


def _source(table: dict[str, Any]) -> ValueSource:
    return ValueSource(
        origin=Origin(table["origin"]),
        strength=Strength(table["strength"]),
        text=table["text"],
        calls=frozenset(table.get("calls", ())),
        methods=frozenset(table.get("methods", ())),
        environment=frozenset(table.get("environment", ())),
        receiver=tuple(table.get("receiver", ())),
        unless_equal=table.get("unless_equal", False),
    )
