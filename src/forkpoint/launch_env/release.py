"""Releases of torch, for settings that depend on them."""

import re
from typing import NamedTuple

_VERSION = re.compile(r"v?(?P<major>\d{1,2})\.(?P<minor>\d{1,3})(?!\d)")


class Release(NamedTuple):
    """Compared as numbers: 2.10 comes after 2.9."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


def parse_release(version: str) -> Release | None:
    """`2.13.0+cpu` is 2.13; None if it is not a version."""
    match = _VERSION.match(version.strip())
    return Release(int(match["major"]), int(match["minor"])) if match else None
