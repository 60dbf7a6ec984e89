"""Which file system holds a path, from /proc/PID/mountinfo."""

import re
from dataclasses import dataclass

_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    point: str
    kind: str
    root: str
    """What of the file system is mounted there: a folder of a volume may be."""


def mount_of(path: str, mountinfo: str) -> Mount:
    """Of two mounted at one place, the later hides the earlier."""
    found = Mount("/", "unknown", "/")
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        parts = fields.split()
        if len(parts) < 5 or not rest:
            continue
        root, point = (_OCTAL.sub(lambda octal: chr(int(octal[1], 8)), part) for part in parts[3:5])
        if len(point) >= len(found.point) and (path == point or path.startswith(point.rstrip("/") + "/")):
            found = Mount(point, rest.split()[0], root)
    return found
