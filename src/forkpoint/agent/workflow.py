"""The workflow of a model: reading phases, then a hypothesis that is checked and may be corrected, then a probe or a fix."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from itertools import chain, islice

from forkpoint import __version__
from forkpoint.agent.case import ClaimStatus, Shown, Tool, Wire
from forkpoint.agent.catalogue import Offered, offer_at, offers
from forkpoint.agent.hypothesis import (
    MAX_CLAIMS,
    Checked,
    CheckedClaim,
    Explanation,
    ModelHypothesis,
    Remedy,
    check_claims,
    compare,
)
from forkpoint.agent.model import Call, ModelFailed, Offer, Spent
from forkpoint.agent.patch_check import check_patch
from forkpoint.agent.talk import HYPOTHESIS, REMEDY, REPAIR, GoOn, OfferAt, RemedyChoice, Talk
from forkpoint.agent.tools import BY_NAME
from forkpoint.agent.transcript import SCHEMA, TranscriptRecord
from forkpoint.brief.case import Case, Fact, QuestionRefused, fact
from forkpoint.model.verdict import Cause
from forkpoint.report.json_report import render_json

# ---------------------------------------------------------------------------------------------------------------------
# The reading phases: what the engine shows first, and which questions the model may then ask.
#
# The engine sets the order, not the model. Each phase begins with facts that the model need not ask for.

_SITES = 3
_AROUND_SITE = 6


@dataclass(frozen=True, slots=True)
class Phase:
    name: str
    task: str
    """What the model is to do."""
    shows: Callable[[Case], Iterator[Fact]]
    tools: tuple[str, ...]
    looks: int = 3
    """Requests that may use tools; the next one can only end the phase."""


_FAR = 6
"""Looks in the source phase, which needs the most reading."""
_SOURCE_TOOLS = ("read_source", "callers", "taint", "lint", "history", "stack_diff", "threads")
"""No more than these: providers limit the number of nullable fields in a request."""


_SYMPTOM = "Phase 1, symptom. What failed, and which ranks say so? The rank that prints an error is usually a victim."
_PROGRESS = "Phase 2, progress. How far did each rank get in each group, and who is behind?"
_COHORTS = "Phase 3, cohorts. Which ranks behaved alike, and what did each cohort do last?"
_MISMATCH = (
    "Phase 4, earliest mismatch. Which is the first slot in which ranks differ? It may come before the one in which they "
    "wait. A rank without a record is not a rank that did not call."
)
_SOURCE = (
    "Phase 5, source. Which condition, loop or handler lets only some ranks reach the call, and why can it differ by rank? Go "
    "where the evidence leads: other files, callers, the history of these lines, what lint finds."
)


def _show_symptom(case: Case) -> Iterator[Fact]:
    verdict = case.verdict
    yield fact(case, "verdict", f"symptom {verdict.symptom or 'not known'}; {verdict.summary}")
    yield fact(
        case,
        "coverage",
        f"{verdict.coverage.dumps} dumps, {verdict.coverage.logs} logs of {verdict.coverage.ranks} ranks",
    )
    yield from _asked(case, "evidence")


def _show_progress(case: Case) -> Iterator[Fact]:
    return _asked(case, "progress")


def _show_cohorts(case: Case) -> Iterator[Fact]:
    return _asked(case, "table", around=0)


def _show_mismatch(case: Case) -> Iterator[Fact]:
    found = case.verdict.divergence
    if found is None:
        return iter(())
    seq = next((s for s in (found.seq, found.first_visible_seq, found.hang_seq) if s is not None), None)
    if found.channel is not None:
        source, destination = found.channel
        return _asked(case, "channels", source=source, destination=destination, number=seq)
    return _asked(case, "table", around=1) if seq is not None else iter(())


def _show_source(case: Case) -> Iterator[Fact]:
    sites = case.verdict.sites[:_SITES]
    told = (fact(case, f"{s.file}:{s.line}", s.why) for s in sites if s.why)
    lines = (_asked(case, "read_source", file=s.file, line=s.line, around=_AROUND_SITE) for s in sites)
    return chain(told, chain.from_iterable(lines))


def _asked(case: Case, name: str, **arguments: object) -> Iterator[Fact]:
    """The tool's facts; nothing if it refuses."""
    tool = BY_NAME[name]
    try:
        found = tool.answer(case, tool.arguments(**arguments))
    except QuestionRefused:
        return iter(())
    return iter(found)


PHASES = (
    Phase("symptom", _SYMPTOM, _show_symptom, ("why", "evidence", "files", "log_lines", "explain", "similar")),
    Phase("progress", _PROGRESS, _show_progress, ("progress", "waits", "log_lines")),
    Phase("cohorts", _COHORTS, _show_cohorts, ("table", "threads")),
    Phase("earliest mismatch", _MISMATCH, _show_mismatch, ("table", "channels", "stack_diff")),
    Phase("source", _SOURCE, _show_source, _SOURCE_TOOLS, looks=_FAR),
)


# ---------------------------------------------------------------------------------------------------------------------
# The loop: reading phases, then a hypothesis that is checked and may be corrected, then a probe or a fix.
#
# Invalid output of a model is refused and listed in the result; a failed endpoint or a spent budget ends the explanation early.
# The verdict stays the same in any case.

_SUBMIT = "submit_hypothesis"
_LOOKS = 3
"""Requests for choosing a remedy."""
_TRIES = 2
"""Attempts to hand in a readable hypothesis."""
_MAX_NOTE = 300
_MAX_READ = 2_000
"""Characters of a note that are read: redacting a page takes seconds."""
_MAX_CHOSEN = 3


class _WorkflowRun:
    """One run of the workflow. Keeps the results so far, so that a later failure does not lose them."""

    def __init__(self, talk: Talk) -> None:
        self.talk = talk
        self.notes: list[str] = []
        self.kept: dict[str, Shown] = {}
        self.hypothesis: ModelHypothesis | None = None
        self.checked = Checked((), ())
        self.remedies: tuple[Remedy, ...] | None = None
        """None: nothing was chosen yet."""

    def run(self, tools: Mapping[str, Tool]) -> None:
        for phase in PHASES:
            if self.talk.account.may_read_on:
                self._read(phase, [tools[name] for name in phase.tools])
            else:
                self.talk.refuse(f"the phase {phase.name} was left out, to leave budget for a hypothesis")
        self._conclude()
        if self.talk.case.analysis is not None and self.talk.case.verdict.cause is not Cause.HEALTHY:
            self._choose()

    def _begin(self, name: str, task: str, facts: tuple[Shown, ...]) -> None:
        """Notes and facts kept from earlier phases come first."""
        notes = "".join(f"\nYour note: {note}" for note in self.notes)
        fresh = {shown.id for shown in facts}
        kept = [shown for shown in self.kept.values() if shown.id not in fresh]
        self.talk.begin(name, f"{task}{notes}", (*kept[-self.talk.account.budget.facts :], *facts))

    def _read(self, phase: Phase, tools: Sequence[Tool]) -> None:
        talk = self.talk
        limit = talk.account.budget.facts
        self._begin(phase.name, phase.task, talk.show(tuple(islice(phase.shows(talk.case), limit + 1))))
        for look in range(phase.looks + 1):
            asking = tools if look < phase.looks and talk.account.may_look else ()
            offered = [talk.offer(t.arguments, t.name, t.description) for t in asking]
            reply = talk.ask([*offered, talk.offer(GoOn, "go_on", "End this phase.")])
            talk.answer_all(reply, partial(self._answer, {tool.name: tool for tool in asking}))
            if not reply.calls or any(call.name == "go_on" for call in reply.calls):
                return

    def _answer(self, tools: dict[str, Tool], call: Call) -> str:
        if call.name in tools:
            return self.talk.use(tools[call.name], call)
        if call.name != "go_on":
            return _no_such([*tools, "go_on"])
        parsed = self.talk.parse(GoOn, call)
        if isinstance(parsed, str):
            return parsed
        note = self.talk.case.clean(parsed.note[:_MAX_READ])[:_MAX_NOTE]
        self.notes += [note] if note else []
        self.kept |= {shown.id: shown for shown in self.talk.ledger.shown if shown.id in parsed.evidence}
        return "noted"

    def _conclude(self) -> None:
        """Asks for corrections until no claim is contradicted, or as many as before."""
        self._begin("hypothesis", HYPOTHESIS, ())
        self._hand_in()
        before = MAX_CLAIMS + 1
        while 0 < len(wrong := [c for c in self.checked.claims if c.status is ClaimStatus.CONTRADICTED]) < before:
            before = len(wrong)
            self._tell_wrong(wrong)
            self._hand_in()

    def _tell_wrong(self, wrong: Sequence[CheckedClaim]) -> None:
        clean = self.talk.case.clean
        told = (f"- {clean(c.claim.sentence())}: {clean(c.check.why)}" for c in wrong)
        facts = self.talk.show(tuple(f for c in wrong for f in c.check.facts))
        self.talk.say("\n".join([REPAIR, *told, "", *map(str, facts)]))

    def _hand_in(self) -> None:
        """Asks for a hypothesis and checks it; a readable one replaces the one before."""
        talk = self.talk
        for _ in range(_TRIES):
            reply = talk.ask([talk.offer(ModelHypothesis, _SUBMIT, "Hand in your hypothesis; its claims are checked.")])
            handed: list[ModelHypothesis] = []
            talk.answer_all(reply, partial(self._answer_hypothesis, handed))
            if handed:
                self.hypothesis = handed[0]
                self.checked = check_claims(talk.case, talk.ledger, handed[0])
                told = [_on_record(talk.case, checked) for checked in self.checked.claims]
                talk.transcript.write(TranscriptRecord("checked", {"claims": told}))
                return
            if not reply.calls:
                talk.say(f"Call {_SUBMIT}.")
        talk.refuse("the model's hypothesis could not be read")

    def _answer_hypothesis(self, handed: list[ModelHypothesis], call: Call) -> str:
        if call.name != _SUBMIT:
            return _no_such([_SUBMIT])
        parsed = self.talk.parse(ModelHypothesis, call)
        handed += [parsed] if isinstance(parsed, ModelHypothesis) else []
        return _received(parsed)

    def _choose(self) -> None:
        known = {offered.id: offered for offered in offers(self.talk.case)}
        self._begin("probe or fix", f"{REMEDY}\n{self._list(known.values())}", ())
        for _ in range(_LOOKS):
            reply = self.talk.ask(self._choices(known))
            self.talk.answer_all(reply, partial(self._answer_choice, known))
            if self.remedies is not None or not reply.calls:
                return
        self.talk.refuse("the model's choice could not be read")

    def _choices(self, known: dict[str, Offered]) -> list[Offer]:
        choose = self.talk.offer(RemedyChoice, "choose", "Choose probes and fixes; ends the workflow.", tuple(known))
        at = self.talk.offer(OfferAt, "offer_at", "The engine's probes and fixes for a line of source.")
        return [choose, at] if self.talk.account.may_look else [choose]

    def _answer_choice(self, known: dict[str, Offered], call: Call) -> str:
        if call.name == "offer_at":
            return self.talk.look(OfferAt, call, partial(self._offer_at, known))
        if call.name != "choose":
            return _no_such(["choose", "offer_at"])
        choice = self.talk.parse(RemedyChoice, call)
        if isinstance(choice, RemedyChoice):
            self.remedies = tuple(self._chosen(choice, known))
        return _received(choice)

    def _offer_at(self, known: dict[str, Offered], at: OfferAt) -> str:
        found = offer_at(self.talk.case, at.file, at.line)
        known |= {offered.id: offered for offered in found}
        return self._list(found)

    def _list(self, offered: Iterable[Offered]) -> str:
        return "\n".join(self.talk.case.clean(f"{o.id} {o.kind} at {o.where}: {o.title}") for o in offered)

    def _chosen(self, choice: RemedyChoice, known: dict[str, Offered]) -> Iterator[Remedy]:
        for number in islice(dict.fromkeys(choice.remedies), _MAX_CHOSEN):
            if number in known:
                yield known[number].remedy
            else:
                self.talk.refuse("the model chose a probe or fix that was never offered")
        if choice.patch:
            try:
                yield check_patch(self.talk.case, choice.patch, choice.functions)
            except QuestionRefused as why:
                self.talk.refuse(f"a patch that the model wrote was refused: {self.talk.case.clean(str(why))}")


def explain(talk: Talk, similar_tool: Tool = BY_NAME["similar"]) -> Explanation:
    """Never raises for what a model, its endpoint or its budget does. `similar_tool`: the tool for recorded cases, which an
    evaluation restricts.
    """
    account = talk.account
    talk.transcript.write(TranscriptRecord("start", _started(talk)))
    course = _WorkflowRun(talk)
    ended = None
    try:
        course.run({**BY_NAME, similar_tool.name: similar_tool})
    except (Spent, ModelFailed) as why:
        ended = str(why)
    explanation = Explanation(
        model=talk.model.name,
        hypothesis=course.hypothesis,
        claims=course.checked.claims,
        comparison=compare(talk.case, course.hypothesis, course.checked.claims) if course.hypothesis else None,
        remedies=course.remedies or (),
        refused=(*talk.refused, *course.checked.refused),
        ended=ended,
        requests=account.requests,
        tool_calls=account.tool_calls,
        usage=account.usage,
    )
    talk.transcript.write(
        TranscriptRecord("end", {"ended": ended, "requests": account.requests, "usage": asdict(account.usage)})
    )
    return explanation


def _started(talk: Talk) -> dict[str, object]:
    verdict = talk.case.clean(render_json(talk.case.verdict))
    return {
        "schema": SCHEMA,
        "forkpoint": __version__,
        "model": talk.model.name,
        "budget": asdict(talk.account.budget),
        "verdict": sha256(verdict.encode()).hexdigest(),
    }


def _no_such(names: Iterable[str]) -> str:
    return f"refused: no such tool in this phase; the tools are {', '.join(names)}"


def _received(parsed: Wire | str) -> str:
    """Tells the model what is wrong with its input, if anything."""
    return parsed if isinstance(parsed, str) else "received"


def _on_record(case: Case, checked: CheckedClaim) -> dict[str, object]:
    return {"claim": checked.claim.model_dump(), "status": checked.status, "why": case.clean(checked.check.why)}
