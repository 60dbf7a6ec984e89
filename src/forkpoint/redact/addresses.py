"""Network addresses: IPv4, IPv6, MAC, InfiniBand GUIDs. Loopback and `0.0.0.0` say nothing about a site and stay.

Versions of four numbers (`cuDNN 9.10.2.21`), times, PCI bus ids and C++ names (`c10d::`) look like addresses and are none.
"""

import re
from enum import Enum, auto
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from forkpoint.redact.lines import on_lines
from forkpoint.redact.names import Names

_HEX4 = "[0-9a-fA-F]{4}"
_HEX2 = "[0-9a-fA-F]{2}"
_IPV4_HINT = re.compile(r"\.\d{1,3}\.\d{1,3}\.\d")
_IPV4 = re.compile(r"(?<![\w.])\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?!\w|\.\d)")
_COLONS_HINT = re.compile(
    rf":(?:(?<=[23fF][0-9a-fA-F]{{3}}:)[0-9a-fA-F]{{0,4}}:|{_HEX2}:{_HEX2}:{_HEX2}:{_HEX2}:|{_HEX4}:{_HEX4}:{_HEX4})"
)
_MAC = re.compile(rf"(?<![\w:.-]){_HEX2}(?::{_HEX2}){{5}}(?![\w:-])")
_GUID = re.compile(rf"(?<![\w:.-]){_HEX4}(?::{_HEX4}){{3}}(?![\w:])")
# Only what is routed or local to a link: `c10d::`, `a::b` are names.
_IPV6 = re.compile(
    r"(?<![\w:.])(?:[23][0-9a-fA-F]{3}|[fF][cdeCDE][0-9a-fA-F]{2}):[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){1,6}(?![\w:]|\.\d)"
)
_GUID_HINT = re.compile(r"0x[0-9a-fA-F]{16}")
_GUID_SAID = re.compile(r"(?<=[gG][uU][iI][dD])(\W{1,4})0x([0-9a-fA-F]{16})\b")
_VERSION = re.compile(r"(?i:version|release|cudnn|cuda|nccl|driver|torch|==)[^,;\s]{0,12}\s?[^,;\s]{0,4}\Z")


def redact_addresses(text: str, names: Names) -> str:
    def with_colons(line: str) -> str:
        line = _IPV6.sub(lambda m: _ipv6(m, names), line)
        line = _MAC.sub(lambda m: names.pseudonym("mac", m[0].lower()), line)
        return _GUID.sub(lambda m: names.pseudonym("guid", m[0].lower().replace(":", "")), line)

    text = on_lines(_IPV4_HINT, text, lambda line: _IPV4.sub(lambda m: _ipv4(m, names), line))
    text = on_lines(_COLONS_HINT, text, with_colons)
    return on_lines(
        _GUID_HINT, text, lambda line: _GUID_SAID.sub(lambda m: m[1] + names.pseudonym("guid", m[2].lower()), line)
    )


def _ipv4(match: re.Match[str], names: Names) -> str:
    reach = _reach(match[0])
    if reach is _Reach.NOWHERE or (reach is _Reach.GLOBAL and _follows_version(match)):
        return match[0]
    return names.pseudonym("ip", match[0])


class _Reach(Enum):
    NOWHERE = auto()
    """No address, or one that is the same on every machine."""
    PRIVATE = auto()
    GLOBAL = auto()


@lru_cache(maxsize=4096)
def _reach(text: str) -> _Reach:
    """Kept, since a log names the same few addresses over and over."""
    try:
        address = IPv4Address(text)
    except AddressValueError:
        return _Reach.NOWHERE
    if address.is_loopback or address.packed[0] in (0, 255):
        return _Reach.NOWHERE
    return _Reach.GLOBAL if address.is_global else _Reach.PRIVATE


def _follows_version(match: re.Match[str]) -> bool:
    """Only private addresses: others may be version numbers."""
    return _VERSION.search(match.string, max(0, match.start() - 32), match.start()) is not None


def _ipv6(match: re.Match[str], names: Names) -> str:
    try:
        return names.pseudonym("ip", str(IPv6Address(match[0])))
    except AddressValueError:
        return match[0]
