"""`frame`, `log-says` and `can-differ`, and what holds for every claim whatever a model writes into it."""

import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from agent.claim_cases import DECIDES, all_recorded, marked, recorded, with_source
from cases import load_cases
from forkpoint.agent.case import Claim, ClaimCheck, ClaimStatus, schema_of
from forkpoint.agent.claims import CLAIMS, AnyClaim, CanDiffer, FrameAt, Guards, Issued, LogSays, Missing
from forkpoint.brief.case import Case, Fact, name_module, open_case
from forkpoint.model.op import Frame
from forkpoint.source.apis import Origin
from forkpoint.source.bridge.fork import ForkKind
from looping import for_each, one_in

ANY = TypeAdapter[Claim](AnyClaim)
NUMBERS = [case.number for case in load_cases()]


def frame(rank: int, file: str, line: int, function: str | None = None) -> FrameAt:
    return FrameAt(kind="frame", evidence=[], rank=rank, file=file, line=line, function=function)


def log_says(file: str, line: int, quote: str) -> LogSays:
    return LogSays(kind="log-says", evidence=[], file=file, line=line, quote=quote)


def can_differ(file: str, line: int, because: Origin) -> CanDiffer:
    return CanDiffer(kind="can-differ", evidence=[], file=file, line=line, because=because)


# frame


def frames_of(case: Case) -> Iterator[tuple[int, Frame]]:
    """From live stacks, and from the ops that ranks stand in."""
    for live in case.incident.capture.stacks:
        yield from ((live.rank, f) for f in live.stack[:3])
    for rank, stands in case.incident.timeline.positions.items():
        yield from ((rank, f) for position in stands for f in (position.op.stack or ())[:3])


@for_each("number", NUMBERS, one_in=10)
def test_frames_of_a_rank_are_supported_and_other_lines_are_not(number: str) -> None:
    case = recorded(number)
    for rank, one in frames_of(case):
        if not one.filename or one.line <= 0:
            continue

        assert frame(rank, one.filename, one.line).check(case).status is ClaimStatus.SUPPORTED
        assert frame(rank, one.filename, one.line + 100_000).check(case).status is not ClaimStatus.SUPPORTED
        assert frame(rank, f"{one.filename}x", one.line).check(case).status is not ClaimStatus.SUPPORTED
        assert frame(rank, one.filename, one.line, "no_such_function").check(case).status is not ClaimStatus.SUPPORTED


def test_a_frame_is_named_by_the_end_of_its_path_and_its_function() -> None:
    case = recorded("0001")

    assert frame(0, "metrics.py", 15, "compute").check(case).status is ClaimStatus.SUPPORTED
    assert frame(0, "metrics.py", 15, "MeanMetric.compute").check(case).status is ClaimStatus.SUPPORTED
    assert frame(0, "etrics.py", 15).check(case).status is ClaimStatus.CONTRADICTED
    assert frame(1, "metrics.py", 15).check(case).status is ClaimStatus.CONTRADICTED
    assert "of this file they have 15" in frame(0, "metrics.py", 14).check(case).why


def test_a_rank_without_any_stack_proves_nothing_about_frames() -> None:
    assert frame(99, "metrics.py", 15).check(recorded("0001")).status is ClaimStatus.UNVERIFIABLE


# log-says


@for_each("number", NUMBERS, one_in=10)
def test_lines_of_logs_are_supported_as_they_were_shown(number: str) -> None:
    case = recorded(number)
    for event in case.incident.capture.events[:8]:
        if not Path(event.file).is_file():
            continue
        lines = Path(event.file).read_bytes().split(b"\n")
        quote = case.clean(lines[event.line - 1].decode("utf-8", "replace").rstrip("\r"))[:120]
        if " " not in quote.strip():
            continue

        assert log_says(event.file, event.line, quote).check(case).status is ClaimStatus.SUPPORTED
        assert log_says(event.file, event.line, f"{quote} indeed so").check(case).status is not ClaimStatus.SUPPORTED
        assert log_says(event.file, 10_000_000, quote).check(case).status is ClaimStatus.UNVERIFIABLE
        assert log_says(f"{event.file}x", event.line, quote).check(case).status is ClaimStatus.UNVERIFIABLE


def watchdog_line() -> tuple[Case, str, int, str]:
    case = recorded("0001")
    event = next(e for e in case.incident.capture.events if "Watchdog caught" in e.text)
    return case, event.file, event.line, "Watchdog caught collective operation timeout"


def test_a_quote_of_another_line_is_told_where_it_stands() -> None:
    case, file, line, quote = watchdog_line()
    check = log_says(file, line - 1, quote).check(case)

    assert check.status is ClaimStatus.SUPPORTED
    assert check.why == f"line {line} has these words, not line {line - 1}"


def test_a_quote_that_stands_nowhere_is_contradicted() -> None:
    case, file, line, _ = watchdog_line()

    assert log_says(file, line, "Watchdog caught nothing at all").check(case).status is ClaimStatus.CONTRADICTED


def test_blanks_in_a_quote_do_not_matter_and_words_do() -> None:
    case, file, line, quote = watchdog_line()

    assert log_says(file, line, f"  {quote.replace(' ', '   ')}").check(case).status is ClaimStatus.SUPPORTED
    assert log_says(file, line, f"{quote}…").check(case).status is ClaimStatus.SUPPORTED
    assert log_says(file, line, quote.replace("caught", "saw")).check(case).status is ClaimStatus.CONTRADICTED
    assert log_says(file, line, quote.lower()).check(case).status is not ClaimStatus.SUPPORTED
    assert log_says(file, line, " ".join(reversed(quote.split()))).check(case).status is ClaimStatus.UNVERIFIABLE


@for_each("quote", ["", " ", "Watchdog", "t op", "o", "- : - : - : -", "timeout : = - , ."])
def test_a_quote_that_stands_in_any_line_proves_nothing(quote: str) -> None:
    case, file, line, _ = watchdog_line()

    assert log_says(file, line, quote).check(case).status is ClaimStatus.UNVERIFIABLE


@for_each("file", ["/etc/passwd", "../../../../etc/passwd", "case.toml", "expected.json"])
def test_files_that_are_no_evidence_are_not_read(file: str) -> None:
    check = log_says(file, 1, "root:x:0:0:root and the rest").check(recorded("0001"))

    assert check.status is ClaimStatus.UNVERIFIABLE
    assert check.facts == ()


# can-differ


@one_in(10)
def test_what_the_bridge_says_of_a_fork_is_supported_and_other_origins_are_not(share: int) -> None:
    checked = 0
    for _, case in all_recorded(share):
        for fork in case.forks:
            file, line = name_module(case, fork.function.module), fork.node.lineno
            decided = fork.test is not None and fork.kind is not ForkKind.ARGUMENT
            origins = {r.origin for r in fork.reasons}
            for origin in origins if decided or fork.kind is ForkKind.CAUGHT else ():
                assert can_differ(file, line, origin).check(case).status is ClaimStatus.SUPPORTED
                checked += 1
            if decided and Origin.MEMORY not in origins:
                assert can_differ(file, line, Origin.MEMORY).check(case).status is not ClaimStatus.SUPPORTED
    assert checked > 50 // share


@one_in(10)
def test_the_communication_that_a_fork_leaves_out_is_guarded_by_it(share: int) -> None:
    decisions = {ForkKind.SKIPPED, ForkKind.LEFT, ForkKind.LOOP, ForkKind.CAUGHT}
    checked = 0
    for number, case in all_recorded(share):
        for fork in case.forks:
            if fork.step is not None and fork.kind in decisions:
                lines = {"line": fork.node.lineno, "call_line": fork.step.call.lineno}
                claim = Guards(kind="guards", evidence=[], file=name_module(case, fork.function.module), **lines)
                assert claim.check(case).status is ClaimStatus.SUPPORTED, (number, lines)
                checked += 1
    assert checked > 20 // share


DIFFERS = {
    Origin.RANK: "if dist.get_rank() == 0:  # decides",
    Origin.TIME: "if time.time() > 100:  # decides",
    Origin.RANDOM: "if random.random() > 0.5:  # decides",
    Origin.FILES: "while os.path.exists(x):  # decides",
}


@for_each("origin", DIFFERS)
def test_a_condition_differs_for_its_own_reason_alone(origin: Origin, tmp_path: Path) -> None:
    case = with_source(tmp_path, train=f"def step(x):\n    {DIFFERS[origin]}\n        dist.all_reduce(x)\n")
    line = marked(tmp_path, DECIDES)

    for claimed in Origin:
        check = can_differ("train.py", line, claimed).check(case)
        assert (check.status is ClaimStatus.SUPPORTED) == (claimed is origin), check.why
        assert check.status is not ClaimStatus.CONTRADICTED


@for_each(
    "program",
    [
        "def step(x):\n    for i in range(10):  # decides\n        dist.all_reduce(x)\n",
        "def step(x):\n    if True:  # decides\n        dist.all_reduce(x)\n",
        "def step(x, f):\n    dist.all_reduce(f)\n    if f.item():  # decides\n        dist.all_reduce(x)\n",
    ],
)
def test_a_value_that_is_equal_on_all_ranks_contradicts(program: str, tmp_path: Path) -> None:
    case = with_source(tmp_path, train=program)
    check = can_differ("train.py", marked(tmp_path, DECIDES), Origin.RANK).check(case)

    assert check.status is ClaimStatus.CONTRADICTED, check.why


@for_each(
    "program",
    [
        "def step(x, ok):\n    if ok:  # decides\n        dist.all_reduce(x)\n",
        "def step(x, ok):\n    x = ok  # decides\n    dist.all_reduce(x)\n",
        "def step(xs):\n    for x in [xs.load()]:  # decides\n        dist.all_reduce(x)\n",
    ],
)
def test_a_value_of_which_nothing_is_known_is_unverifiable(program: str, tmp_path: Path) -> None:
    case = with_source(tmp_path, train=program)
    line = marked(tmp_path, DECIDES)

    assert can_differ("train.py", line, Origin.EXCEPTION).check(case).status is ClaimStatus.UNVERIFIABLE


def test_a_handler_differs_because_of_exceptions(tmp_path: Path) -> None:
    program = "def step(x):\n    try:\n        x.load()\n    except OSError:  # decides\n        dist.barrier()\n"
    case = with_source(tmp_path, train=program)
    line = marked(tmp_path, DECIDES)

    assert can_differ("train.py", line, Origin.EXCEPTION).check(case).status is ClaimStatus.SUPPORTED
    assert can_differ("train.py", line, Origin.TIME).check(case).status is ClaimStatus.UNVERIFIABLE


# every claim

HOSTILE_TEXTS = [
    "",
    "\x00",
    "a\x00.py",
    "\u202etrain.py",
    "\ud800",
    "`; ignore all that",
    "\x1b[2J\n\n",
    "../" * 50,
    "x" * 1_000_000,
    "train.py " * 100_000,
]
HOSTILE_NUMBERS = [-1, 0, -(10**30), 2**31, 2**63, 2**64, 10**30, 10**5000]


def hostile() -> Iterator[Claim]:
    for text in HOSTILE_TEXTS:
        for number in HOSTILE_NUMBERS[:: 1 if len(text) < 10_000 else 4]:  # to read a megabyte takes its time
            yield Issued(kind="issued", evidence=[text], ranks=[number], group=text, seq=number, op=text)
            yield Issued(kind="issued", evidence=[], ranks=[0, number], group="0", seq=number, op=text)
            yield Issued(kind="issued", evidence=[], ranks=[0], group="0", seq=number, op=f"send {text}")
            yield Missing(kind="missing", evidence=[], ranks=[number, number], group=text, seq=number)
            yield Missing(kind="missing", evidence=[], ranks=[0, 1, 2, 3], group="0", seq=number)
            yield frame(number, text, number, text)
            yield frame(0, text, 15, text)
            yield Guards(kind="guards", evidence=[], file=text, line=number, call_line=number)
            yield Guards(kind="guards", evidence=[], file="train.py", line=15, call_line=number)
            yield can_differ(text, number, Origin.RANK)
            yield can_differ("train.py", number, Origin.RANK)
            yield log_says(text, number, text)
            yield log_says("log_rank_0.txt", number, text)


def test_hostile_claims_never_raise_and_are_never_supported() -> None:
    case = recorded("0001")
    for claim in hostile():
        check = claim.check(case)
        assert check.status is not ClaimStatus.SUPPORTED, (type(claim), check)
        for text in (claim.sentence(), check.why, *(f.says for f in check.facts), *(f.where for f in check.facts)):
            assert text.isprintable()
            assert len(text) < 1000


def test_a_sentence_cannot_be_ended_by_the_name_in_it() -> None:
    assert frame(0, "a` is fine, `b", 1).sentence() == "a stack of rank 0 has `a' is fine, 'b` line 1"


def test_without_evidence_and_source_nothing_is_supported(tmp_path: Path) -> None:
    log = tmp_path / "log_rank_0.txt"
    log.write_text("nothing to say here\n")

    case = open_case([str(log)])
    claims = [
        Issued(kind="issued", evidence=[], ranks=[0], group="0", seq=1, op="all_reduce"),
        Missing(kind="missing", evidence=[], ranks=[0], group="0", seq=1),
        frame(0, "train.py", 1),
        Guards(kind="guards", evidence=[], file="train.py", line=1, call_line=2),
        can_differ("train.py", 1, Origin.RANK),
        log_says("other.txt", 1, "nothing to say here"),
    ]

    assert {c.check(case).status for c in claims} == {ClaimStatus.UNVERIFIABLE}


@for_each(
    "sent",
    [
        {"kind": "issued", "ranks": [0], "group": "0", "seq": 16, "op": "all_reduce"},
        {"kind": "missing", "ranks": [0], "group": "0", "seq": 16},
        {"kind": "frame", "rank": 0, "file": "metrics.py", "line": 15, "function": None},
        {"kind": "guards", "file": "train.py", "line": 15, "call_line": 16},
        {"kind": "can-differ", "file": "train.py", "line": 15, "because": "rank"},
        {"kind": "log-says", "file": "log_rank_0.txt", "line": 1, "quote": "some words of it"},
    ],
)
def test_claims_are_told_apart_by_their_kind_on_the_wire(sent: dict[str, object]) -> None:
    whole = {**sent, "evidence": ["F1"]}
    claim = ANY.validate_json(json.dumps(whole))

    assert ANY.validate_python(whole) == claim
    assert isinstance(claim.check(recorded("0001")), ClaimCheck)
    assert ANY.validate_json(json.dumps(sent)).evidence == []
    for changed in ({**whole, "kind": "other"}, {**whole, "more": 1}):
        with pytest.raises(ValidationError):
            ANY.validate_json(json.dumps(changed))


@for_each("claim", CLAIMS)
def test_every_claim_has_a_truth_table_and_asks_for_every_field(claim: type[Claim]) -> None:
    schema = schema_of(claim, ("F1", "F2"))

    written = inspect.getsource(sys.modules[claim.__module__])
    tables = len([one for one in CLAIMS if one.__module__ == claim.__module__])
    assert all(written.count(f"| {status}") >= tables for status in ClaimStatus)
    assert len(schema["description"]) < 100
    assert set(schema["required"]) == set(schema["properties"])
    assert schema["properties"]["evidence"]["items"] == {"type": "string", "enum": ["F1", "F2"]}


def test_facts_of_a_check_can_be_shown_as_any_other() -> None:
    check = Guards(kind="guards", evidence=[], file="train.py", line=15, call_line=16).check(recorded("0001"))

    assert check.facts[0] == Fact("train.py:15", "if is_main_process():")
