"""Verdict -> terminal report: who, what, where, what to do, on what evidence. One screen, whatever the size of the job."""

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from forkpoint.model.frames import user_frames
from forkpoint.model.op import Frame, Stack
from forkpoint.model.verdict import NOT_DATED, Cause, Hypothesis, Moment, Site, Source, Verdict
from forkpoint.model.world import format_ranks, name_ranks
from forkpoint.report.describe import cited, describe_cohort, describe_slot, short_names, suspects_first
from forkpoint.report.escape import escape

SCREEN_LINES = 40

MIN_LINES = 5
"""Of a headline in the narrowest terminal: it is never cut."""
_LABEL_WIDTH = 10
_MAX_COHORTS = 3
_MAX_EVIDENCE_LINES = 6
_MAX_MOMENTS = 5
_MAX_SET_ASIDE = 2
_MAX_HYPOTHESES = 3
_LEFT_TO_EVIDENCE = 3
"""Lines: one piece of evidence, and how many more there are."""
_FEW_MOMENTS = 3
_FEW_SOURCES = 2
"""Fewer moments from fewer sources do not make a timeline."""
_MIN_PATH_WIDTH = 20
_MAX_CHARS = 2000
"""Of one string: combining characters take no columns, so columns alone do not bound a string."""
_ONLY_FOR_WRAPPING = Console()
_SOURCES = (Source.KERNEL, Source.RECORDER, Source.LOG, Source.RAS, Source.STACK)
"""The most telling first."""
_ECHOES = frozenset(
    {"dump-signal", "dumped", "dump taken", "leaving", "left", "network", "agent-stop", "agent-failure"}
)
"""Kinds of moments that mostly follow from another: told where there is room."""
_CAUSE_STYLE = {Cause.HEALTHY: "bold green", Cause.INCONCLUSIVE: "bold yellow"}


def render_text(verdict: Verdict, width: int) -> Text:
    """At most `SCREEN_LINES` lines of at most `width` columns; evidence gives way to the rest."""
    head = [
        *_wrap(verdict.headline, width, max_lines=MIN_LINES, style="bold"),
        _cause(verdict, width),
        Text(),
        *_details(verdict, width),
        *_who(verdict, width),
        *_what(verdict, width),
        *_where(verdict, width),
        *_do(verdict, width),
    ]
    tail = [*_coverage(verdict, width), *_next(verdict, width)]
    head += _also(verdict, width)[: max(0, SCREEN_LINES - len(head) - len(tail) - _LEFT_TO_EVIDENCE)]
    free = SCREEN_LINES - len(head) - len(tail)
    timeline = _timeline(verdict, width, min(_MAX_MOMENTS, free - _LEFT_TO_EVIDENCE))
    room = min(_MAX_EVIDENCE_LINES, free - len(timeline))
    return Text("\n").join([*head, *timeline, *_evidence(verdict, width, room), *tail])


def _cause(verdict: Verdict, width: int) -> Text:
    details = [f"confidence {verdict.confidence:.2f}"]
    if verdict.symptom is not None and verdict.symptom != "none":
        details.append(f"symptom {verdict.symptom}")
    line = Text.assemble((verdict.cause, _CAUSE_STYLE.get(verdict.cause, "bold red")), f"  ({', '.join(details)})")
    return _cropped(line, width)


def _details(verdict: Verdict, width: int) -> list[Text]:
    """What the headline leaves out, where no divergence shows it below."""
    if verdict.divergence is not None or verdict.summary == verdict.headline:
        return []
    return [*_wrap(verdict.summary, width, max_lines=6 if verdict.cause == Cause.INCONCLUSIVE else 4), Text()]


def _who(verdict: Verdict, width: int) -> list[Text]:
    if verdict.cause == Cause.HEALTHY:
        return []
    if not verdict.suspects:
        return _labelled("who", ["no rank can be singled out"], width)
    named = name_ranks(verdict.suspects, max_ranges=8)
    of = f" of {verdict.coverage.ranks}" if verdict.coverage.ranks else ""
    return _labelled("who", [f"suspect: {named}{of}"], width, max_lines=2, style="bold red")


def _what(verdict: Verdict, width: int) -> list[Text]:
    divergence = verdict.divergence
    if divergence is None:
        return []
    suspects = frozenset(verdict.suspects)
    cohorts = suspects_first(verdict)
    shown, rest = cohorts[:_MAX_COHORTS], cohorts[_MAX_COHORTS:]
    lines = _labelled("what", [describe_slot(divergence)], width, max_lines=2)
    names = [_short_ranks(cohort.ranks, width // 3) for cohort in shown]
    column = max(map(len, names), default=0)
    for cohort, name in zip(shown, names, strict=True):
        style = "" if suspects.isdisjoint(cohort.ranks) else "bold red"
        lines.append(_indented(f"{name:<{column}}  {cohort.role:<9}  {describe_cohort(cohort)}", width, style))
        frames = _shown_frames(cohort.stack or ())[: 4 if len(shown) < _MAX_COHORTS else 3]
        lines += [_indented(_describe_frame(frame, width - _LABEL_WIDTH - 2), width, "dim", 2) for frame in frames]
    if rest:
        ranks = [rank for cohort in rest for rank in cohort.ranks]
        lines.append(_indented(f"and {len(rest)} more cohorts: {name_ranks(ranks, max_ranges=6)}", width))
    return lines


def _shown_frames(stack: Stack) -> tuple[Frame, ...]:
    """User code; the innermost frame of all where there is none."""
    return user_frames(stack) or stack[:1]


def _describe_frame(frame: Frame, width: int) -> str:
    suffix = f":{frame.line} {escape(frame.name[:60])}"
    return _short_path(frame.filename, width - cell_len(suffix)) + suffix


def _where(verdict: Verdict, width: int) -> list[Text]:
    """The first place, and on the second line why, or the next place where the summary has said why."""
    texts = [_describe_site(site, width) for site in verdict.sites]
    first = verdict.sites[0].why if verdict.sites else None
    if first is not None and first not in verdict.summary:
        texts.insert(1, f"  {first}")
    return _labelled("where", texts[:2], width)


def _describe_site(site: Site, width: int) -> str:
    place = f"{_short_path(site.file, width // 2)}:{site.line} {site.function}"
    return f"{place}: {site.condition}" if site.condition is not None else place


def _do(verdict: Verdict, width: int) -> list[Text]:
    if verdict.cause == Cause.HEALTHY:
        return []
    titles = [fix.title + (" (patch: --json)" if fix.patch else "") for fix in verdict.fixes[:2]]
    texts = [f"{verdict.action}: {titles[0]}", *titles[1:]] if titles else [verdict.action]
    texts += [f"probe: {p.title.rstrip('.')}" + (f", at {p.where}" if p.where else "") for p in verdict.probes[:1]]
    return _labelled("do", texts, width, max_lines=2)


def _also(verdict: Verdict, width: int) -> list[Text]:
    """What replay shows of a decided verdict, and which other readings survive; of one that is not decided, these by one."""
    if verdict.cause == Cause.INCONCLUSIVE:
        texts = [f"{_tell_hypothesis(h)}: {h.says}" for h in verdict.hypotheses[:_MAX_HYPOTHESES]]
        return _labelled("maybe", texts, width, max_lines=2)
    repairs = [h.repair for h in verdict.hypotheses[:1] if h.repair]
    others = [_tell_hypothesis(h) for h in verdict.hypotheses[1:] if h.cause != verdict.cause]
    return [
        *_labelled("replay", repairs, width, max_lines=2),
        *_labelled("possibly", ["; ".join(others[:_MAX_HYPOTHESES])] if others else [], width),
    ]


def _tell_hypothesis(hypothesis: Hypothesis) -> str:
    """`host-stall or rank-lost of rank 4`."""
    causes = " or ".join((hypothesis.cause, *hypothesis.alternatives[:1]))
    ranks = " or ".join(
        name_ranks(side, max_ranges=2) for side in (hypothesis.sides or (hypothesis.suspects,))[:3] if side
    )
    return f"{causes} of {ranks}" if ranks else causes


def _timeline(verdict: Verdict, width: int, room: int) -> list[Text]:
    """The most telling moments, in order. What happened on a clock of its own comes last and says so."""
    dated = [m for m in verdict.moments if m.clock != NOT_DATED and (m.utc or m.kind not in _ECHOES)]
    sources = {moment.source for moment in dated}
    if room < 1 or verdict.cause == Cause.HEALTHY or (len(dated) < _FEW_MOMENTS and len(sources) < _FEW_SOURCES):
        return []
    suspects = frozenset(verdict.suspects)
    telling = sorted(range(len(dated)), key=lambda n: (*_how_telling(dated[n], suspects), n))
    shown = sorted(telling[: room if len(verdict.moments) <= room else room - 1])
    texts = [_describe_moment(dated[n]) for n in shown]
    hidden = len(verdict.moments) - len(shown)
    return _labelled("timeline", [*texts, *([f"{hidden} more: --json"] if hidden else [])], width)


def _how_telling(moment: Moment, suspects: frozenset[int]) -> tuple[bool, bool, int]:
    """The least comes first."""
    others = suspects.isdisjoint(moment.ranks) and moment.source != Source.KERNEL
    return moment.kind in _ECHOES, others, _SOURCES.index(moment.source)


def _describe_moment(moment: Moment) -> str:
    printed = (moment.when or "").rpartition("T")[2]
    when = moment.utc[11:] if moment.utc else f"{printed}, own clock,"
    by = "by " if moment.bound else ""
    who = f"{name_ranks(moment.ranks, max_ranges=2)} " if moment.ranks else f"{moment.host}: " if moment.host else ""
    return f"{by}{when} {who}{moment.says}"


def _evidence(verdict: Verdict, width: int, room: int) -> list[Text]:
    """As much as fits, numbered as in the JSON, what concerns a suspect first."""
    numbered, names = cited(verdict), short_names(verdict)
    lines: list[Text] = []
    for shown, (number, item) in enumerate(numbered):
        rank = "" if item.rank is None else f"rank {item.rank}, "
        text = f"{number} {rank}{names[item.file]} {item.where}: {item.says}"
        rows = _labelled("" if lines else "evidence", [text], width, max_lines=2)
        left = len(numbered) - shown
        if len(lines) + len(rows) + (1 if left > 1 else 0) > room:
            return [*lines, _indented(f"{left} more: --json", width)]
        lines += rows
    return lines


def _coverage(verdict: Verdict, width: int) -> list[Text]:
    coverage, names = verdict.coverage, short_names(verdict)
    counts = f"{coverage.ranks} ranks: {coverage.dumps} dumps, {coverage.logs} logs, {coverage.stacks} stacks"
    aside = [f"{names[one.file]}: {one.why}" for one in coverage.set_aside[:_MAX_SET_ASIDE]]
    more = len(coverage.set_aside) - len(aside)
    return [
        *_labelled("coverage", ["; ".join([counts, *coverage.notes])], width, max_lines=3),
        *_labelled("set aside", [*aside, *([f"{more} more: --json"] if more else [])], width, max_lines=2),
    ]


def _next(verdict: Verdict, width: int) -> list[Text]:
    # Without a divergence there is room, and getting better evidence is the point.
    limit = 1 if verdict.divergence else 3
    return _labelled("next", verdict.next[:limit], width, max_lines=2)


def _labelled(label: str, texts: Sequence[str], width: int, max_lines: int = 1, style: str = "") -> list[Text]:
    """Each text in at most `max_lines` lines, indented, the first one behind the label."""
    lines = [line for text in texts for line in _wrap(text, width - _LABEL_WIDTH, max_lines, style)]
    marks = [f"{label:<{_LABEL_WIDTH}}", *[" " * _LABEL_WIDTH] * len(lines)]
    return [Text.assemble((mark, "cyan"), line) for mark, line in zip(marks, lines, strict=False)]


def _indented(text: str, width: int, style: str = "", extra: int = 0) -> Text:
    return _cropped(Text(" " * (_LABEL_WIDTH + extra)).append(_clean(text), style), width)


def _wrap(text: str, width: int, max_lines: int, style: str = "") -> list[Text]:
    lines = list(Text(_clean(text), style).wrap(_ONLY_FOR_WRAPPING, width, overflow="fold"))
    for line in lines:
        line.rstrip()
    if len(lines) > max_lines:
        lines = lines[:max_lines]
        lines[-1] = _cropped(lines[-1].append(" " * width), width)
    return lines


def _cropped(line: Text, width: int) -> Text:
    if line.cell_len > width:
        line.truncate(width - 4, overflow="crop")
        line.rstrip()
        line.append(" ...")
    return line


def _clean(text: str) -> str:
    return escape(text[:_MAX_CHARS])


def _short_path(path: str, width: int) -> str:
    """The end of a path says more than its beginning; cut between folders where that is possible."""
    room = max(width, _MIN_PATH_WIDTH)
    end = _clean(path[-4 * room :])
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
