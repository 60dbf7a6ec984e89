"""Variables that nothing reads: names that never existed, are misspelt, or are newer than this torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from forkpoint.kb.entry import Entry, EntryKind
from forkpoint.kb.load import entries
from forkpoint.launch_env.release import Release

_NCCL_NAMES = Path(__file__).parent / "nccl_names.txt"

_OF_TORCH = frozenset(
    {
        # Read by torch and without an entry in the knowledge base: they do not bear on hangs.
        "TORCHELASTIC_ETCD_BINARY_PATH",
        "TORCHELASTIC_TIMER_FILE",
        "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT",
        "TORCH_DISTRIBUTED_COMPILE_ON_ONE_RANK",
        "TORCH_NCCL_ABORT_IN_DESTROY_PG",
        "TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING",
    }
)
_CLOSED_FAMILIES = ("TORCH_NCCL_", "TORCH_FR_")
"""Only torch reads names that begin like this, and all of them are known: nothing reads any other."""
_OPEN_FAMILIES = ("NCCL_", "TORCHELASTIC_", "TORCH_DISTRIBUTED_", "P2P_LEVEL")
"""Plug-ins and clusters add names of their own here: only one spelled almost like a known name is a mistake."""
FAMILIES = (*_CLOSED_FAMILIES, *_OPEN_FAMILIES)
_ALMOST = 0.88
_NEAR = 0.75
SINCE = {
    "TORCH_FR_BUFFER_SIZE": (Release(2, 8), "TORCH_NCCL_TRACE_BUFFER_SIZE"),
    "TORCH_FR_DUMP_TEMP_FILE": (Release(2, 8), "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"),
    "TORCH_FR_CPP_STACK": (Release(2, 8), "TORCH_NCCL_TRACE_CPP_STACK"),
    "TORCH_FR_DUMP_ON_TIMEOUT": (Release(2, 14), "TORCH_NCCL_DUMP_ON_TIMEOUT"),
    "TORCH_FR_DUMP_DYNAMIC_FILE_NAME": (Release(2, 10), None),
}
"""Names of the recorder that older releases do not read, with the name that these do."""


@dataclass(frozen=True, slots=True)
class Unread:
    name: str
    why: str
    instead: str
    """What to set or do; ends a sentence."""


def unread(name: str, environ: Mapping[str, str], release: Release | None) -> Unread | None:
    """Why this variable does nothing; None where it is read, or belongs to something we do not know."""
    entry = _entries().get(name)
    if entry is not None and dict(entry.facts).get("read by", "").startswith("nothing"):
        return Unread(name, f"{entry.title}: nothing reads it", entry.do[0] if entry.do else "unset it")
    if name in known_names():
        return _too_new(name, environ, release)
    if not name.startswith(FAMILIES):
        return None
    return _misspelt(name)


def _too_new(name: str, environ: Mapping[str, str], release: Release | None) -> Unread | None:
    since, older = SINCE.get(name, (None, None))
    if since is None or release is None or release >= since or (older is not None and older in environ):
        return None
    return Unread(name, f"read from torch {since} on; this is {release}", f"set {older}" if older else "unset it")


def _misspelt(name: str) -> Unread | None:
    from difflib import get_close_matches  # noqa: PLC0415 - only an unknown name pays for it

    closed = name.startswith(_CLOSED_FAMILIES)
    near = get_close_matches(name, known_names(), n=1, cutoff=_NEAR if closed else _ALMOST)
    if near:
        return Unread(name, f"no such variable; did you mean {near[0]}?", f"set {near[0]} instead")
    if closed:
        return Unread(name, "no release of torch up to 2.14 reads it", "unset it")
    return None


@cache
def known_names() -> frozenset[str]:
    """What NCCL, torch and torchrun read, in any release."""
    nccl = (line for line in _NCCL_NAMES.read_text(encoding="ascii").splitlines() if not line.startswith("#"))
    real = (name for name, e in _entries().items() if not dict(e.facts).get("read by", "").startswith("nothing"))
    return frozenset((*nccl, *real, *_OF_TORCH))


@cache
def _entries() -> dict[str, Entry]:
    """By every spelling that is a variable's name."""
    return {
        name: entry
        for entry in entries(EntryKind.VARIABLE)
        for name in (*entry.aliases, entry.code)
        if name.isupper() and " " not in name
    }
