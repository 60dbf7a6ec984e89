"""How gloo cuts a collective into messages: their lengths tell which call a message can belong to.

Read in gloo's source (`allreduce.cc`, `allgather.cc`, `allgatherv.cc`, `broadcast.cc`). A call of another kind, or of a
type whose size is not known here, has no lengths: nothing is then said of it.
"""

from math import prod

from forkpoint.model.op import Signature
from forkpoint.model.tokens import SIZES_FREE, numel

_LARGEST_SEGMENT = 1 << 20
_ELEMENT_BYTES = {
    "Byte": 1, "Char": 1, "Bool": 1, "Short": 2, "Half": 2, "BFloat16": 2, "Int": 4, "Float": 4,
    "Long": 8, "Double": 8,
}  # fmt: skip
_LARGEST_ELEMENT = 16


def message_lengths(signature: Signature, members: int) -> frozenset[int]:
    """Bytes of each message that a member sends or waits for."""
    element = _ELEMENT_BYTES.get(signature.input_dtypes[0]) if len(signature.input_dtypes) == 1 else None
    if element is None or members < 2 or signature.lib != "gloo":
        return frozenset()
    sent = element * numel(signature.input_sizes)
    match signature.op:
        case "all_reduce":
            return _ring(sent, element, members)
        case "all_gather" | "_all_gather_base":
            return _gathered(signature, sent, element)
        case "broadcast":
            return frozenset({sent})
        case _:
            return frozenset()


def may_send(signature: Signature, length: int) -> bool:
    """Whether a message of this length may be of the call, however many members its group has."""
    element = max((_ELEMENT_BYTES.get(t, _LARGEST_ELEMENT) for t in signature.input_dtypes), default=_LARGEST_ELEMENT)
    most = element * max(numel(signature.input_sizes), numel(signature.output_sizes))
    return signature.op in SIZES_FREE or length <= most


def _ring(total: int, element: int, members: int) -> frozenset[int]:
    """Two segments or more for each member, whole elements in each; the last is what is left."""
    largest = element * max(1, _LARGEST_SEGMENT // element)
    segments = _up(max(-(-total // largest), 2 * members), members)
    segment = _up(-(-total // segments), element)
    return frozenset({min(segment, total), total % segment if segment else 0}) - {0}


def _gathered(signature: Signature, sent: int, element: int) -> frozenset[int]:
    """In two halves; whole where members give different amounts."""
    given = {prod(size) * element for size in signature.output_sizes} if len(signature.output_sizes) > 1 else {sent}
    return frozenset(given if len(given) > 1 else {sent // 2, sent - sent // 2}) - {0}


def _up(number: int, step: int) -> int:
    return -(-number // step) * step
