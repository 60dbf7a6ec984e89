"""The fork in the source, like a compiler error: the lines, a caret under the condition, and what each side did."""

import re
from itertools import takewhile
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from forkpoint.model.frames import short_name, user_frames
from forkpoint.model.incident import Role
from forkpoint.model.verdict import Cause, Site, Verdict
from forkpoint.model.world import name_ranks
from forkpoint.report.describe import describe_cohort, suspects_first
from forkpoint.report.escape import escape

if TYPE_CHECKING:
    from forkpoint.model.picture import Quote  # slow to import

MAX_DIFF_LINES = 15
_BEFORE, _AFTER = 3, 4
_MAX_SIDES = 3
_MIN_CODE = 12
_HERE = "  <- "
_MAX_ROWS = 5
"""For one line of code."""
_DEEPER = 4
"""Indentation of a continued line."""
_FORKS = frozenset({Cause.DIVERGENT_PATH, Cause.ORDER_INVERSION, Cause.METADATA_MISMATCH})
_COMMENT = re.compile(r"  #[^'\"]*$")
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? ")


def find_quote(verdict: Verdict) -> "tuple[Site, Quote] | None":
    """The first site and the lines around it, if the source was given."""
    quote = next((quote for quote in verdict.quotes if quote.site == 0), None)
    return (verdict.sites[0], quote) if quote and verdict.sites else None


def render_snippet(verdict: Verdict, width: int) -> list[Text]:
    """Empty if no source was given. No line is wider than `width`: longer code continues on the next line."""
    found = find_quote(verdict)
    if found is None:
        return []
    site, quote = found
    shown = _shown_lines(quote)
    gutter = len(str(shown[-1][0]))
    indent = min((len(text) - len(text.lstrip()) for _, text in shown if text.strip()), default=0)
    place = f"{site.file}:{site.line}" + (f" in {site.function}" if site.function else "")
    lines = [_row(" " * gutter + "--> ", escape(place), width, "bold"), Text(f"{' ' * gutter} |", "cyan")]
    for number, text in shown:
        code = text[indent:].rstrip()
        here = _who_is_here(number, quote, verdict)
        rows = _code(f"{number:>{gutter}} | ", code, here, width)
        if number == quote.marked:
            rows = _with_caret(rows, f"{' ' * gutter} | ", site, verdict, width)
        lines += rows
    return [*lines, Text(f"{' ' * gutter} |", "cyan")]


def render_sides(verdict: Verdict) -> list[tuple[str, bool]]:
    """`rank 1: waiting, all_reduce [128, 128] ..., from train.py:19`, and whether it is a suspect."""
    suspects = frozenset(verdict.suspects)
    sides: list[tuple[str, bool]] = []
    for cohort in suspects_first(verdict)[:_MAX_SIDES]:
        frames = user_frames(cohort.stack)[:1] if cohort.role is not Role.BEHIND else ()
        place = "".join(f", from {short_name(frame.filename)}:{frame.line}" for frame in frames)
        text = f"{name_ranks(cohort.ranks, 4)}: {cohort.role}, {describe_cohort(cohort)}{place}"
        sides.append((text, not suspects.isdisjoint(cohort.ranks)))
    return sides


def render_diff(patch: str, width: int, line: int | None, *, whole: bool) -> tuple[list[Text], int]:
    """The coloured lines, and how many were left out. Hunks are never cut; the one that changes `line` is preferred."""
    rows = patch.rstrip("\n").split("\n")
    shown = rows if whole or len(rows) <= MAX_DIFF_LINES else _best_hunk(rows, line)
    lines = [line for row in shown for line in _folded("", escape(row), width, _diff_style(row))]
    return lines, len(rows) - len(shown)


def _best_hunk(rows: list[str], line: int | None) -> list[str]:
    """The file's name and one hunk: the one with `line`, else the shortest; empty if none fits."""
    starts = [place for place, row in enumerate(rows) if _HUNK.match(row)]
    hunks = [rows[start:end] for start, end in zip(starts, [*starts[1:], len(rows)], strict=True)]
    hunks = [hunk for hunk in hunks if len(hunk) + 2 <= MAX_DIFF_LINES]
    best = min(hunks, key=lambda hunk: (not _covers(hunk[0], line), len(hunk)), default=[])
    return [*rows[:2], *best] if best else []


def _covers(head: str, line: int | None) -> bool:
    found = _HUNK.match(head)
    first, count = (int(found[1]), int(found[2] or 1)) if found else (0, 0)
    return line is not None and first <= line < first + count


def _diff_style(row: str) -> str:
    if row.startswith(("---", "+++")):
        return "bold"
    return {"+": "green", "-": "red", "@": "cyan"}.get(row[:1], "")


def _shown_lines(quote: "Quote") -> list[tuple[int, str]]:
    """The lines around the marked one, without empty lines at the ends."""
    numbered = [(quote.first + place, text.expandtabs(4)) for place, text in enumerate(quote.lines)]
    near = [row for row in numbered if -_BEFORE <= row[0] - quote.marked <= _AFTER]
    near = list(takewhile(lambda row: row[0] <= quote.marked or row[1].strip() or _goes_on(row[0], numbered), near))
    while len(near) > 1 and not near[0][1].strip():
        del near[0]
    while len(near) > 1 and not near[-1][1].strip():
        del near[-1]
    return near


def _goes_on(number: int, numbered: list[tuple[int, str]]) -> bool:
    """Whether the code continues after an empty line: two empty lines end a function."""
    return any(row == number + 1 and text.strip() for row, text in numbered)


def _who_is_here(number: int, quote: "Quote", verdict: Verdict) -> str:
    """Ranks with this line in their stack."""
    cohorts = verdict.divergence.cohorts if verdict.divergence else ()
    ranks = [
        rank
        for cohort in cohorts
        if cohort.role is not Role.BEHIND  # its stack belongs to its last call, which is done
        and any(
            f.line == number and short_name(f.filename) == short_name(quote.file) for f in user_frames(cohort.stack)
        )
        for rank in cohort.ranks
    ]
    return f"{_HERE}{name_ranks(ranks, 2)}" if ranks else ""


def _with_caret(rows: list[Text], margin: str, site: Site, verdict: Verdict, width: int) -> list[Text]:
    """A caret under the condition if a row has all of it, else under the whole of the last."""
    condition = (site.condition or "").removeprefix("except ")
    codes = [_COMMENT.sub("", row.plain[len(margin) :].partition(_HERE.rstrip())[0].rstrip()) for row in rows]
    last = max((n for n, code in enumerate(codes) if code.strip()), default=0)
    at = next((n for n, code in enumerate(codes) if condition and condition in code), last)
    code = codes[at]
    start, length = code.find(condition), len(condition)
    if not condition or start < 0:
        start, length = len(code) - len(code.lstrip()), len(code.strip())
    room = width - len(margin) - start
    if room < 1:
        return rows
    caret = Text.assemble((margin, "cyan"), " " * start, ("^" * min(length, room), "bold red"))
    label = _diverged(site, verdict)
    if label and caret.cell_len + 1 + len(label) <= width:
        caret.append(f" {label}", "red")
    return [*rows[: at + 1], caret, *rows[at + 1 :]]


def _diverged(site: Site, verdict: Verdict) -> str:
    """Of a rank that is stuck or gone nothing shows that it left the path of the others here, nor does a line where ranks wait."""
    who, is_are = name_ranks(verdict.suspects, 2), "is" if len(verdict.suspects) == 1 else "are"
    if not verdict.suspects:
        return ""
    if "stuck here" in (site.why or ""):
        return f"{who} {is_are} here"
    return f"{who} diverged here" if site.why and verdict.divergence and verdict.cause in _FORKS else ""


def _code(margin: str, code: str, here: str, width: int) -> list[Text]:
    lines = _folded(margin, escape(code), width)
    if not here:
        return lines
    if lines[-1].cell_len + cell_len(here) > width:
        begins = " " * (len(code) - len(code.lstrip()) + len(_HERE))
        lines.append(Text.assemble((f"{' ' * (len(margin) - 2)}| ", "cyan"), begins))
        here = here.lstrip()
    lines[-1].append(here, "dim")
    return lines


def _folded(margin: str, text: str, width: int, style: str = "") -> list[Text]:
    """Folded where necessary and indented: truncating the code would hide what differs."""
    room = max(width - len(margin), _MIN_CODE)
    inner = min(len(text) - len(text.lstrip(" +-")) + _DEEPER, room // 2)
    rows = [text]
    while cell_len(rows[-1]) > room and len(rows) < _MAX_ROWS:
        at = _break(rows[-1], room, inner)
        rows[-1:] = [rows[-1][:at].rstrip(), " " * inner + rows[-1][at:].lstrip()]
    goes_on = f"{' ' * (len(margin) - 2)}| " if margin else ""
    return [_row(goes_on if n else margin, row, width, style) for n, row in enumerate(rows)]


def _break(text: str, room: int, inner: int) -> int:
    """After the last space that fits, if that leaves something on the line."""
    fits = next(n for n in range(min(len(text), room), 0, -1) if cell_len(text[:n]) <= room)
    space = text.rfind(" ", 0, fits)
    return space if space > inner else fits


def _row(margin: str, text: str, width: int, style: str = "") -> Text:
    """Cut at the edge: a path, or code of many screens."""
    line = Text.assemble((margin, "cyan"), (text, style))
    if line.cell_len > max(width, len(margin) + _MIN_CODE):
        line.truncate(width, overflow="ellipsis")
    return line
