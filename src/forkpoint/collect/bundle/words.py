"""Every text in a verdict, in words that may leave: the same verdict with other names."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

from forkpoint.model.verdict import Verdict

_T = TypeVar("_T")


def in_other_words(verdict: Verdict, redact: Callable[[str], str]) -> Verdict:
    return _told(verdict, redact)


def _told(value: _T, redact: Callable[[str], str]) -> _T:
    """Down through dataclasses, tuples and dicts. Enums are texts as well, but forkpoint's own."""
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
