"""PCI addresses, which every program prints another way: `0000:3b:00.0`, `PCI:0000:3b:00`, `00000000:3B:00.0`, `3b000`."""

import re

BUS = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?(?![0-9a-fA-F.:]\w)"
"""As the kernel and the driver print it; the driver leaves the function out."""

_PARTS = re.compile(r"(?:PCI:)?([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.([0-7]))?")
_DIGITS = re.compile(r"[0-9a-fA-F]{1,13}")
_DEVICES = 32
_FUNCTIONS = 8


def normal_bus(printed: str) -> str | None:
    """The address as `0000:3b:00.0`; None where the text is not an address. A GPU's function is 0.

    NCCL's `busId` is one number: the digits of domain, bus, device and function without what parts them.
    """
    parts = _PARTS.fullmatch(printed)
    if parts:
        domain, bus, device = (int(part, 16) for part in parts.group(1, 2, 3))
        return _write(domain, bus, device, int(parts[4] or 0))
    if not _DIGITS.fullmatch(printed):
        return None
    number = int(printed, 16)
    return _write(number >> 20, number >> 12 & 0xFF, number >> 4 & 0xFF, number & 0xF)


def _write(domain: int, bus: int, device: int, function: int) -> str | None:
    if device >= _DEVICES or function >= _FUNCTIONS:
        return None
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function}"
