"""A line of a log has these words in it.

| the quote | is |
|---|---|
| stands in that line, as it was shown (redacted, escaped), blanks counted as one | supported |
| does not stand in that line | contradicted, with the line in which it does |
| is too short to prove anything; no such file, or it cannot be read again; no such line | unverifiable |
"""

import re
from typing import Final, Literal

from forkpoint.agent.case import Case
from forkpoint.agent.claim import Check, Claim, Status
from forkpoint.agent.claims.wording import is_plain, named, number
from forkpoint.agent.log_text import find_file, line_at, read_lines
from forkpoint.agent.tools.answers import fact
from forkpoint.errors import UnreadableInput

_SHORTEST: Final = 8
_CUT: Final = "…"
"""How tools end a line that they cut."""
_FEWEST: Final = 2
_WORD: Final = re.compile(r"[A-Za-z0-9_]{2,}")
_LONGEST: Final = 4000
_SHOWN: Final = 160
_SEARCHED: Final = 200_000
"""Lines that are looked through for where a quote does stand."""


class LogSays(Claim):
    """What a log says, word for word."""

    kind: Literal["log-says"]
    file: str
    line: int
    quote: str
    """A part of that line, as it was shown: several words."""

    def sentence(self) -> str:
        return f"{named(self.file)} line {number(self.line)} says {named(self.quote, _SHOWN)}"

    def check(self, case: Case) -> Check:
        quote = _even(self.quote).removesuffix(_CUT)
        if len(quote) < _SHORTEST or len(_WORD.findall(quote)) < _FEWEST:
            return Check.unverifiable("so short a quote proves nothing: quote several words")
        if len(quote) > _LONGEST or not is_plain(self.line):
            return Check.unverifiable("quote a part of one line")
        file = find_file(case, self.file)
        if file is None:
            return Check.unverifiable(f"no log that was read is called {named(self.file)}")
        line = line_at(case, file, self.line)
        if line is None:
            return Check.unverifiable(f"{case.clean(file)} has no line {self.line} that can be read again")
        where = f"{file} line {self.line}"
        if quote in _even(line):
            return Check(Status.SUPPORTED, "the line has these words", (fact(case, where, line),))
        found = _stands_in(quote, file, case)
        elsewhere = f"; line {found} has them" if found is not None else ""
        return Check(Status.CONTRADICTED, f"the line has other words{elsewhere}", (fact(case, where, line),))


def _even(text: str) -> str:
    return " ".join(text.split())


def _stands_in(quote: str, file: str, case: Case) -> int | None:
    """The first line that has it, as lines are shown."""
    # The longest word is looked for in the raw text first: cleaning every line of a large log takes long.
    word = max(_WORD.findall(quote), key=len)
    try:
        for line in read_lines(case, file, containing=re.compile(re.escape(word).encode())):
            if line.number > _SEARCHED:
                return None
            if quote in _even(case.clean(line.text)):
                return line.number
    except UnreadableInput:
        return None
    return None
