"""Values at which torch raises, or which NCCL ignores."""

from functools import cache

from forkpoint.kb.entry import EntryKind
from forkpoint.kb.load import entries
from forkpoint.launch_env.recorder import parse_bool, parse_number

_WORDS = {
    "TORCH_DISTRIBUTED_DEBUG": ("OFF", "INFO", "DETAIL"),
    "NCCL_DEBUG": ("VERSION", "WARN", "INFO", "ABORT", "TRACE"),
    "TORCH_CPP_LOG_LEVEL": ("INFO", "WARNING", "ERROR", "FATAL", "0", "1", "2", "3"),
}
_NUMBERS = ("entries", "milliseconds", "seconds")


def has_known_values(name: str) -> bool:
    return name in _WORDS or _unit(name) in ("bool", *_NUMBERS)


def wrong_value(name: str, value: str) -> str | None:
    """What is wrong with it; ends a sentence that begins with the value. None if it is valid."""
    if name in _WORDS:
        return None if value.upper() in _WORDS[name] else f"none of {', '.join(_WORDS[name])}"
    unit = _unit(name)
    if unit == "bool" and parse_bool(value) is None:
        return "neither yes nor no (1, 0, true, false)"
    if unit in _NUMBERS and parse_number(value) is None:
        return "not a whole number"
    return None


def _unit(name: str) -> str:
    return _units().get(name, "")


@cache
def _units() -> dict[str, str]:
    """Of torch's own switches. NCCL parses its variables otherwise."""
    facts = {name: dict(e.facts) for e in entries(EntryKind.VARIABLE) for name in (*e.aliases, e.code)}
    return {name: fact.get("unit", "") for name, fact in facts.items() if fact.get("read by") == "PyTorch"}
