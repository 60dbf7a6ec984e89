"""Verdict -> terminal report: who, what, where, what to do, and the evidence.

One screen, whatever the size of the job, plus the fork in the source and its patch. Items that do not fit are counted, not
truncated: `-v` shows them.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from forkpoint.model.frames import short_name, user_frames
from forkpoint.model.op import Frame, Stack
from forkpoint.model.verdict import NOT_DATED, Cause, Fix, Hypothesis, Moment, Probe, Site, Source, Verdict
from forkpoint.model.world import format_ranks, name_ranks
from forkpoint.report.describe import (
    cited,
    count_of,
    describe_cohort,
    describe_coverage,
    describe_evidence,
    describe_moment,
    describe_slot,
    short_names,
    suspects_first,
)
from forkpoint.report.escape import escape
from forkpoint.report.snippet import render_diff, render_sides, render_snippet

_MAX_SIDES = 3
SCREEN_LINES = 40
"""Not counting lines of the source and of the patch."""

_LABEL_WIDTH = 10
_MIN_PATH_WIDTH = 20
_MAX_COHORTS = 3
_MAX_FRAMES = 3
_MAX_EVIDENCE_LINES = 8
_MAX_MOMENTS = 5
_MAX_SET_ASIDE = 2
_MAX_HYPOTHESES = 3
_MAX_ITEM_LINES = 6
"""Longer texts are shown only with -v."""
_LEFT_TO_EVIDENCE = 4
"""Lines reserved for one piece of evidence and the count of the others."""
_FEW_MOMENTS = 3
_FEW_SOURCES = 2
"""With fewer moments from fewer sources there is no timeline."""
_MAX_CHARS = 2000
"""Limit of one string: combining characters take no columns, so a limit in columns is not enough."""
_EVERYTHING = 1_000_000
_NO_CONSOLE: Any = None  # rich uses one only to justify lines, and importing it takes long
_SOURCES = (Source.KERNEL, Source.RECORDER, Source.LOG, Source.RAS, Source.STACK)
"""The most informative first."""
_ECHOES = frozenset(
    {"dump-signal", "dumped", "dump taken", "leaving", "left", "network", "agent-stop", "agent-failure"}
)
"""Kinds of moments that mostly follow from another: shown if there is room."""
_CAUSE_STYLE = {Cause.HEALTHY: "bold green", Cause.INCONCLUSIVE: "bold yellow"}


def render_text(verdict: Verdict, width: int, *, verbose: bool = False) -> Text:
    """At most `SCREEN_LINES` lines of at most `width` columns, plus source and patch; everything with `verbose`."""
    report = _Report(verdict, width, verbose=verbose)
    return Text("\n").join(report.lines())


def render_sentence(verdict: Verdict) -> str:
    """The headline alone."""
    return _clean(verdict.headline)


class _Report:
    """Renders one verdict at one width."""

    def __init__(self, verdict: Verdict, width: int, *, verbose: bool) -> None:
        self._verdict = verdict
        self._width = width
        self._verbose = verbose
        self._snippet = render_snippet(verdict, width)

    def lines(self) -> list[Text]:
        beside = [*self._snippet, *([Text()] if self._snippet else [])]
        head = [
            *self._wrap(self._verdict.headline, self._width, style="bold"),
            self._cause(),
            Text(),
            *self._details(),
            *self._who(),
            *self._what(),
            *self._where(),
        ]
        do, patch, probe = self._do(), self._patch(), self._probe()
        tail = [*self._coverage(), *self._next()]
        head = self._bounded(head, SCREEN_LINES - len(do) - len(probe) - len(tail) - 1)
        free = SCREEN_LINES - len(head) - len(do) - len(probe) - len(tail)
        also = self._within(self._also(), free - _LEFT_TO_EVIDENCE)
        free -= len(also)
        timeline = self._timeline(min(_MAX_MOMENTS, free - _LEFT_TO_EVIDENCE))
        evidence = self._evidence(min(_MAX_EVIDENCE_LINES, free - len(timeline)))
        first = len(self._wrap(self._verdict.headline, self._width)) + 2
        return [*head[:first], *beside, *head[first:], *do, *patch, *probe, *also, *timeline, *evidence, *tail]

    def _bounded(self, head: list[Text], room: int) -> list[Text]:
        """Only absurd input needs this, such as a group name of a thousand characters."""
        return head if self._verbose or len(head) <= room else [*head[: room - 1], Text("more (-v)", "dim")]

    def _within(self, items: list[list[Text]], room: int) -> list[Text]:
        """Whole items, as many as fit."""
        shown: list[Text] = []
        for item in items:
            if self._verbose or len(shown) + len(item) <= room:
                shown += item
        return shown

    # what happened

    def _cause(self) -> Text:
        verdict = self._verdict
        details = [] if verdict.cause == Cause.INCONCLUSIVE else [f"confidence {verdict.confidence:.2f}"]
        if verdict.symptom is not None and verdict.symptom != "none":
            details.append(f"symptom {verdict.symptom}")
        line = Text.assemble((verdict.cause, _CAUSE_STYLE.get(verdict.cause, "bold red")))
        return _cropped(line.append(f"  ({', '.join(details)})" if details else ""), self._width)

    def _details(self) -> list[Text]:
        """The summary, unless the divergence below shows the same."""
        verdict = self._verdict
        if verdict.summary == verdict.headline or (verdict.divergence is not None and not self._verbose):
            return []
        lines = self._wrap(verdict.summary, self._width)
        return [*lines, Text()] if len(lines) <= self._limit(_MAX_ITEM_LINES + 2) else self._left_out("details")

    def _who(self) -> list[Text]:
        verdict = self._verdict
        if verdict.cause == Cause.HEALTHY:
            return []
        if not verdict.suspects:
            return self._labelled("who", ["no rank can be singled out"])
        named = name_ranks(verdict.suspects, max_ranges=_EVERYTHING if self._verbose else 8)
        of = f" of {verdict.coverage.ranks}" if verdict.coverage.ranks else ""
        return self._labelled("who", [f"suspect: {named}{of}"], style="bold red")

    def _what(self) -> list[Text]:
        divergence = self._verdict.divergence
        if divergence is None:
            return []
        lines = self._labelled("what", [describe_slot(divergence)])
        lines += self._sides() if self._snippet and not self._verbose else self._cohorts()
        return lines

    def _sides(self) -> list[Text]:
        """One item per side, without frames: those are in the snippet."""
        sides = render_sides(self._verdict)
        lines = [line for text, odd in sides for line in self._labelled("", [text], style="bold red" if odd else "")]
        return [*lines, *self._hidden(len(suspects_first(self._verdict)) - len(sides), "cohort")]

    def _cohorts(self) -> list[Text]:
        suspects, cohorts = frozenset(self._verdict.suspects), suspects_first(self._verdict)
        shown, rest = cohorts[: self._limit(_MAX_COHORTS)], cohorts[self._limit(_MAX_COHORTS) :]
        lines: list[Text] = []
        for cohort in shown:
            style = "" if suspects.isdisjoint(cohort.ranks) else "bold red"
            name = _short_ranks(cohort.ranks, self._width // 3)
            lines += self._labelled("", [f"{name}  {cohort.role}  {describe_cohort(cohort)}"], style=style)
            frames = _shown_frames(cohort.stack or ())[: self._limit(_MAX_FRAMES)]
            width = self._width - _LABEL_WIDTH - 2
            lines += [_indented(_describe_frame(frame, width), self._width, "dim", 2) for frame in frames]
        if rest:
            ranks = [rank for cohort in rest for rank in cohort.ranks]
            more = f"and {count_of(len(rest), 'more cohort')}: {name_ranks(ranks, max_ranges=6)} (-v shows them)"
            lines += self._labelled("", [more])
        return lines

    def _where(self) -> list[Text]:
        """The first place with its reason; the others only with -v."""
        sites = self._verdict.sites
        if not sites:
            return []
        first = [] if self._snippet and not self._verbose else [_describe_site(sites[0], self._width)]
        why = [sites[0].why] if sites[0].why else []
        others = [_describe_site(site, self._width) for site in sites[1:]] if self._verbose else []
        return self._items(
            "where", [*first, *why, *others], self._limit(6), "place", beyond=len(sites) - 1 - len(others)
        )

    # what to do

    def _do(self) -> list[Text]:
        verdict = self._verdict
        if verdict.cause == Cause.HEALTHY:
            return []
        fixes: Sequence[Fix] = verdict.fixes[: self._limit(1)]
        texts = (
            [f"{verdict.action}: {fixes[0].title}", *(fix.title for fix in fixes[1:])] if fixes else [verdict.action]
        )
        return self._items("do", texts, self._limit(4))

    def _probe(self) -> list[Text]:
        verdict = self._verdict
        if verdict.cause == Cause.HEALTHY:
            return []
        probes: Sequence[Probe] = verdict.probes[: self._limit(1)]
        texts = [p.title.rstrip(".") + (f", at {p.where}" if p.where else "") for p in probes]
        hidden = len(verdict.probes) - len(probes) + len(verdict.fixes[self._limit(1) :])
        return self._items("probe", texts, self._limit(4), "remedy", "remedies", beyond=hidden)

    def _patch(self) -> list[Text]:
        """The patch of the first fix, as far as it fits; with -v those of all fixes and probes."""
        remedies = [*self._verdict.fixes, *(self._verdict.probes if self._verbose else ())]
        patches = [remedy.patch for remedy in remedies if remedy.patch][: self._limit(1)]
        line = self._verdict.sites[0].line if self._verdict.sites else None
        lines: list[Text] = []
        for patch in patches:
            shown, hidden = render_diff(patch, self._width - _LABEL_WIDTH, line, whole=self._verbose)
            lines += [Text(" " * _LABEL_WIDTH).append_text(row) for row in shown]
            lines += self._hidden(hidden, "line of the patch", "lines of the patch")
        return lines

    def _also(self) -> list[list[Text]]:
        """For a decided verdict: what replay shows, and which other explanations survive. Otherwise: each explanation."""
        verdict = self._verdict
        if verdict.cause == Cause.INCONCLUSIVE:
            shown = verdict.hypotheses[: self._limit(_MAX_HYPOTHESES)]
            texts = [f"{_tell_hypothesis(h)}: {h.says}" for h in shown]
            items = [self._labelled("maybe" if not place else "", [text]) for place, text in enumerate(texts)]
            return [*items, self._hidden(len(verdict.hypotheses) - len(shown), "reading")]
        repairs = [h.repair for h in verdict.hypotheses[:1] if h.repair]
        others = [_tell_hypothesis(h) for h in verdict.hypotheses[1:] if h.cause not in (verdict.cause, Cause.HEALTHY)]
        return [
            self._labelled("replay", repairs),
            self._labelled("possibly", ["; ".join(others[: self._limit(_MAX_HYPOTHESES)])] if others else []),
        ]

    # on what evidence

    def _timeline(self, room: int) -> list[Text]:
        """The most informative moments, in order. Those on another clock come last and say so."""
        verdict, room = self._verdict, self._limit(room)
        dated = [m for m in verdict.moments if m.clock != NOT_DATED and (m.utc or m.kind not in _ECHOES)]
        sources = {moment.source for moment in dated}
        if room < 1 or verdict.cause == Cause.HEALTHY or (len(dated) < _FEW_MOMENTS and len(sources) < _FEW_SOURCES):
            return []
        suspects = frozenset(verdict.suspects)
        by_priority = sorted(range(len(dated)), key=lambda n: (*_priority(dated[n], suspects), n))
        kept: set[int] = set()
        lines = 0
        for n in by_priority:
            needs = len(self._wrap(describe_moment(dated[n]), self._width - _LABEL_WIDTH))
            if lines + needs + (len(verdict.moments) > len(kept) + 1) <= room:
                kept.add(n)
                lines += needs
        shown = self._labelled("timeline", [describe_moment(dated[n]) for n in sorted(kept)])
        return [*shown, *self._hidden(len(verdict.moments) - len(kept), "moment")] if kept else []

    def _evidence(self, room: int) -> list[Text]:
        """As much as fits, numbered as in the JSON; that of suspects first. Log lines are quoted as they were written."""
        numbered, names = cited(self._verdict), short_names(self._verdict)
        lines: list[Text] = []
        shown = 0
        for number, item in numbered:
            text = f"{number} {describe_evidence(item, names[item.file])}"
            rows = self._labelled("" if lines else "evidence", [text])
            if len(lines) + len(rows) + 1 > self._limit(room):
                continue
            lines += rows
            shown += 1
        label = "evidence" if not lines else ""
        return [*lines, *self._hidden(len(numbered) - shown, "piece", label=label)]

    def _coverage(self) -> list[Text]:
        coverage, names = self._verdict.coverage, short_names(self._verdict)
        counts = describe_coverage(coverage)
        aside = [f"{names[one.file]}: {one.why}" for one in coverage.set_aside]
        shown = aside[: self._limit(_MAX_SET_ASIDE)]
        return [
            *self._items("coverage", [counts, *coverage.notes], self._limit(4), what="note"),
            *self._items("set aside", shown, self._limit(4), "file", beyond=len(aside) - len(shown)),
        ]

    def _next(self) -> list[Text]:
        # Without a divergence there is room, and the reader needs better evidence.
        probes = {probe.title for probe in self._verdict.probes}
        steps = [step for step in self._verdict.next if step not in probes] + self._source_wanted()
        return self._items("next", steps, self._limit(2 if self._verdict.divergence else 5), what="step")

    def _source_wanted(self) -> list[str]:
        sites = self._verdict.sites
        if not sites or self._snippet or not self._verdict.action.startswith("fix-code"):
            return []
        return [f"--source DIR: the code at {short_name(sites[0].file)}:{sites[0].line}, and what to change there"]

    # texts as lines

    def _limit(self, number: int) -> int:
        return _EVERYTHING if self._verbose else number

    def _items(
        self,
        label: str,
        texts: Sequence[str],
        room: int,
        what: str = "item",
        many: str | None = None,
        *,
        beyond: int = 0,
    ) -> list[Text]:
        """As many whole texts as fit. The first is shown even if it does not fit, unless it is too long for a sentence.
        `beyond`: how many more there are that are not in `texts`.
        """
        lines: list[Text] = []
        shown = 0
        for text in texts:
            if lines and len(lines) >= room:
                break  # of 100,000 notes, only those that fit are wrapped
            rows = self._labelled(label if not lines else "", [text])
            if (lines and len(lines) + len(rows) > room) or len(rows) > self._limit(_MAX_ITEM_LINES):
                continue
            lines += rows
            shown += 1
        return [*lines, *self._hidden(len(texts) - shown + beyond, what, many, label="" if lines else label)]

    def _hidden(self, count: int, what: str, many: str | None = None, label: str = "") -> list[Text]:
        if count <= 0:
            return []
        named = what if count == 1 else many or f"{what}s"
        return self._labelled(label, [f"{count} more {named} (-v)"], style="dim")

    def _left_out(self, what: str) -> list[Text]:
        return [Text(f"{what} (-v)", "dim"), Text()]

    def _labelled(self, label: str, texts: Iterable[str], style: str = "") -> list[Text]:
        """Each text wrapped and indented, the first one after the label."""
        lines = [line for text in texts for line in self._wrap(text, self._width - _LABEL_WIDTH, style)]
        marks = [f"{label:<{_LABEL_WIDTH}}", *[" " * _LABEL_WIDTH] * len(lines)]
        return [Text.assemble((mark, "cyan"), line) for mark, line in zip(marks, lines, strict=False)]

    def _wrap(self, text: str, width: int, style: str = "") -> list[Text]:
        lines = list(Text(_clean(text), style).wrap(_NO_CONSOLE, width, overflow="fold"))
        for line in lines:
            line.rstrip()
        return lines


def _shown_frames(stack: Stack) -> tuple[Frame, ...]:
    """Frames of user code; without any, the innermost frame."""
    return user_frames(stack) or stack[:1]


def _describe_frame(frame: Frame, width: int) -> str:
    suffix = f":{frame.line} {escape(frame.name[:60])}"
    return _short_path(frame.filename, width - cell_len(suffix)) + suffix


def _describe_site(site: Site, width: int) -> str:
    place = f"{_short_path(site.file, width // 2)}:{site.line} {site.function}"
    return f"{place}: {site.condition}" if site.condition is not None else place


def _tell_hypothesis(hypothesis: Hypothesis) -> str:
    """`host-stall or rank-lost of rank 4`."""
    causes = " or ".join((hypothesis.cause, *hypothesis.alternatives[:1]))
    sides = [side for side in hypothesis.sides or (hypothesis.suspects,) if side]
    ranks = " or ".join(name_ranks(side, max_ranges=2) for side in sides)
    if len(sides) > _MAX_SIDES:
        ranks = f"one of {name_ranks((rank for side in sides for rank in side), max_ranges=2)}"
    return f"{causes} of {ranks}" if ranks else causes


def _priority(moment: Moment, suspects: frozenset[int]) -> tuple[bool, bool, int]:
    """Sort key: the most informative moments first."""
    others = suspects.isdisjoint(moment.ranks) and moment.source != Source.KERNEL
    return moment.kind in _ECHOES, others, _SOURCES.index(moment.source)


def _indented(text: str, width: int, style: str = "", extra: int = 0) -> Text:
    return _cropped(Text(" " * (_LABEL_WIDTH + extra)).append(_clean(text), style), width)


def _cropped(line: Text, width: int) -> Text:
    """For text that is not a sentence: a path, a list of settings."""
    if line.cell_len > width:
        line.truncate(width - 4, overflow="crop")
        line.rstrip()
        line.append(" ...")
    return line


def _clean(text: str) -> str:
    return escape(text[:_MAX_CHARS])


def _short_path(path: str, width: int) -> str:
    """The end of a path, which says more than its beginning; cut between folders if possible."""
    room = max(width, _MIN_PATH_WIDTH)
    end = escape(path[-4 * room :])
    if len(path) <= 4 * room and cell_len(end) <= room:
        return end
    while cell_len(end) > room - 4:
        _, slash, rest = end.partition("/")
        end = rest if slash else end[1:]
    return f".../{end}"


def _short_ranks(ranks: Sequence[int], width: int) -> str:
    for max_ranges in (None, 6, 4, 2):
        text = format_ranks(ranks, max_ranges)
        if len(text) <= width:
            return text
    return format_ranks(ranks, 1)
