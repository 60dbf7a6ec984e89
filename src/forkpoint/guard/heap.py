"""Memory that a dump took, given back to the host.

Torch builds a dump of small pieces, 5 kB per recorded call, and frees them at once; glibc keeps the pages of a thread
that is not the main one, 11 MB with a ring buffer of 2,000. A guard that reads every few seconds need not hold them.
"""

import ctypes
from typing import Any, Final

_TRIM: Final[Any] = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""None where the C library is not glibc."""


def give_back() -> None:
    """One to four milliseconds, without the GIL."""
    if _TRIM is not None:
        _TRIM(0)
