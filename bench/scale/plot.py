"""How cost grows with ranks, as an SVG: both axes logarithmic, so that cost in proportion to ranks is a straight line."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

_WIDTH, _HEIGHT = 720, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 190, 30, 50
_COLOURS = ("#0b6e99", "#7a5195", "#d45500", "#5a5a5a")


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    points: tuple[tuple[float, float], ...]
    """(ranks, CPU seconds)."""


@dataclass(frozen=True, slots=True)
class _Scale:
    """Powers of ten onto pixels."""

    low: int
    high: int
    start: float
    end: float

    def at(self, value: float) -> float:
        return self.start + (log10(value) - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        return [10.0**power for power in range(self.low, self.high + 1)]


def draw(lines: Sequence[Line]) -> str:
    shown = [line for line in lines if line.points]
    across = _scale([x for line in shown for x, _ in line.points], _LEFT, _WIDTH - _RIGHT)
    up = _scale([y for line in shown for _, y in line.points], _HEIGHT - _BOTTOM, _TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-labelledby="t d" font-family="sans-serif" font-size="13">',
        '<title id="t">CPU seconds by ranks</title>',
        f'<desc id="d">{"; ".join(map(_told, shown))}</desc>',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        *_grid(across, up),
    ]
    for line, colour in zip(shown, _COLOURS, strict=False):
        parts += _drawn(line, colour, across, up)
    return "\n".join([*parts, "</svg>", ""])


def _told(line: Line) -> str:
    return f"{line.name}: " + ", ".join(f"{y:,.1f} s at {x:,.0f} ranks" for x, y in sorted(line.points))


def _scale(values: list[float], start: float, end: float) -> _Scale:
    low, high = floor(log10(min(values))), ceil(log10(max(values)))
    return _Scale(low, max(high, low + 1), start, end)


def _grid(across: _Scale, up: _Scale) -> list[str]:
    parts: list[str] = []
    for x in across.ticks():
        at = across.at(x)
        parts.append(f'<path d="M{at:.1f} {_TOP}V{_HEIGHT - _BOTTOM}" stroke="#dddddd"/>')
        parts.append(f'<text x="{at:.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{x:,.0f}</text>')
    for y in up.ticks():
        at = up.at(y)
        parts.append(f'<path d="M{_LEFT} {at:.1f}H{_WIDTH - _RIGHT}" stroke="#dddddd"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{y:g}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{_HEIGHT - 10}" text-anchor="middle">ranks</text>')
    parts.append(f'<text x="{_LEFT}" y="{_TOP - 12}" text-anchor="middle">CPU seconds</text>')
    return parts


def _drawn(line: Line, colour: str, across: _Scale, up: _Scale) -> list[str]:
    points = [(across.at(x), up.at(y)) for x, y in sorted(line.points)]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    x, y = points[-1]
    dots = [f'<rect x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6" fill="{colour}"/>' for x, y in points]
    label = f'<text x="{x + 10:.1f}" y="{y + 4:.1f}" fill="{colour}">{line.name}</text>'
    return [f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>', *dots, label]
