"""What the server says on standard error. Standard output belongs to the protocol."""

import logging

from forkpoint.report.escape import escape

LOG = logging.getLogger("forkpoint.mcp")


class _Escaped(logging.Formatter):
    """Peers choose host names and tool names, evidence chooses messages: none of them acts on a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(f"forkpoint mcp: {escape(line)}" for line in super().format(record).splitlines())


def log_to_stderr() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_Escaped("%(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
