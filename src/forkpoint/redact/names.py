"""What was replaced by what. Masks are forgotten, pseudonyms can be looked up on this machine."""

import re
from collections import Counter
from collections.abc import Iterable

PSEUDONYM = re.compile(r"(?:guid|host|ip|mac|mail|user)-[1-9][0-9]{0,8}")


class Names:
    """Pseudonyms in the order in which they were first needed: `host-1`, `host-2`."""

    def __init__(self) -> None:
        self._pseudonyms: dict[tuple[str, str], str] = {}
        self._last: Counter[str] = Counter()
        self._reserved: set[str] = set()
        self.counts: Counter[str] = Counter()
        """Replacements, by what was replaced."""

    def mask(self, what: str) -> str:
        self.counts[what] += 1
        return f"[masked-{what}]"

    def pseudonym(self, what: str, original: str) -> str:
        """The same for the same original. What already looks like one is left alone."""
        if PSEUDONYM.fullmatch(original):
            return original
        self.counts[what] += 1
        return self.give(what, original)

    def reserve(self, originals: Iterable[str]) -> None:
        """Originals that look like a pseudonym: left alone, and given to nobody else."""
        self._reserved.update(originals)

    def give(self, what: str, original: str) -> str:
        known = self._pseudonyms.get((what, original))
        if known is None:
            known = self._pseudonyms[what, original] = self._unused(what)
        return known

    def _unused(self, what: str) -> str:
        self._last[what] += 1
        while f"{what}-{self._last[what]}" in self._reserved:
            self._last[what] += 1
        return f"{what}-{self._last[what]}"

    @property
    def given(self) -> dict[tuple[str, str], str]:
        """By what it is and the original."""
        return self._pseudonyms
