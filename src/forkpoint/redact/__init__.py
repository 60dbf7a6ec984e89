"""Removes from text what must not leave the machine, and keeps it understandable.

Secrets are masked. Hosts, addresses and users get pseudonyms, always the same for the same name. Use one redactor per
capture: it knows the capture's hosts and users. `mask_secrets` keeps names, for readers who may know them.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Self

from forkpoint.model.capture import Capture
from forkpoint.redact.across import redact_across_lines, redact_key_lines
from forkpoint.redact.hidden import (
    ESCAPED_DIGITS,
    HIDING,
    PERCENT,
    UNSEEN,
    decode_percent,
    put_together,
    without_colours,
)
from forkpoint.redact.names import Hosts, Users, redact_addresses
from forkpoint.redact.rules import made_words, redact_ruled, without_secrets
from forkpoint.redact.secrets import Names, on_lines, redact_keyed, redact_secrets

__all__ = ["Redactor", "mask_secrets"]

_SECRETS = (redact_secrets, redact_keyed, redact_ruled)
_PIECE = 1 << 15
"""Characters per step, so that a find in one place does not slow down the rest of a long text."""


class Redactor:
    """Numbers pseudonyms in the order of their originals for names in the capture, then in the order of appearance."""

    def __init__(self, hosts: Iterable[str] = (), users: Iterable[str] = (), never_hosts: Iterable[str] = ()) -> None:
        """`never_hosts`: words that are not hosts, even if a log uses them like one."""
        self.names = Names()
        """The pseudonyms: shared by redactors that work on parts of one text."""
        # The order matters: a secret may contain what looks like an address, and an address what looks like a host.
        self._families: tuple[Callable[[str, Names], str], ...] = (
            *_SECRETS,
            redact_addresses,
            Hosts(hosts, never_hosts).redact,
            Users(users).redact,
        )

    @classmethod
    def of(cls, capture: Capture) -> Self:
        """The result does not depend on the order in which the capture's files were read."""
        hosts, other = _hosts(capture), _groups(capture) | _operations(capture)
        scout = cls(hosts, (), other)
        scout.redact("\n".join(sorted(set(_texts(capture)) | hosts)))
        met = sorted(scout.names.given, key=lambda name: (name[0], _natural(name[1])))
        redactor = cls(hosts, (original for what, original in met if what == "user"), other)
        redactor.names.reserve(hosts)
        for what, original in met:
            redactor.names.give(what, original)
        return redactor

    def redact(self, text: str) -> str:
        """Redacts text of any length. Idempotent."""
        if "PRIVATE KEY" in text and "\x1b" in text:
            text = without_colours(text)
        return self.redact_lines(redact_across_lines(text, self.names))

    def redact_lines(self, text: str) -> str:
        """Redacts each line separately: for lines that are not consecutive."""
        text = redact_key_lines(text, self.names)
        if len(text) <= _PIECE:
            return self._redact_piece(text)
        return "".join(self._redact_piece(piece) for piece in _pieces(text))

    def _redact_piece(self, text: str) -> str:
        for hint in (*HIDING, *(() if text.isascii() else (UNSEEN,))):
            text = on_lines(hint, text, self._shown)
        text = on_lines(PERCENT, text, lambda line: decode_percent(line, self._redact_word))
        return self._in_families(text, self.names)

    def _in_families(self, text: str, names: Names) -> str:
        for redact in self._families:
            text = redact(text, names)
        return text

    def _redact_word(self, word: str) -> str:
        """Assigns pseudonyms only if there is something to replace."""
        return self._in_families(word, self.names) if self._in_families(word, Names()) != word else word

    def _shown(self, line: str) -> str:
        """The line as a reader sees it, if that reveals something to replace that the raw line hides."""
        plain = without_colours(line)
        if plain != line and self._in_families(decode_percent(plain, self._redact_word), Names()) == plain:
            plain = line
        whole = put_together(plain)
        if whole == plain or not (made_words(whole) or ESCAPED_DIGITS.search(plain)):
            return plain
        return whole if _secret(whole) > _secret(plain) else plain

    @property
    def counts(self) -> tuple[tuple[str, int], ...]:
        """What was replaced, and how often, over all calls."""
        return tuple(sorted(self.names.counts.items()))

    @property
    def map(self) -> dict[str, str]:
        """Originals by pseudonym. For this machine only."""
        return {pseudonym: original for (_, original), pseudonym in self.names.given.items()}


def mask_secrets(text: str) -> str:
    """Masks secrets only: hosts, addresses and users stay."""
    redactor = Redactor()
    redactor._families = _SECRETS  # noqa: SLF001 - in its own module
    return redactor.redact(text)


def _secret(text: str) -> int:
    """How many characters of a text are secret."""
    return len(text) - len(without_secrets(text))


def _pieces(text: str) -> Iterator[str]:
    """Pieces that end at line ends: nothing that is searched for after this spans lines."""
    start = 0
    while start < len(text):
        end = text.find("\n", start + _PIECE) + 1 or len(text)
        yield text[start:end]
        start = end


def _hosts(capture: Capture) -> set[str]:
    places = (place.host for place in capture.places)
    speakers = (event.speaker.host for event in capture.events)
    remarks = (remark.host for remark in capture.remarks)
    return {host for host in chain(places, speakers, remarks) if host}


def _groups(capture: Capture) -> set[str]:
    groups = (group for trace in capture.traces for group in trace.groups)
    return {word for group in groups for word in (group.name, group.desc)}


def _operations(capture: Capture) -> set[str]:
    recorded = {signature.op for signatures in capture.tables.signatures.values() for signature in signatures}
    return recorded | {event.work.op for event in capture.events if event.work}


def _texts(capture: Capture) -> Iterator[str]:
    yield from (event.text for event in capture.events)
    yield from (remark.says for remark in capture.remarks)
    yield from (problem.text for problem in capture.problems)
    stacks = chain(capture.tables.stacks.values(), (s.stack for s in capture.stacks), (e.stack for e in capture.events))
    yield from {frame.filename for stack in stacks for frame in stack}


def _natural(text: str) -> tuple[tuple[int, str], ...]:
    """Sort key: node-2 before node-10."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", text))
