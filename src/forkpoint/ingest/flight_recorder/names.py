"""Names as recorders write them: element types, states, lists of ranks as text."""

import re
from typing import Final

STATES: Final = {"scheduled": 0, "started": 1, "completed": 2}
P2P_OPS: Final = frozenset({"send", "recv"})

_RANKS = re.compile(r"\[ *+([0-9]{1,9} *+(?:, *+[0-9]{1,9} *+)*+)?\]")

# c10::ScalarType in the order of its enum: nightlies before schema 2.1 wrote the number.
_SCALAR_TYPES: Final = (
    "Byte", "Char", "Short", "Int", "Long", "Half", "Float", "Double", "ComplexHalf", "ComplexFloat", "ComplexDouble",
    "Bool", "QInt8", "QUInt8", "QInt32", "BFloat16",
)  # fmt: skip

_WORTH_KEEPING: Final = range(256, 2 << 20)
"""Length of rank lists that are worth keeping: long ones, which all dumps of a job repeat."""
_KEPT_LISTS: Final = 16
_kept: dict[str, tuple[int, ...]] = {}


def dtype_name(number: int) -> str:
    return _SCALAR_TYPES[number] if 0 <= number < len(_SCALAR_TYPES) else str(number)


def parse_ranks(text: str) -> tuple[int, ...] | None:
    """The ranks in "[0, 1, 2]"; None when the text is no such list."""
    ranks = _kept.get(text)
    if ranks is not None:
        return ranks
    found = _RANKS.fullmatch(text)
    if found is None:
        return None
    ranks = tuple(map(int, found[1].split(","))) if found[1] else ()
    if len(text) in _WORTH_KEEPING:
        if len(_kept) >= _KEPT_LISTS:
            _kept.clear()
        _kept[text] = ranks
    return ranks
