"""Which algorithm and protocol NCCL logs for a collective (NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=TUNING)."""

import re

_CHOICE = re.compile(r"NCCL INFO (\w+): \d+ Bytes -> Algo (\w+) proto (\w+)")
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")
"""By the numbers that versions before 2.23 print."""


def read_choices(text: str) -> tuple[str, ...]:
    """`RING/LL` and the like, each once, in the order of the log. Only the first member of a communicator prints them."""
    found = (f"{_word(algo, _ALGORITHMS)}/{_word(proto, _PROTOCOLS)}" for _, algo, proto in _CHOICE.findall(text))
    return tuple(dict.fromkeys(found))


def _word(told: str, names: tuple[str, ...]) -> str:
    return names[int(told)] if told.isdecimal() and int(told) < len(names) else told
