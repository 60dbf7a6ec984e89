"""A process may take its groups down and make them again, to resume: the recorder then holds both, under the same names
and with the same sequence numbers. What counts is the last; an op of the first world is no peer of one of the second.
"""

from dataclasses import fields, replace

import numpy as np

from forkpoint.ingest.flight_recorder.columns import DumpColumns
from forkpoint.ingest.flight_recorder.table import only_used

_DEFAULT = "default_pg"


def last_generation(columns: DumpColumns) -> DumpColumns:
    """Without ops of groups that were made again later. `pg_id` counts the groups that this process made."""
    count = len(columns.groups)
    newest = np.full(count, -1, dtype=np.int64)
    np.maximum.at(newest, columns.group, columns.pg_id)
    keep = columns.pg_id == newest[columns.group]
    if keep.all():
        return columns
    made_again = set(columns.group[~keep].tolist())
    default = [g for g in made_again if columns.groups[g][1] == _DEFAULT]
    if default:  # with the default group every other was taken down, too
        keep &= columns.pg_id >= newest[default].max()
    rows = {f.name: getattr(columns, f.name)[keep] for f in fields(columns) if _is_column(columns, f.name)}
    kept = replace(columns, **rows)
    group, groups = only_used(kept.group, kept.groups)
    return replace(kept, group=group, groups=groups)


def _is_column(columns: DumpColumns, name: str) -> bool:
    return isinstance(getattr(columns, name), np.ndarray)
