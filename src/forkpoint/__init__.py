"""Find the earliest point where the ranks of a distributed training job stopped agreeing.

>>> import forkpoint
>>> verdict = forkpoint.diagnose(forkpoint.read(["dumps/"]))  # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forkpoint.errors import ForkpointError
    from forkpoint.evidence import read
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
    "read": "forkpoint.evidence",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in {"Verdict", "diagnose"}:
        _show_in_notebooks()
    return getattr(import_module(_HOME[name]), name)


def _show_in_notebooks() -> None:
    """A verdict as a cell's value is drawn. `model` may not know what renders it, so this door to it tells."""
    verdict, notebook = import_module("forkpoint.model.verdict"), import_module("forkpoint.report.notebook")
    verdict.Verdict._repr_html_ = notebook.render_snippet
