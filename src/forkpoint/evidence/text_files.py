"""Text files: kernel messages, RAS answers, stacks and logs, detected by how they begin; and their attempt and rank."""

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import BinaryIO, cast

from msgspec import structs

from forkpoint.evidence.file_names import FileNames, PathWords, spelled_rank, without_numbers
from forkpoint.evidence.files import SNIFF, Continued
from forkpoint.evidence.logs import read_log
from forkpoint.evidence.machine.kernel import kernel_remarks, looks_like_kernel_log, read_kernel_log
from forkpoint.evidence.machine.places import SAYS_PLACE, agree, locate, read_places
from forkpoint.evidence.machine.ras import looks_like_ras, ras_remarks, read_ras
from forkpoint.evidence.owners import (
    TextReading,
    believe_places,
    keep_one_attempt,
    keep_one_run,
    own_by_count,
    own_by_exit,
    own_by_number,
    own_by_speaker,
    place_by_words,
    stated_sizes,
)
from forkpoint.evidence.processes import (
    OfProcess,
    agree_on_processes,
    find_process,
    order_ended,
    order_spawned,
    processes_of_events,
    read_exit_table,
    read_listed_processes,
    read_processes,
    read_spawned,
)
from forkpoint.evidence.rank_states import looks_like_rank_states, read_rank_states
from forkpoint.evidence.stacks.read import looks_like_stacks, read_live_stacks
from forkpoint.evidence.stacks.threads import RankStacks, ThreadKind
from forkpoint.evidence.values import join_values, looks_like_values, read_values
from forkpoint.model.capture import UNNAMED_THREAD, Capture, LiveStack, Problem
from forkpoint.model.frames import user_frames
from forkpoint.model.log import LogEvent, LogKind
from forkpoint.model.traces import Traces
from forkpoint.traces.admission import ADMIT_BY_PROOF, Choice, attempt_of

# ---------------------------------------------------------------------------------------------------------------------
# Text files: kernel messages, RAS answers, stacks and logs, detected by how they begin.

_OTHER_THREADS = 32
"""How many other threads of a rank are kept; few of them run the program's own code."""
IN_MEMORY = 1 << 24
"""Only logs are read beyond this size, as a stream."""
_OWN = re.compile(
    r'\{\s{0,8}"schema": "forkpoint\.|<!doctype html>\n<html lang="en">\n<head>[^\0]{0,4000}<title>forkpoint: '
)
_LOG_LINE = re.compile(r"^\[rank\d{1,7}\]:", re.MULTILINE)


def with_texts(
    capture: Capture, texts: Sequence[TextReading], empty: Sequence[str], choice: Choice = ADMIT_BY_PROOF
) -> Capture:
    """The capture with what text files say. `empty`: text files without content, which may mean that a rank did not answer."""
    traces = capture.traces
    texts = [text for text in texts if not _is_program(text)]
    texts, of_attempts = keep_one_attempt(texts, choice)
    texts, of_runs = keep_one_run(texts, capture, choice)
    texts = believe_places(place_by_words(texts), frozenset(rank for trace in traces[:1] for rank in trace.world or ()))
    texts = own_by_exit(own_by_count(own_by_number(own_by_speaker(texts)), frozenset(traces.ranks.tolist())))
    texts, nameless, guessed = _with_processes(texts)
    texts, unnamed = _with_words(texts, traces)
    places = agree([place for text in texts for place in text.places])
    logs = tuple(log for text in texts for log in text.logs)
    ranks = set(traces.ranks.tolist()) | {rank for _, rank in logs if rank is not None}
    states = [state for text in texts for state in text.states]
    for state in states:
        traces = traces.declare(state.world, state.groups)
    values, left_out = join_values([part for text in texts for part in text.values], traces)
    return replace(
        capture,
        traces=traces,
        values=values,
        problems=(*capture.problems, *left_out, *nameless, *guessed, *unnamed),
        nameless_stacks=tuple(problem.file for problem in nameless),
        set_aside=(*capture.set_aside, *of_attempts, *of_runs),
        attempt=choice.attempt or 0,
        may_mix_attempts=bool(of_attempts) and not all(attempt_of(trace.file) for trace in traces),
        steps=tuple(step for state in states for step in state.steps),
        events=tuple(_without_agent(event) for text in texts for event in text.events),
        stacks=tuple(_without_bystanders([stack for text in texts for stack in text.stacks])),
        logs=logs,
        sizes=frozenset(size for text in texts for size in text.sizes),
        cut_logs=frozenset(text.file for text in texts if text.is_cut),
        log_ends={text.file: text.ending for text in texts if text.ending.lines},
        printed={text.file: text.printed for text in texts if text.printed},
        unanswered=_unanswered(empty, texts),
        empty_logs=_empty_logs(empty, texts),
        remarks=locate([remark for text in texts for remark in text.remarks], places, ranks),
        places=places,
    )


def _without_agent(event: LogEvent) -> LogEvent:
    """The file may have the number of a node."""
    return structs.replace(event, rank=None) if event.rank is not None and event.is_of_agent else event


def _is_program(text: TextReading) -> bool:
    """Python source that lies beside the evidence: its lines are no log, and nobody printed them."""
    told = text.stacks or text.of_process or text.unnamed or text.remarks or text.states or any(text.values)
    return text.file.endswith(".py") and not told and all(event.kind is LogKind.NOTICE for event in text.events)


def _with_processes(texts: Sequence[TextReading]) -> tuple[list[TextReading], list[Problem], list[Problem]]:
    """Assigns stacks that only state a process id to a rank, if a log says which rank that process is or the file names count the
    processes. Also returns the problems: stacks without a rank, and stacks whose rank is only counted.
    """
    alone = [text for text in texts if text.of_process]
    rank_of = agree_on_processes(_said_of_processes(texts)) if alone else {}
    counted = {} if rank_of else _count_processes(alone)
    rank_of |= {pid: rank for pid, (rank, _) in counted.items()}
    owned = [
        structs.replace(
            text, stacks=[*text.stacks, *(replace(s, rank=rank_of[p]) for p, s in text.of_process if p in rank_of)]
        )
        for text in texts
    ]
    nameless = [
        Problem(stack.file, f"nothing says which rank process {pid} is; put its rank in the file name (rank_N.txt)")
        for text in texts
        for pid, stack in text.of_process
        if pid not in rank_of
    ]
    guessed = [
        Problem(file, f"its stack counts as rank {rank}'s, by the number in its name")
        for rank, file in counted.values()
    ]
    return owned, nameless, guessed


def _said_of_processes(texts: Sequence[TextReading]) -> Iterator[OfProcess]:
    """Which rank each process is: by lines of logs, and by the order in which a launcher started or ended them."""
    yield from (pair for text in texts for pair in (*text.processes, *processes_of_events(text.events)))
    speakers = {rank for text in texts for rank in text.speakers}
    world = max((*stated_sizes(texts), max(speakers, default=-1) + 1))
    yield from order_ended((event for text in texts for event in text.events), world)
    yield from order_spawned({one for text in texts for one in text.spawned})


def _with_words(texts: Sequence[TextReading], traces: Traces) -> tuple[list[TextReading], list[Problem]]:
    """Assigns stacks without a rank by words that their paths share with files of just one rank, if each gets another one."""
    alone = [text for text in texts if text.unnamed]
    if not alone:
        return list(texts), []
    logs = [(text.file, rank) for text in texts if len(text.logs) == 1 for _, rank in text.logs if rank is not None]
    words = PathWords([*((trace.file, trace.rank) for trace in traces), *logs])
    found = {
        text.file: rank for text in alone if len(text.unnamed) == 1 and (rank := words.rank(text.file)) is not None
    }
    found = found if len(set(found.values())) == len(found) else {}
    owned = [
        structs.replace(text, stacks=[*text.stacks, *(replace(s, rank=found[text.file]) for s in text.unnamed)])
        if text.file in found
        else text
        for text in texts
    ]
    return owned, [
        Problem(
            text.file,
            f"the rank of the stack at line {text.unnamed[0].line} is not known; put its rank in the file name (rank_N.txt)",
        )
        for text in alone
        if text.file not in found
    ]


_COUNTED = 3
"""Minimum number of files that must be numbered consecutively: with two, it may be chance."""


def _count_processes(texts: Sequence[TextReading]) -> dict[int, tuple[int, str]]:
    """Rank and file by process, if nothing says which rank a process is, each file has one process, and the file names number
    them.
    """
    names = FileNames(text.file for text in texts)
    found = {
        pid: (rank, t.file) for t in texts for pid, _ in t.of_process if (rank := names.counted(t.file)) is not None
    }
    every = len(found) == len(texts) == len({rank for rank, _ in found.values()}) >= _COUNTED
    return found if every and all(len(text.of_process) == 1 for text in texts) else {}


def _unanswered(empty: Sequence[str], texts: Sequence[TextReading]) -> tuple[tuple[str, int], ...]:
    """Empty files named like those with the stacks of other ranks. A program that writes stacks on a signal opens the file at
    startup (`faulthandler.register`). Empty logs do not count.
    """
    stacks = {without_numbers(stack.file) for text in texts if not text.logs for stack in text.stacks}
    named = ((name, spelled_rank(name)) for name in empty if without_numbers(name) in stacks)
    return tuple((name, rank) for name, rank in named if rank is not None)


def _empty_logs(empty: Sequence[str], texts: Sequence[TextReading]) -> tuple[tuple[str, int], ...]:
    """Empty files named like the logs of other ranks, of the attempt that is judged."""
    logs = [text.file for text in texts if text.logs]
    forms, attempts = set(map(without_numbers, logs)), set(map(attempt_of, logs))
    names = FileNames([*logs, *empty])
    alike = [name for name in empty if without_numbers(name) in forms and attempt_of(name) in attempts]
    ranks = ((name, names.placed(name) if (rank := names.spelled(name)) is None else rank) for name in alike)
    return tuple((name, rank) for name, rank in ranks if rank is not None)


def read_text(stream: BinaryIO, name: str, names: FileNames) -> TextReading:
    """Everything a text file says. Only logs are read beyond IN_MEMORY bytes."""
    rank, placed = names.spelled(name), names.placed(name)
    reading = TextReading(name, placed=placed)
    owner = rank if placed is None else placed
    data = stream.read(IN_MEMORY)
    text = data.decode("utf-8", "replace")
    head = text[:SNIFF]
    if looks_like_kernel_log(head):
        reading.remarks += kernel_remarks(read_kernel_log(text, name))
    elif looks_like_rank_states(head):
        states = read_rank_states(text, name)
        reading.states.append(states)
        reading.events += states.events
    elif looks_like_values(head):
        values, problems = read_values(text, name)
        reading.values.append(values)
        reading.problems += problems
    elif _is_own_report(head):
        return reading
    elif looks_like_ras(head):
        reading.remarks += ras_remarks(read_ras(text, name))
        if _LOG_LINE.search(text):  # a person pasted the answer together with the log it belongs to
            _read_log(io.BytesIO(data), text, name, None, reading)
    elif looks_like_stacks(head):
        pid, spawned = find_process(text), read_spawned(text)
        reading.spawned += [spawned] if spawned else []
        found = read_live_stacks(text, name, None if owner == pid else owner)
        _keep_stacks(found, name, reading)
        if not found:
            reading.problems.append(Problem(name, "begins like stacks, but no frame can be read; is it truncated?"))
    else:
        reading.events += read_exit_table(text, name)
        _read_log(_whole(data, stream), text, name, owner, reading)
        return reading
    if len(data) == IN_MEMORY and stream.read(1):
        reading.problems.append(
            Problem(name, f"only its first {IN_MEMORY >> 20} MB were read; split it into smaller files")
        )
    return reading


def _is_own_report(head: str) -> bool:
    """Output of forkpoint (a verdict, a report, a manifest, results of `doctor`): not evidence."""
    return _OWN.match(head) is not None


_NOBODY = -1


def _keep_stacks(found: Iterable[RankStacks], name: str, reading: TextReading) -> None:
    for stacks in found:
        if stacks.main is None:
            continue
        live = _live_stack(stacks, _NOBODY if stacks.rank is None else stacks.rank, name)
        if stacks.rank is not None:
            reading.stacks.append(live)
        elif stacks.pid is not None:
            reading.of_process.append((stacks.pid, live))
        else:
            reading.unnamed.append(live)


def _live_stack(stacks: RankStacks, rank: int, file: str) -> LiveStack:
    helper, main = stacks.helper, stacks.main
    assert main is not None  # checked by the caller
    named = None if helper is None or helper.kind is ThreadKind.AUTOGRAD else helper.name or UNNAMED_THREAD
    others = [(t.name or "", t.stack) for t in stacks.threads if t.kind is ThreadKind.OTHER and user_frames(t.stack)]
    on_top = len(helper.stack) if helper else 0
    return LiveStack(rank, file, stacks.line, stacks.stack, named, main.seen, tuple(others[:_OTHER_THREADS]), on_top)


def _without_bystanders(stacks: Sequence[LiveStack]) -> list[LiveStack]:
    """A thread that other ranks run at the same line while their main threads do not wait for it, such as a heartbeat, is not what
    this rank's main thread waits for.
    """
    running = {
        (stack.rank, tuple((f.filename, f.line) for f in user_frames(thread)))
        for stack in stacks
        if not stack.on_top
        for _, thread in stack.others
    }
    ranks = {rank for rank, _ in running}

    def is_bystander(stack: LiveStack) -> bool:
        lines = tuple((f.filename, f.line) for f in user_frames(stack.stack[: stack.on_top]))
        return stack.thread is not None and any((rank, lines) in running for rank in ranks - {stack.rank})

    return [replace(s, stack=s.stack[s.on_top :], thread=None, on_top=0) if is_bystander(s) else s for s in stacks]


def _whole(data: bytes, stream: BinaryIO) -> io.BufferedIOBase:
    """The whole file: the bytes already read, and the rest."""
    if len(data) < IN_MEMORY:
        return io.BytesIO(data)
    if stream.seekable():
        stream.seek(0)
        return cast("io.BufferedIOBase", stream)
    return io.BufferedReader(cast("io.FileIO", Continued(data, stream)), SNIFF)


def _ends_within_a_line(source: io.BufferedIOBase) -> bool:
    """False for a pipe: it cannot be checked before it is read."""
    if not source.seekable():
        return False
    source.seek(-1, io.SEEK_END)
    last = source.read(1)
    source.seek(0)
    return last != b"\n"


def _read_log(source: io.BufferedIOBase, text: str, name: str, rank: int | None, reading: TextReading) -> None:
    reading.is_cut = _ends_within_a_line(source)
    log = read_log(cast("BinaryIO", source), name, rank)
    reading.speakers, reading.calls_itself, reading.sizes = log.speakers, log.calls_itself, log.sizes
    if reading.placed is not None and log.introduces is not None and not log.speakers:
        reading.speakers = frozenset({log.introduces})  # a number in a path may be that of a host
    owners = reading.speakers | ({rank} if rank is not None else set[int]())
    reading.logs += [(name, owner) for owner in sorted(owners)] or [(name, None)]
    reading.events += log.events
    reading.ending = log.ending
    reading.printed = log.printed
    reading.problems += log.problems
    _keep_stacks(log.stacks, name, reading)
    reading.processes += (*read_processes(text), *read_listed_processes(text))
    if SAYS_PLACE in text:  # parsing each line takes longer than all the rest
        reading.places += read_places(io.StringIO(text), name, rank)
