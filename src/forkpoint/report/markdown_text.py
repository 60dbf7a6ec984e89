"""Strings from input as Markdown that can do nothing: no markup, no mention, no link, no way out of a block.

What may mean something goes into a code span, where GitHub and Slack alike take it literally. Escaping with backslashes
is not enough: mentions, issue numbers and bare addresses are looked for after it is undone.
"""

import re

from forkpoint.report.escape import escape

_PLAIN = re.compile(r"\(?(?:[A-Za-z]+(?:['-][A-Za-z]+)*|[0-9]+(?:[.,-][0-9]+)*)\)?")
"""A word or a number. `train.py` is neither: chat programs make a link of it."""
_LISTED = re.compile(r"[0-9]+[.)]")
"""`1.` at the start of a line makes a list of it."""
_CODE = re.compile(r"`([^`]+)`")
_ENDS = ".,;:"
_FENCE = re.compile(r"`{3,}")


def sentence(text: str, limit: int) -> str:
    """On one line, with every word that is more than a word as code. What is code already stays one span."""
    shown = _cut(escape(text[:limit]), text, limit).strip()
    # Every second part stood between backticks.
    *parts, last = _CODE.split(shown)
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return "".join([part for prose, quoted in pairs for part in (_words(prose), code(quoted))] + [_words(last)])


def _words(prose: str) -> str:
    """Neighbours that need it share one code span."""
    shown: list[str] = []
    held: list[str] = []
    for place, word in enumerate(prose.split(" ")):
        body = word.rstrip(_ENDS)
        plain = not body or (_PLAIN.fullmatch(body) and not (place == 0 and _LISTED.fullmatch(word)))
        if not plain:
            held.append(body)
        if held and (plain or body != word):
            shown.append(code(" ".join(held)) + ("" if plain else word[len(body) :]))
            held = []
        if plain:
            shown.append(word)
    return " ".join([*shown, code(" ".join(held))] if held else shown)


def code(text: str, limit: int = 300) -> str:
    """A code span. Backticks become quotes: there is no way to write them that both GitHub and Slack understand."""
    shown = _cut(escape(text[:limit]), text, limit).replace("`", "'").strip()
    return f"`{shown}`" if shown else "-"


def cell(text: str, limit: int = 120) -> str:
    """A code span in a table. A bar would end the cell whatever stands before it."""
    return code(text.replace("|", "¦"), limit)


def fenced(patch: str) -> list[str]:
    """The lines of a fenced block. Tabs stay: a patch is to be applied."""
    lines = ["\t".join(map(escape, line.split("\t"))) for line in patch.rstrip("\n").split("\n")]
    fence = "`" * max(3, 1 + max((len(run) for line in lines for run in _FENCE.findall(line)), default=0))
    return [f"{fence}diff", *lines, fence]


def _cut(shown: str, text: str, limit: int) -> str:
    return f"{shown} ..." if len(text) > limit else shown
