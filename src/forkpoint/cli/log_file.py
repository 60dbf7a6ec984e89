"""`--log-level`: writes a log for bug reports. Of the evidence it contains only file names."""

import logging
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

from forkpoint import __version__
from forkpoint.errors import UsageError

_FORMAT = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s"


def open_log(level: str, file: str, argv: Sequence[str]) -> None:
    """Makes all `forkpoint` loggers write to the file. Raises UsageError."""
    try:
        handler = logging.FileHandler(Path(file), encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise UsageError(f"--log-file {file}: cannot be written ({error.strerror})") from error
    handler.setFormatter(logging.Formatter(_FORMAT, "%Y-%m-%dT%H:%M:%S"))
    logger = logging.getLogger("forkpoint")
    logger.setLevel(level.upper())
    logger.addHandler(handler)
    logger.info("forkpoint %s, Python %s on %s", __version__, sys.version.split()[0], platform.platform())
    logger.info("arguments: %s", list(argv))
