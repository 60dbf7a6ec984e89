"""What one text file says, which attempt of the job it belongs to, and which rank, if only its path or other files tell."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from msgspec import Struct, field, structs

from forkpoint.evidence.file_names import FileNames, without_numbers
from forkpoint.evidence.processes import OfProcess
from forkpoint.evidence.rank_states import RankStates
from forkpoint.model.capture import OF_ANOTHER_RUN, Capture, LiveStack, Problem, Remark, SetAside
from forkpoint.model.log import NO_ENDING, Ending, LogEvent, LogKind, PrintedLine
from forkpoint.model.values import Values
from forkpoint.model.world import RankPlace
from forkpoint.traces.admission import Choice, attempt_of


class TextReading(Struct):
    """What one text file says."""

    file: str = ""
    events: list[LogEvent] = field(default_factory=list[LogEvent])
    stacks: list[LiveStack] = field(default_factory=list[LiveStack])
    of_process: list[tuple[int, LiveStack]] = field(default_factory=list[tuple[int, LiveStack]])
    """(process id, stack) of processes whose rank only another file can tell."""
    unnamed: list[LiveStack] = field(default_factory=list[LiveStack])
    """Stacks whose rank neither the file nor its name shows."""
    processes: list[OfProcess] = field(default_factory=list[OfProcess])
    """Ranks of processes, according to a log."""
    spawned: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    """Processes that `mp.spawn` started, as `read_spawned` returns them."""
    logs: list[tuple[str, int | None]] = field(default_factory=list[tuple[str, int | None]])
    is_cut: bool = False
    """It is a log whose last line is incomplete."""
    ending: Ending = NO_ENDING
    """How a log ends."""
    printed: tuple[PrintedLine, ...] = ()
    placed: int | None = None
    """The rank that only the path suggests; its events count as that rank's unless other files contradict."""
    speakers: frozenset[int] = frozenset()
    """Ranks that printed its lines, according to the lines."""
    sizes: frozenset[int] = frozenset()
    """Numbers of ranks of the job, as the program prints them."""
    calls_itself: int | None = None
    """The number, possibly a rank, with which each line of the program starts."""
    remarks: list[Remark] = field(default_factory=list[Remark])
    places: list[RankPlace] = field(default_factory=list[RankPlace])
    states: list[RankStates] = field(default_factory=list[RankStates])
    values: list[Values] = field(default_factory=list[Values])
    problems: list[Problem] = field(default_factory=list[Problem])

    @property
    def says_anything(self) -> bool:
        stacks = self.stacks or self.of_process or self.unnamed
        return bool(self.logs or stacks or self.remarks or self.states or any(self.values))


def keep_one_attempt(
    texts: Sequence[TextReading], choice: Choice
) -> tuple[Sequence[TextReading], tuple[SetAside, ...]]:
    """Of files in folders `attempt_0`, `attempt_1`, ... keeps those of the first attempt that failed (later failures follow
    from it), or of the requested one. Files outside such folders are always kept.
    """
    labels = {attempt_of(text.file) for text in texts}
    attempts = sorted(one for one in labels if not any(_is_part(one, other) for other in labels - {one}))
    if len(attempts) < 2 or choice.everything:
        return texts, ()
    failed = {attempt_of(text.file) for text in texts if any(event.is_failure for event in text.events)}
    judged = next((label for label in attempts if label in failed), attempts[0])
    if choice.attempt is not None:
        judged = attempts[min(choice.attempt, len(attempts) - 1)]
    others = [t for t in texts if not _is_part(attempt_of(t.file), judged) and t.file not in choice.use]
    why = f"attempt {judged[-1]} is judged (--attempt)"
    aside = tuple(SetAside(t.file, None, f"from attempt {attempt_of(t.file)[-1]}; {why}") for t in others)
    left_out = {text.file for text in others}
    return [text for text in texts if text.file not in left_out], aside


def keep_one_run(
    texts: Sequence[TextReading], capture: Capture, choice: Choice
) -> tuple[Sequence[TextReading], tuple[SetAside, ...]]:
    """If every run has a folder of its own, with its dumps and its texts: the texts beside the judged dumps, and those
    elsewhere that lie beside no dump. Without it, an error of one job explains the hang of another.
    """
    others = {_folder(one.file) for one in capture.set_aside if one.why.startswith(OF_ANOTHER_RUN)}
    if not others or choice.everything:
        return texts, ()
    judged = {_folder(trace.file) for trace in capture.traces}
    apart = others - judged
    if not apart or not any(_folder(text.file) in judged for text in texts):
        return texts, ()
    left_out = {t.file for t in texts if _folder(t.file) in apart and t.file not in choice.use}
    aside = tuple(SetAside(file, None, f"{OF_ANOTHER_RUN}, as the dumps beside it are") for file in sorted(left_out))
    return [text for text in texts if text.file not in left_out], aside


def _folder(file: str) -> str:
    return file.rpartition("/")[0]


def _is_part(outer: tuple[int, ...], inner: tuple[int, ...]) -> bool:
    """The first attempt's folder contains the second's: for example a launcher's log of all its restarts."""
    return inner[: len(outer)] == outer


def place_by_words(texts: Sequence[TextReading]) -> list[TextReading]:
    """Files with the same name in sibling folders, numbered like the workers of a node: if the lines of each start with a number
    that exceeds its file's by the same amount in all of them, that number is the rank.
    """
    sides: dict[str, list[TextReading]] = defaultdict(list)
    for text in texts:
        if text.placed is not None and text.calls_itself is not None:
            folder, _, name = text.file.rpartition("/")
            sides[f"{folder.rpartition('/')[0]}/*/{name}"].append(text)
    apart = {side: {(t.calls_itself or 0) - (t.placed or 0) for t in alike} for side, alike in sides.items()}
    sure = [alike for side, alike in sides.items() if len(alike) > 1 and len(apart[side]) == 1 and apart[side] != {0}]
    ranks = {text.file: text.calls_itself for alike in sure for text in alike}
    return [_placed_at(text, rank) if (rank := ranks.get(text.file)) is not None else text for text in texts]


def _placed_at(text: TextReading, rank: int) -> TextReading:
    return structs.replace(
        text,
        placed=rank,
        events=[structs.replace(e, rank=rank) if e.rank == text.placed else e for e in text.events],
        stacks=[replace(s, rank=rank) if s.rank == text.placed else s for s in text.stacks],
        logs=[(file, rank if owner == text.placed else owner) for file, owner in text.logs],
    )


def believe_places(texts: Sequence[TextReading], world: frozenset[int]) -> list[TextReading]:
    """Drops ranks that only the path suggests if a line in any file of the same form names another rank, if two files of the
    same form and name claim the same rank (two nodes have the same local ranks), or if the job has no such rank. A number beyond the
    size of the job that a log states is that of a host, and then so are all others in that folder.
    """
    wrong = {without_numbers(t.file) for t in texts if t.placed is not None and t.speakers - {t.placed}}
    claims = Counter((_name(text.file), text.placed) for text in texts if text.placed is not None)
    wrong |= {without_numbers(t.file) for t in texts if t.placed is not None and claims[_name(t.file), t.placed] > 1}
    size = max(stated_sizes(texts), default=0)
    hosts = {_folder(t.file) for t in texts if t.placed is not None and size and t.placed >= size}
    return [
        _disowned(text)
        if text.placed is not None
        and (without_numbers(text.file) in wrong or (world and text.placed not in world) or _folder(text.file) in hosts)
        else text
        for text in texts
    ]


def stated_sizes(texts: Sequence[TextReading]) -> set[int]:
    """Numbers of ranks, as logs say them."""
    told = {
        int(world)
        for text in texts
        for event in text.events
        if (world := event.detail("world")) and not event.is_of_agent
    }
    return told.union(*(text.sizes for text in texts))


def _folder(file: str) -> str:
    return file.rpartition("/")[0]


def own_by_speaker(texts: Sequence[TextReading]) -> list[TextReading]:
    """If in each file of one form exactly one rank prints, and a different one in each, the files are those ranks' own logs:
    their lines without a rank belong to that rank, too. A launcher's log belongs to no rank. Files of one name in folders side by
    side (`pods/trainer-2xkq8/train.log`) have one form.
    """
    forms: dict[str, list[TextReading]] = defaultdict(list)
    for text in texts:
        folders, _, _ = text.file.rpartition("/")
        forms[f"{folders.rpartition('/')[0]}/*/{_name(text.file)}" if folders else without_numbers(text.file)].append(
            text
        )
    owned = {
        text.file
        for alike in forms.values()
        if len(alike) > 1 and len({t.speakers for t in alike}) == len(alike) and all(map(_of_one_rank, alike))
        for text in alike
    }
    return [_given_to(text, next(iter(text.speakers))) if text.file in owned else text for text in texts]


def own_by_number(texts: Sequence[TextReading]) -> list[TextReading]:
    """If the number in the path gives the rank of whoever logs there, in files of one form (`worker0.log` may be rank 1's, behind
    a server), it also does in files in which nobody names itself: a process that aborts prints no prefix.
    """
    forms: dict[str, list[TextReading]] = defaultdict(list)
    for text in texts:
        if text.logs:
            forms[without_numbers(text.file)].append(text)
    found: dict[str, int] = {}
    for alike in forms.values():
        names = FileNames(text.file for text in alike)
        numbers = {text.file: number for text in alike if (number := names.varying(text.file)) is not None}
        spoken = [t for t in alike if t.speakers]
        apart = {next(iter(t.speakers)) - numbers[t.file] for t in spoken if _of_one_rank(t) and t.file in numbers}
        shown = len(spoken) > 1 and len(apart) == 1 and all(_of_one_rank(t) and t.file in numbers for t in spoken)
        offset = apart.pop() if shown else 0
        found |= {t.file: numbers[t.file] + offset for t in alike if shown and t.placed is None and t.file in numbers}
    nobodys = {t.file for t in texts if not t.speakers and t.logs == [(t.file, None)]}
    return [
        structs.replace(_given_to(t, found[t.file]), logs=[(t.file, found[t.file])])
        if t.file in found and t.file in nobodys
        else t
        for t in texts
    ]


_FEW = 2
"""This many files can match the numbers of ranks by chance: two nodes with a log each, and two ranks."""


def own_by_count(texts: Sequence[TextReading], dumped: frozenset[int]) -> list[TextReading]:
    """If a log says how many ranks there are, files of one form without an owner are the ranks' own if their numbers are valid
    ranks and reach the upper half of them: machines with two ranks or more would be numbered in the lower half. They also are
    if their numbers are exactly those of the ranks that left dumps.
    """
    worlds = stated_sizes(texts)
    names = FileNames(text.file for text in texts if text.logs)
    forms: dict[str, dict[int, TextReading]] = defaultdict(dict)
    for text in texts:
        number = names.varying(text.file) if text.logs == [(text.file, None)] else None
        if number is not None:
            forms[without_numbers(text.file)][number] = text
    world = worlds.pop() if len(worlds) == 1 else 0
    counted = [
        alike
        for alike in forms.values()
        if len(alike) > 1 and (world // 2 <= max(alike) < world or (len(alike) > _FEW and alike.keys() == dumped))
    ]
    of_hosts = {_folder(form) for form, alike in forms.items() if world and max(alike) >= world}
    found = {
        text.file: rank
        for alike in counted
        for rank, text in alike.items()
        if len(counted) == 1 and _folder(without_numbers(text.file)) not in of_hosts
    }
    return [
        structs.replace(_given_to(t, found[t.file]), logs=[(t.file, found[t.file])]) if t.file in found else t
        for t in texts
    ]


_ABORTED = "-6"
"""The exit code of a process that called abort(), which is how C++ ends a process after an uncaught exception."""
_OF_LAUNCHERS = (LogKind.AGENT_FAILURE, LogKind.AGENT_STOP)
_ABORTS = "terminate-called"
_ABORT_LINES = 3
"""`terminate called ...`, `what(): ...`, and one line in between."""


def own_by_exit(texts: Sequence[TextReading]) -> list[TextReading]:
    """C++ prints the lines of an abort without a rank. If a launcher's console has them once for each of its processes that its
    table says were ended by SIGABRT, they belong to those processes: in any order, if all of them printed the same.
    """
    return [_with_aborted(text) for text in texts]


def _with_aborted(text: TextReading) -> TextReading:
    rows = [e for e in text.events if e.kind is LogKind.AGENT_FAILURE and e.detail("code") == _ABORTED]
    aborted = sorted({e.rank for e in rows if e.rank is not None})
    begins = [e.line for e in text.events if e.pattern == _ABORTS and e.rank is None]
    if not aborted or len(aborted) != len(begins):
        return text
    if len(aborted) == 1:
        return _given_to(text, aborted[0], range(begins[0], begins[0] + _ABORT_LINES))
    within = range(begins[0], begins[-1] + _ABORT_LINES)
    said: dict[str, list[LogEvent]] = defaultdict(list)
    for event in text.events:
        if event.rank is None and event.line in within and event.kind not in _OF_LAUNCHERS:
            said[event.pattern].append(event)
    if any(len(alike) != len(aborted) or len({e.text for e in alike}) > 1 for alike in said.values()):
        return text
    ranks = {id(event): rank for alike in said.values() for event, rank in zip(alike, aborted, strict=True)}
    events = [structs.replace(e, rank=rank) if (rank := ranks.get(id(e))) is not None else e for e in text.events]
    return structs.replace(text, events=events)


def _of_one_rank(text: TextReading) -> bool:
    launched = any(e.kind in _OF_LAUNCHERS for e in text.events)
    return len(text.speakers) == 1 and not launched


def _given_to(text: TextReading, rank: int, lines: range | None = None) -> TextReading:
    """Lines without a rank, these or all, become the lines of this rank."""
    given = [e.rank is None and (lines is None or e.line in lines) for e in text.events]
    events = [structs.replace(e, rank=rank) if own else e for e, own in zip(text.events, given, strict=True)]
    return structs.replace(text, events=events)


def _name(file: str) -> str:
    return without_numbers(file.rpartition("/")[2])


def _disowned(text: TextReading) -> TextReading:
    """The text without the rank that only its path suggested."""
    logs = [(file, None if rank == text.placed and rank not in text.speakers else rank) for file, rank in text.logs]
    named = [log for log in logs if log[1] is not None]
    return structs.replace(
        text,
        events=[_of_nobody(event, text.placed) for event in text.events],
        stacks=[stack for stack in text.stacks if stack.rank != text.placed],
        logs=named or logs,
    )


def _of_nobody(event: LogEvent, rank: int | None) -> LogEvent:
    return structs.replace(event, rank=None) if event.rank == rank and event.speaker.rank is None else event
