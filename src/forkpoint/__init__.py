"""Find the earliest point where the ranks of a distributed training job stopped agreeing.

>>> import forkpoint
>>> verdict = forkpoint.diagnose(forkpoint.read(["dumps/"]))  # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forkpoint.errors import ForkpointError
    from forkpoint.ingest import read
    from forkpoint.model.capture import Capture
    from forkpoint.model.verdict import Verdict
    from forkpoint.pipeline import diagnose

__version__ = "0.1.0"
__all__ = ["Capture", "ForkpointError", "Verdict", "__version__", "diagnose", "read"]

# Resolved on first use: `forkpoint --help` must not pay for numpy.
_HOME = {
    "Capture": "forkpoint.model.capture",
    "ForkpointError": "forkpoint.errors",
    "Verdict": "forkpoint.model.verdict",
    "diagnose": "forkpoint.pipeline",
    "read": "forkpoint.ingest",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
