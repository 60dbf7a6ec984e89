"""Find the earliest point where the ranks of a distributed training job stopped agreeing.

>>> import forkpoint
>>> verdict = forkpoint.diagnose("dumps/", source="src/")  # doctest: +SKIP
>>> print(verdict.headline)  # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forkpoint.api import Verdict, diagnose, read
    from forkpoint.errors import ForkpointError
    from forkpoint.model.capture import Capture

__version__ = "0.1.0"
__all__ = ["Capture", "ForkpointError", "Verdict", "__version__", "diagnose", "read"]

# Resolved on first use: `forkpoint --help` must not pay for numpy.
_HOME = {
    "Capture": "forkpoint.model.capture",
    "ForkpointError": "forkpoint.errors",
    "Verdict": "forkpoint.api",
    "diagnose": "forkpoint.api",
    "read": "forkpoint.api",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{_instead(name)}")
    return getattr(import_module(_HOME[name]), name)


_COMMANDS = frozenset({"attach", "collect", "demo", "doctor", "lint", "rehearse", "run", "serve", "watch"})
_MEANT = {"analyze": "diagnose", "analyse": "diagnose", "load": "read", "open": "read", "verdict": "diagnose"}


def _instead(name: str) -> str:
    if name in _COMMANDS:
        return f"; `forkpoint {name}` is a command of the shell, and forkpoint.diagnose reads what it keeps"
    if name == "explain":
        return "; a verdict has explain(), and `forkpoint explain CODE` is a command of the shell"
    from difflib import get_close_matches  # noqa: PLC0415 - only for a misspelling

    near = _MEANT.get(name) or next(iter(get_close_matches(name, __all__, n=1)), None)
    return f"; did you mean forkpoint.{near}?" if near else ""


def __dir__() -> list[str]:
    return sorted(__all__)
