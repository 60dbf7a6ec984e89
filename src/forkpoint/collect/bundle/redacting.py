"""Redacts evidence: logs piece by piece, dumps whole; names are given in the order of the evidence."""

from collections import Counter
from collections.abc import Callable, Iterator

from forkpoint.collect.bundle.dumps import redact_dump
from forkpoint.collect.bundle.evidence import EvidenceKind, FoundEvidence
from forkpoint.collect.bundle.lines import Lines
from forkpoint.collect.bundle.pieces import pieces
from forkpoint.ingest.flight_recorder import MAX_BYTES
from forkpoint.redact import Redactor


class Redacting:
    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._lines = Lines(redactor)
        self.counts: Counter[str] = Counter()
        """What was replaced in evidence, without what was replaced in names of files."""

    def redact(self, found: FoundEvidence) -> Iterator[bytes]:
        """The redacted content, in pieces. Raises an InputError at once for a damaged dump."""
        if found.kind is EvidenceKind.TEXT:
            return (self._counted(lambda part=part: self._lines.redact(part)) for part in pieces(found.stream))
        data = found.stream.read(MAX_BYTES + 1)
        return iter([self._counted(lambda: redact_dump(data, found.path, self._redactor.redact))])

    def _counted(self, redact: Callable[[], bytes]) -> bytes:
        before = Counter(self._redactor.names.counts)
        done = redact()
        self.counts += self._redactor.names.counts - before
        return done
