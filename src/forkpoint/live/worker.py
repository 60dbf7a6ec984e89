"""The child process that diagnoses (`children`): reads a `Task`, runs the engine, decides what a scheduler should do.

Doubt never stops a job: a retry that was not needed costs minutes and is bounded, but a job that was wrongly stopped waits
for a person. So exit code 93 needs a likely verdict, 76 a known node, and everything else is left to the user's own policy.
"""

import dataclasses
import io
import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from forkpoint.errors import ForkpointError
from forkpoint.evidence import read
from forkpoint.judge.facts.cite import LIKELY
from forkpoint.live.children import (
    ANY_NODE,
    DO_NOT_RETRY,
    RETRY,
    RETRY_ELSEWHERE,
    Decision,
    DecisionTask,
    Diagnosed,
    NotDiagnosed,
    PageTask,
    StoreTask,
    Task,
)
from forkpoint.model.capture import Capture
from forkpoint.model.verdict import Action, Cause, Site, Verdict
from forkpoint.model.world import name_ranks
from forkpoint.pipeline import diagnose
from forkpoint.report.json_report import render_json
from forkpoint.report.verdict_line import render_line
from forkpoint.sinks.notice import Notice, NoticeOrigin

_MAX_SITES: Final = 3
_MAY_PASS: Final = (
    Action.REPLACE_OR_RETRY,
    Action.FIX_CODE_OR_STORAGE,
    Action.FIX_CODE_OR_HARDWARE,
    Action.RAISE_TIMEOUT,
)
"""Another attempt may get past these. If it does not, `forkpoint run` stops after the second."""
_STEP: Final = re.compile(rb"\b(?:global_)?(?:step|iter(?:ation)?)s?\b\W{0,3}(\d{1,12})(?!\d|\.\d)", re.IGNORECASE)
_LOOKS_S: Final = 0.5
_TAIL: Final = 1 << 20
"""Bytes read from the end of each log: only the last step matters."""


def main() -> None:
    if len(sys.argv) > 1:
        threading.Thread(target=_end_with, args=(int(sys.argv[1]),), daemon=True).start()
    task = msgspec.convert(json.load(sys.stdin), Task)
    try:
        told = work(task)
    except ForkpointError as error:
        told = NotDiagnosed(str(error))
    sys.stdout.write(json.dumps(msgspec.to_builtins(told)))


def _end_with(parent: int) -> None:
    """Exits when the parent is gone: nobody would read the answer, and nobody would end this process."""
    while os.getppid() == parent:
        time.sleep(_LOOKS_S)
    os._exit(1)


def work(task: Task) -> Diagnosed:
    capture = read(task.paths)
    page, wanted = task.page, task.decision
    embed_source = page is not None and page.embed_source
    verdict = diagnose(capture, task.source, picture=page is not None, embed_source=embed_source)
    memory = _remember(verdict, capture, task, task.store) if task.store else _Memory()
    return Diagnosed(
        cause=verdict.cause,
        action=verdict.action,
        suspects=verdict.suspects,
        confidence=verdict.confidence,
        headline=verdict.headline,
        summary=verdict.summary,
        document=render_json(verdict),
        line=render_line(verdict),
        group=verdict.divergence.group.name if verdict.divergence else "",
        seq=_seq(verdict),
        sites=tuple(map(_name_site, verdict.sites[:_MAX_SITES])),
        when=max((moment.utc for moment in verdict.moments if moment.utc), default=None),
        report=_report(verdict, task.report_width) if task.report_width else "",
        page=_page(verdict, page, memory.seen) if page else "",
        step=find_last_step([file for file, _ in capture.logs]) if wanted else None,
        decision=_decide(verdict, capture, wanted) if wanted else None,
        seen=memory.seen,
        store_problem=memory.problem,
        incident=memory.incident,
        notice=_notice(verdict, capture, task.origin, memory.seen) if task.origin else None,
        value=_value(verdict) if task.with_value else None,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _Memory:
    """What the store knows, and the incident if it was not written yet."""

    seen: tuple[str, ...] = ()
    problem: str | None = None
    incident: dict[str, Any] | None = None


def _remember(verdict: Verdict, capture: Capture, task: Task, store: StoreTask) -> _Memory:
    """`os.environ` is that of the job."""
    from forkpoint.history.incident import describe_incident, job_of  # noqa: PLC0415 - most tasks have no store
    from forkpoint.history.keeping import keep  # noqa: PLC0415 - as above

    source = task.source[0] if task.source else str(Path.cwd())
    nodes = find_nodes(capture, Path(task.decision.attempt)) if task.decision else {}
    incident = describe_incident(verdict, capture, job_of(os.environ, source, store.run, store.attempt), nodes)
    if incident is None:
        return _Memory()
    kept = keep(store.place, incident, write=store.write)
    return _Memory(kept.seen, kept.problem, None if store.write else msgspec.to_builtins(incident))


def _notice(verdict: Verdict, capture: Capture, origin: NoticeOrigin, seen: Sequence[str]) -> Notice:
    from forkpoint.sinks.describe import describe_notice  # noqa: PLC0415 - most tasks notify no service

    return describe_notice(verdict, capture, origin, seen)


def _seq(verdict: Verdict) -> int | None:
    found = verdict.divergence
    return None if found is None else found.hang_seq if found.hang_seq is not None else found.seq


def _name_site(site: Site) -> str:
    return f"{site.file}:{site.line}" + (f" ({site.why})" if site.why else "")


def _page(verdict: Verdict, page: PageTask, seen: Sequence[str]) -> str:
    from forkpoint.report.page import Live, render_html  # noqa: PLC0415 the guard's verdict does not wait for it

    return render_html(verdict, live=Live(page.events, page.home), seen=seen)


def _report(verdict: Verdict, width: int) -> str:
    from rich.console import Console  # noqa: PLC0415 as above

    from forkpoint.report.text import render_text  # noqa: PLC0415 as above

    text = io.StringIO()
    Console(file=text, width=width, color_system=None).print(
        render_text(verdict, width), soft_wrap=True, highlight=False
    )
    return text.getvalue()


# ------------------------------------------------------------------------------------------------ the verdict as a value


def _value(verdict: Verdict) -> dict[str, Any]:
    return msgspec.to_builtins({name: getattr(verdict, name) for name in _value_types()})


def read_verdict(value: Mapping[str, Any]) -> Verdict:
    """For callers that judge further, as the controller does."""
    return Verdict(**{name: msgspec.convert(value[name], kind) for name, kind in _value_types().items()})


def _value_types() -> dict[str, Any]:
    """All fields but the picture, which only a page needs, and source lines, which stay in the worker."""
    return {field.name: field.type for field in dataclasses.fields(Verdict) if field.name not in ("picture", "quotes")}


# ---------------------------------------------------------------------------------------------------------- the decision


def _decide(verdict: Verdict, capture: Capture, wanted: DecisionTask) -> Decision:
    return decide(verdict, wanted.child_code, find_nodes(capture, Path(wanted.attempt)))


def decide(verdict: Verdict, child_code: int, nodes: Mapping[int, str]) -> Decision:
    """`nodes`: the node of each rank, where known. `child_code` is used where the evidence does not decide."""
    if verdict.cause in (Cause.INCONCLUSIVE, Cause.HEALTHY):
        return Decision(child_code, f"the evidence does not decide ({verdict.cause}): your own policy applies")
    if verdict.confidence < LIKELY:
        return Decision(child_code, f"{verdict.cause} is not certain enough to act on: your own policy applies")
    if verdict.action is Action.FIX_CODE:
        return Decision(DO_NOT_RETRY, f"{verdict.cause}: the same code would fail again")
    if verdict.action is Action.REPLACE_NODE:
        return _leave_out(verdict, nodes)
    if verdict.action in _MAY_PASS:
        return Decision(RETRY, f"{verdict.cause} ({verdict.action}): another attempt may pass")
    return Decision(child_code, f"{verdict.cause} ({verdict.action}): a person has to look, your own policy applies")


def _leave_out(verdict: Verdict, nodes: Mapping[int, str]) -> Decision:
    """The nodes of all suspects must be known: with one of two excluded, the next attempt may get the other."""
    suspects = verdict.suspects
    if not suspects or any(rank not in nodes for rank in suspects):
        return Decision(
            RETRY, f"{verdict.cause}: a node is at fault, but it is not known which: check before you retry"
        )
    named = tuple(sorted({nodes[rank] for rank in suspects}))
    return Decision(RETRY_ELSEWHERE, f"{verdict.cause}: {name_ranks(suspects)} ran on {', '.join(named)}", named)


def find_nodes(capture: Capture, attempt: Path) -> dict[int, str]:
    """The node of each rank: what NCCL's log says, else the node folder with its files. Contradictions count as unknown."""
    by_folder: dict[int, set[str]] = {}
    for rank, file in _files(capture):
        node = _node_of(file, attempt)
        if node is not None:
            by_folder.setdefault(rank, set()).add(node)
    by_log: dict[int, set[str]] = {}
    for place in capture.places:
        by_log.setdefault(place.rank, set()).add(place.host)
    return {rank: next(iter(nodes)) for rank, nodes in (by_folder | by_log).items() if len(nodes) == 1}


def _files(capture: Capture) -> set[tuple[int, str]]:
    return {
        *((trace.rank, trace.file) for trace in capture.traces),
        *((rank, file) for file, rank in capture.logs if rank is not None),
        *((event.rank, event.file) for event in capture.events if event.rank is not None),
    }


def _node_of(file: str, attempt: Path) -> str | None:
    path = Path(file).absolute()
    if not path.is_relative_to(attempt):
        return None
    node = path.relative_to(attempt).parts[0]
    return None if node == ANY_NODE else node


def find_last_step(logs: Iterable[str]) -> int | None:
    """The highest training step in the logs: `step 120`, `iter: 120/5000`, `global_step=120`.

    Only compared with another attempt of the same job, to see which got further.
    """
    return max((int(number) for log in logs for number in _STEP.findall(_tail(log))), default=None)


def _tail(log: str) -> bytes:
    try:
        with Path(log).open("rb") as file:
            file.seek(-min(_TAIL, file.seek(0, io.SEEK_END)), io.SEEK_END)
            return file.read(_TAIL)
    except OSError:  # it came from an archive, or is gone
        return b""


if __name__ == "__main__":
    main()
