"""A drawing of the fork: two lanes that run together and then separate. For the page, and as an image to share."""

import re
import textwrap
from html import escape as escape_html

from msgspec import Struct
from msgspec.structs import replace

from forkpoint.model.frames import user_frames
from forkpoint.model.headline import plain_call, plain_line, plain_place, plain_ranks
from forkpoint.model.incident import Cohort, Role
from forkpoint.model.verdict import Cause, Verdict
from forkpoint.report.describe import count_of, suspects_first
from forkpoint.report.escape import escape

WIDTH, HEIGHT = 640, 210
_FORK, _END, _STOP = 250, 620, 400
_UPPER, _LOWER = 66, 150
_CURVE = f"C{_FORK + 50} {_UPPER + 10} {_FORK + 40} {_LOWER} {_FORK + 90} {_LOWER}"
_TICKS = (60, 115, 170, 225)
_MAX_TEXT = 46
_AWAY = (Role.BEHIND, Role.SILENT)
_DOES = {Role.WAITING: ("waits in", "wait in"), Role.AHEAD: ("is past", "are past")}
_IS = ("is in", "are in")
_LAST = re.compile(r"^last issued (\S{1,100}) seq \d+$")


class _Side(Struct, frozen=True):
    ranks: tuple[int, ...]
    did: str
    stops: bool
    """It did not reach the call."""
    odd: bool

    @property
    def end(self) -> int:
        return _STOP if self.stops else _END


def draw_fork(verdict: Verdict) -> str:
    """SVG elements for a `viewBox` of WIDTH by HEIGHT, in ASCII; empty unless two sides are known."""
    sides = _sides(verdict)
    if sides is None:
        return ""
    usual, other = sides
    fork = _place(verdict)
    parts = [
        f'<path class="lane" d="M20 {_UPPER}H{usual.end}"/>',
        f'<path class="{"odd" if other.odd else "lane"}" d="M20 {_UPPER + 10}H{_FORK}{_CURVE}H{other.end}"/>',
        *(f'<path class="tick" d="M{x} {_UPPER - 7}v24"/>' for x in _TICKS),
        f'<circle class="fork" cx="{_FORK}" cy="{_UPPER + 5}" r="9"/>',
        _text(_FORK + 6, _UPPER + 38, fork, "place", anchor="end") if fork else "",
        *_label(usual, _UPPER - 34),
        *_label(other, _LOWER + 26),
        *(_stop(y) for side, y in ((usual, _UPPER), (other, _LOWER)) if side.stops),
    ]
    return "".join(parts)


def _sides(verdict: Verdict) -> tuple[_Side, _Side] | None:
    """The usual side and the suspects' side; without suspects, the two largest cohorts."""
    cohorts = suspects_first(verdict)
    suspects = frozenset(verdict.suspects)
    if suspects and len(cohorts) == 1 and set(cohorts[0].ranks) - suspects:
        rest = tuple(rank for rank in cohorts[0].ranks if rank not in suspects)
        return _side(cohorts[0], rest, odd=False), _side(cohorts[0], verdict.suspects, odd=True)
    odd = [cohort for cohort in cohorts if not suspects.isdisjoint(cohort.ranks)]
    others = sorted((c for c in cohorts if suspects.isdisjoint(c.ranks)), key=lambda c: -len(c.ranks))
    if not others or len(odd) + len(others) < 2:
        return None
    usual, other = others[0], odd[0] if odd else others[1]
    callers = _callers(usual, other)
    away = _side(other, other.ranks, callers[1], odd=bool(odd))
    return _side(usual, usual.ranks, callers[0], odd=False), _held(away, verdict)


def _held(side: _Side, verdict: Verdict) -> _Side:
    """Of a rank whose stack shows what holds it, that line says more than its last call."""
    place = _place(verdict)
    seen = any(e.rank in side.ranks and "main thread" in e.says and place in e.says for e in verdict.evidence)
    if verdict.cause is not Cause.HOST_STALL or not (side.odd and side.stops and place and seen):
        return side
    return replace(side, did=f"{'is' if len(side.ranks) == 1 else 'are'} at {place}")


def _callers(one: Cohort, other: Cohort) -> tuple[str | None, str | None]:
    """Of two sides in the same call at the same line: the lines from which they came there."""
    lines = [[plain_line(f.filename, f.line) for f in user_frames(cohort.stack)] for cohort in (one, other)]
    if plain_call(one.op) != plain_call(other.op) or lines[0][:1] != lines[1][:1]:
        return None, None
    return next(((a, b) for a, b in zip(*lines, strict=False) if a != b), (None, None))


def _side(cohort: Cohort, ranks: tuple[int, ...], caller: str | None = None, *, odd: bool) -> _Side:
    if cohort.op is None or cohort.role in _AWAY:
        where = _LAST.sub(lambda last: f"last called {plain_call(last[1])}", cohort.where or "did not reach it")
        return _Side(ranks, where, stops=True, odd=odd)
    call, place = plain_call(cohort.op), plain_place(cohort.stack)
    short = f"{_DOES.get(cohort.role, _IS)[len(ranks) > 1]} {call}"
    full = f"{short} from {caller}" if caller else f"{short} at {place}" if place else short
    return _Side(ranks, full if len(full) <= _MAX_TEXT else short, stops=False, odd=odd)


def _place(verdict: Verdict) -> str:
    site = verdict.sites[0] if verdict.sites else None
    return f"{site.file.rsplit('/', 1)[-1]}:{site.line}" if site else ""


def _label(side: _Side, y: int) -> list[str]:
    x = _FORK + 36
    return [_text(x, y, plain_ranks(side.ranks), "odd-name" if side.odd else "name"), _text(x, y + 19, side.did, "did")]


def _stop(y: int) -> str:
    return f'<path class="stop" d="M{_STOP} {y - 12}v24"/>'


def _text(x: int, y: int, text: str, kind: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{_safe(text, _MAX_TEXT)}</text>'


def _safe(text: str, limit: int) -> str:
    shown = escape(text[: limit + 1])
    whole = shown if len(shown) <= limit else f"{shown[: limit - 3]}..."
    return escape_html(whole).encode("ascii", "xmlcharrefreplace").decode("ascii")


# ---------------------------------------------------------------------------------------------------------------------
# The image to share: 1200 by 630, the size in which chats and trackers preview links.

_STYLE = """\
text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,Arial,sans-serif;fill:#16191d}
.headline{font-size:38px;font-weight:650}.small{font-size:24px;fill:#5a636e}.brand{font-size:26px;font-weight:700}
.lane,.odd,.tick,.stop{fill:none;stroke-width:5;stroke:#8a939d;stroke-linecap:round}.odd{stroke:#b04a00;stroke-width:6}
.tick{stroke-width:2}.stop{stroke:#16191d}.fork{fill:#fff;stroke:#16191d;stroke-width:4}
.name,.odd-name{font-size:17px;font-weight:650}.odd-name{fill:#b04a00}.did,.place{font-size:14px;fill:#5a636e}"""
_LINE_CHARS, _MAX_HEADLINE_LINES = 48, 4
_LINE_HEIGHT = 50


def render_share(verdict: Verdict) -> str:
    """One SVG file in ASCII: headline, lanes and confidence. It loads nothing and runs nothing."""
    lines = textwrap.wrap(escape(verdict.headline).replace("`", ""), _LINE_CHARS)[:_MAX_HEADLINE_LINES]
    drawn = draw_fork(verdict)
    top = 140 if drawn else 340 - len(lines) * _LINE_HEIGHT // 2
    headline = "".join(
        f'<text class="headline" x="60" y="{top + place * _LINE_HEIGHT}">{_safe(line, 80)}</text>'
        for place, line in enumerate(lines)
    )
    sure = verdict.cause not in (Cause.HEALTHY, Cause.INCONCLUSIVE)
    facts = f"{verdict.cause.replace('-', ' ').replace('gpu', 'GPU')}{f', confidence {verdict.confidence:.2f}' if sure else ''}"
    placed = "translate(30 312) scale(1.5)" if len(lines) > 3 else "translate(30 278) scale(1.6)"
    lanes = f'<g transform="{placed}">{drawn}</g>' if drawn else ""
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" width="1200" height="630" viewBox="0 0 1200 630">'
        f'<style>{_STYLE}</style><rect width="1200" height="630" fill="#ffffff"/>'
        f'<text class="brand" x="60" y="74">forkpoint</text><text class="small" x="206" y="74">{_safe(facts, 80)}</text>'
        f'<text class="small" x="1140" y="74" text-anchor="end">{_safe(_coverage(verdict), 60)}</text>'
        f"{headline}{lanes}</svg>\n"
    )


def _coverage(verdict: Verdict) -> str:
    coverage = verdict.coverage
    given = ((coverage.ranks, "rank"), (coverage.dumps, "dump"), (coverage.logs, "log"))
    return ", ".join(count_of(*one) for one in given)
