"""Ops by number, with the letters that fit into a cell."""

from forkpoint.model.picture import OpName

MAX_OPS = 254
"""One byte per column: 254 is `other`, 255 no op at all."""
_OTHER = OpName("other", "??")
_LETTERS = {
    "all_reduce": "AR",
    "allreduce_coalesced": "AR",
    "all_reduce_barrier": "BR",
    "barrier": "BR",
    "all_gather": "AG",
    "_all_gather_base": "AG",
    "all_gather_into_tensor_coalesced": "AG",
    "reduce_scatter": "RS",
    "_reduce_scatter_base": "RS",
    "reduce_scatter_tensor_coalesced": "RS",
    "broadcast": "BC",
    "_broadcast_oop": "BC",
    "reduce": "RD",
    "_reduce_oop": "RD",
    "gather": "GA",
    "scatter": "SC",
    "all_to_all": "A2A",
    "all_to_all_single": "A2A",
    "all_to_allv": "A2A",
    "send": "SD",
    "recv": "RV",
    "coalesced": "CO",
}


def letters_of(op: str) -> str:
    """The first two letters, where nobody gave it better ones."""
    known = _LETTERS.get(op)
    return known or "".join(c for c in op if c.isascii() and c.isalnum())[:2].upper() or "??"


class OpNames:
    """Numbers names in the order of first use."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, op: str) -> int:
        if op not in self._numbers and len(self._numbers) >= MAX_OPS:
            return MAX_OPS
        return self._numbers.setdefault(op, len(self._numbers))

    def names(self) -> tuple[OpName, ...]:
        named = tuple(OpName(op, letters_of(op)) for op in self._numbers)
        return (*named, _OTHER) if len(named) == MAX_OPS else named
