"""The same verdict with every text redacted."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

from forkpoint.model.verdict import Verdict

_T = TypeVar("_T")


def in_other_words(verdict: Verdict, redact: Callable[[str], str]) -> Verdict:
    return _told(verdict, redact)


def _told(value: _T, redact: Callable[[str], str]) -> _T:
    """Recurses through dataclasses, tuples and dicts. Enums are forkpoint's own words and stay."""
    said: object = value
    if type(value) is str:
        said = redact(value)
    elif isinstance(value, tuple):
        said = tuple(_told(item, redact) for item in cast("tuple[object, ...]", value))
    elif isinstance(value, dict):
        said = {_told(k, redact): _told(v, redact) for k, v in cast("dict[object, object]", value).items()}
    elif is_dataclass(value) and not isinstance(value, type):
        changed = {field.name: _told(getattr(value, field.name), redact) for field in fields(value) if field.init}
        said = replace(cast("Any", value), **changed)
    return cast("_T", said)
