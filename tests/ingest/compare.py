"""What two ways of reading a file say about it, in a form that can be compared."""

from collections.abc import Callable

import numpy as np

from forkpoint.errors import InputError
from forkpoint.traces.columns import DumpColumns
from forkpoint.traces.dump import read_pickle


def as_values(columns: DumpColumns) -> dict[str, object]:
    found = {name: getattr(columns, name) for name in columns.__struct_fields__}
    return {
        name: (str(value.dtype), value.tolist()) if isinstance(value, np.ndarray) else value
        for name, value in found.items()
    }


def outcome(read: Callable[[], DumpColumns]) -> object:
    """The columns, or how they were refused."""
    try:
        return as_values(read())
    except InputError as error:
        return type(error).__name__, str(error)


def both_ways(data: bytes) -> tuple[object, object]:
    """With layouts, and by the machine alone."""
    return outcome(lambda: read_pickle(data, fast=True)), outcome(lambda: read_pickle(data, fast=False))
