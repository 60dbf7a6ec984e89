"""What `import torch` calls in every process where forkpoint is installed (entry point `torch.backends`).

It does nothing unless FORKPOINT is set, and it never raises: torch would take that for a broken installation. In a
rehearsed job (`forkpoint rehearse`) it installs the hooks that disturb one rank instead.
"""

import os
import sys
import threading
import time

_EVERY_S = 0.2


def autoload() -> None:
    if "FORKPOINT_REHEARSE" in os.environ:
        _begin_rehearsal()
        return
    if "FORKPOINT" not in os.environ or "RANK" not in os.environ:
        return
    # torch is half imported here: the guard imports torch.distributed, so it waits until the job has imported it.
    threading.Thread(target=_start_when_ready, daemon=True, name="forkpoint-autoload").start()


def _start_when_ready() -> None:
    try:
        while not _has_process_group():
            time.sleep(_EVERY_S)
        from forkpoint.guard import start  # noqa: PLC0415 as said
        from forkpoint.guard.settings import read_settings  # noqa: PLC0415 as said

        settings = read_settings()
        if settings is not None:  # FORKPOINT may say "off"
            start(settings)
    except Exception as error:  # noqa: BLE001 whatever it is, training goes on
        sys.stderr.write(
            f"forkpoint guard: not started ({type(error).__name__}: {error}); training continues unwatched\n"
        )


def _begin_rehearsal() -> None:
    """At once: the hooks must be in place before the program runs. The guard starts when the process group is made."""
    try:
        from forkpoint.rehearse.inside.begin import begin  # noqa: PLC0415 as said

        begin()
    except Exception as error:  # noqa: BLE001 as above
        sys.stderr.write(f"forkpoint rehearse: this process is not rehearsed ({type(error).__name__}: {error})\n")


def _has_process_group() -> bool:
    distributed = sys.modules.get("torch.distributed")
    is_initialized = getattr(distributed, "is_initialized", None)  # absent while it is being imported
    return is_initialized is not None and is_initialized()
