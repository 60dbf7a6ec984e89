"""Walks through the workflow on case 0001: scripts of what a model says, and ways to play them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from agent.claim_cases import recorded
from agent.endpoints import url_for
from agent.scripted_server import Request, ScriptedServer, Step, calls
from cases import CASES
from forkpoint.agent.hypothesis import Explanation
from forkpoint.agent.model import Account, Budget, Message, ModelFailed, Offer, Reply
from forkpoint.agent.providers import Style, connect
from forkpoint.agent.talk import Hear, Talk
from forkpoint.agent.transcript import Transcript, TranscriptRecord
from forkpoint.agent.workflow import explain
from forkpoint.brief.case import Case


class Unwritten:
    """A transcript that nobody asked for."""

    def write(self, record: TranscriptRecord) -> None:
        pass


CAPTURE, SOURCE = str(CASES / "0001" / "capture"), str(CASES / "0001" / "source")
LOCAL = "openai-compatible:scripted"
QUIET = Hear(lambda _: None, lambda _: None)
READING = 5
"""Phases before the hypothesis."""


def go_on(*evidence: str, note: str = "Seen.") -> Reply:
    return calls("go_on", note=note, evidence=[*evidence])


def claim(kind: str, *evidence: str, **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "evidence": [*evidence], **fields}


ISSUED = claim("issued", "F1", ranks=[0], group="default_pg", seq=16, op="all_reduce")
GUARDS = claim("guards", "F1", file="train.py", line=15, call_line=16)
CAN_DIFFER = claim("can-differ", "F1", file="train.py", line=15, because="rank")
WRONG = claim("missing", "F1", ranks=[3], group="default_pg", seq=16)
"""Rank 3 did come to seq 16."""
UNKNOWN = claim("frame", "F1", rank=700, file="train.py", line=15, function=None)
"""There is no such rank, so nothing shows where it was."""


def submit(*claims: dict[str, Any], **fields: Any) -> Reply:
    told = {
        "opinion": "Rank 0 alone reads a metric that reduces over all ranks.",
        "earliest_group": "default_pg",
        "earliest_seq": 16,
        "suspects": [0],
        "site_file": "train.py",
        "site_line": 15,
        "claims": [*claims],
        "confidence": 0.9,
        "missing_evidence": "",
    }
    return calls("submit_hypothesis", **{**told, **fields})


def choose(*remedies: str, patch: str | None = None, functions: Sequence[str] = ()) -> Reply:
    return calls("choose", remedies=[*remedies], patch=patch, functions=[*functions])


PATCH = """\
--- a/train.py
+++ b/train.py
@@ -14,3 +14,4 @@
 def log_progress(step, metric):
+    value = metric.compute()
     if is_main_process():
-        log.info("step %d running loss %.4f", step, metric.compute())
+        log.info("step %d running loss %.4f", step, value)
"""


def reading() -> list[Step]:
    """Goes through all phases and asks nothing."""
    return [go_on()] * READING


def right() -> list[Step]:
    """A good model: asks where it helps, claims what is so, chooses the fix."""
    return [
        go_on("F1"),
        go_on(),
        calls("threads", rank=0),
        go_on(),
        calls("table", group="default_pg", seq=16, around=1),
        go_on(note="Rank 0 reduces 2 values, the others their gradients."),
        calls("taint", file="train.py", line=15),
        go_on(),
        submit(ISSUED, GUARDS, CAN_DIFFER),
        choose("X1"),
    ]


@dataclass(frozen=True, slots=True)
class Asked:
    """A Request of the scripted server, as far as it does not depend on a wire."""

    offered: tuple[str, ...]
    text: str
    last: str


@dataclass(frozen=True, slots=True)
class Walk:
    explanation: Explanation
    requests: list[Request] | list[Asked]


def walk(
    script: Iterable[Step],
    spec: str = LOCAL,
    style: Style = Style.TOOLS,
    budget: Budget | None = None,
    transcript: Transcript | None = None,
    case: Case | None = None,
    *,
    wired: bool = False,
) -> Walk:
    """Through a real client and a server on loopback, unless nothing of them is asked for: they take most of the time."""
    if (
        not wired
        and (spec, style) == (LOCAL, Style.TOOLS)
        and isinstance(script, list)
        and not any(map(is_fault, script))
    ):
        return unwired(script, case, budget, transcript)
    with ScriptedServer(script) as server:
        model = connect(spec, url_for(server, spec), None if spec == LOCAL else "MINE", style)
        account = Account(budget or Budget(requests=60))
        talk = Talk(case or recorded("0001"), model, account, transcript or Unwritten(), QUIET)
        return Walk(explain(talk), server.requests)


class InProcess:
    """A model without a wire: what it says is made from what it is asked."""

    def __init__(self, answer: Callable[[Sequence[Message], Sequence[Offer]], Reply]) -> None:
        self._answer = answer
        self.name = "script:in-process"

    def ask(
        self,
        instructions: str,
        messages: Sequence[Message],
        offers: Sequence[Offer],
        within_s: float,
        hear: Callable[[str], None],
    ) -> Reply:
        return self._answer(messages, offers)


def says_in_turn(script: Iterable[Reply]) -> InProcess:
    replies = iter(script)
    return InProcess(lambda messages, offers: next(replies))


def walk_in_process(
    model: InProcess, case: Case | None = None, budget: Budget | None = None, transcript: Transcript | None = None
) -> Explanation:
    """Every request takes no time."""
    account = Account(budget or Budget(requests=60))
    clock = count(0, 0).__next__
    return explain(Talk(case or recorded("0001"), model, account, transcript or Unwritten(), QUIET, clock))


def is_fault(step: Step) -> bool:
    return not isinstance(step, Reply) and not callable(step)


def unwired(
    script: Iterable[Step], case: Case | None = None, budget: Budget | None = None, transcript: Transcript | None = None
) -> Walk:
    """Without a wire: for what a model says and is told, whichever way it goes."""
    requests: list[Asked] = []
    steps = iter(script)

    def answer(messages: Sequence[Message], offers: Sequence[Offer]) -> Reply:
        texts = [written(message) for message in messages]
        requests.append(Asked(tuple(offer.name for offer in offers), "\n".join(texts), texts[-1]))
        step = next(steps, None)
        if step is None:
            raise ModelFailed("the script is over")
        return step(requests[-1]) if callable(step) else step

    return Walk(walk_in_process(InProcess(answer), case, budget, transcript), requests)


def written(message: Message) -> str:
    match message:
        case Reply(text, calls_made):
            return "\n".join([text, *(f"{call.name}\n{call.arguments}" for call in calls_made)])
        case _:
            return message.text
