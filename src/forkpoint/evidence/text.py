"""Cleans and shortens untrusted text; and parses times as programs print them."""

import re
from datetime import UTC, datetime

from msgspec import Struct

# ---------------------------------------------------------------------------------------------------------------------
# Untrusted text: control characters removed, and shortened.

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_ANSI = re.compile(r"\x1b\[[0-9;:?]*[ -/]*[@-~]")
LIMIT = 300


def without_escapes(text: str) -> str:
    """Without terminal escape sequences, such as colours."""
    return _ANSI.sub("", text) if "\x1b" in text else text


def clean(text: str, limit: int = LIMIT) -> str:
    """One line without escapes or control characters, cut to `limit`."""
    text = _CONTROL.sub("", without_escapes(text)).replace("\n", " ").strip()
    return text if len(text) <= limit else text[: limit - 1] + "…"


# ---------------------------------------------------------------------------------------------------------------------
# Times as programs print them. Most are incomplete: the year or the time zone is missing.
#
#     1115 01:18:27               C++ lines (month times 100 plus day, so 105 is 5 January): no year, local time
#     E1115 01:18:27              torchrun's agent
#     2026-11-15 01:18:27         Python, NCCL; with `Z` or `+01:00` from journals
#     11-15 01:18:27              loggers of many programs: no year, local time
#     Nov 15 01:18:27             syslog: no year, local time
#     Sun Nov 15 01:18:27 2026    dmesg -T

ISO_TIME = r"\d{4}-\d\d-\d\d[T _]\d\d:\d\d:\d\d"
SYSLOG_TIME = r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d"
_TIME = re.compile(
    rf"\[[IWEFV](?P<c10>\d{{3,4}} \d\d:\d\d:\d\d)\.|(?P<iso>{ISO_TIME})"
    rf"|(?<![\w-])(?P<elastic>[IWE]\d{{4}} \d\d:\d\d:\d\d)\.\d|(?P<syslog>{SYSLOG_TIME})"
    r"|(?:^|[\s\[(|])(?P<short>\d\d-\d\d \d\d:\d\d:\d\d)"
)
_MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"
_STAMP = re.compile(
    r"(?:(?:(?P<iso>\d{4})-)?(?P<iso_month>\d\d)-(?P<iso_day>\d\d)[T _]"
    r"|(?:[A-Z][a-z]{2} )?(?P<name>[A-Z][a-z]{2}) {0,2}(?P<day>\d{1,2}) (?:(?P<early>\d{4}) )?"
    r"|(?P<glog>[IWEFV]?)(?P<number>\d{3,4}) )"
    r"(?P<h>\d\d):(?P<m>\d\d)(?::(?P<s>\d\d)(?: (?P<late>\d{4}))?)?(?P<zone>Z|[+-]\d\d:?\d\d)?"
)


def find_time(text: str) -> str | None:
    """The first timestamp, to the second."""
    found = _TIME.search(text)
    return clean(found[found.lastgroup or 0]) if found else None


class Stamp(Struct, frozen=True):
    year: int | None
    month: int
    day: int
    hour: int
    minute: int
    second: int | None
    """None: printed to the minute only."""
    zone: int | None
    """Seconds east of UTC; None: local time, wherever that is."""
    from_c10: bool

    def seconds(self, near: float) -> int | None:
        """Seconds since 1970, read as UTC. If no year is printed, the one closest to `near` is used."""
        around = datetime.fromtimestamp(near, UTC).year
        years = [self.year] if self.year is not None else [around - 1, around, around + 1]
        return min(
            (s for year in years if (s := self._in(year)) is not None), key=lambda s: abs(s - near), default=None
        )

    def _in(self, year: int) -> int | None:
        try:
            moment = datetime(year, self.month, self.day, self.hour, self.minute, self.second or 0, tzinfo=UTC)
        except ValueError:
            return None
        return int(moment.timestamp())


def read_stamp(printed: str) -> Stamp | None:
    found = _STAMP.match(printed)
    if found is None:
        return None
    number = int(found["number"] or 0)
    month = int(found["iso_month"] or 0) or number // 100 or _month(found["name"])
    day = int(found["iso_day"] or found["day"] or number % 100)
    year = found["iso"] or found["early"] or found["late"]
    return Stamp(
        year=int(year) if year else None,
        month=month,
        day=day,
        hour=int(found["h"]),
        minute=int(found["m"]),
        second=int(found["s"]) if found["s"] else None,
        zone=_zone(found["zone"]),
        from_c10=found["glog"] == "",
    )


def _month(name: str) -> int:
    """1 to 12; 0 for three letters that are not a month."""
    at = _MONTHS.find(name)
    return at // 4 + 1 if at % 4 == 0 else 0


def _zone(printed: str | None) -> int | None:
    if printed is None or printed == "Z":
        return None if printed is None else 0
    sign = -1 if printed[0] == "-" else 1
    return sign * (int(printed[1:3]) * 3600 + int(printed[-2:]) * 60)
