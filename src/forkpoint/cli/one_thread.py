"""numpy without its threads: it makes one per core when it is imported, which takes longer than most diagnoses."""

import os

_SWITCHES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def import_numpy() -> None:
    """We multiply no matrices. The environment is as it was afterwards: programs that we start may."""
    unset = [name for name in _SWITCHES if name not in os.environ]
    os.environ.update(dict.fromkeys(unset, "1"))
    import numpy as np

    del np
    for name in unset:
        del os.environ[name]
