"""Scripted models on recorded cases: one that knows the truth, one that lies, one that is silent, one that is not there."""

import json
import tomllib
from _thread import interrupt_main
from collections.abc import Callable, Iterable
from itertools import repeat
from pathlib import Path
from shutil import copytree

import pytest

from agent.scripted_server import Request, ScriptedServer, Status, Step, calls
from cases import CASES
from forkpoint.agent.evaluation import read_known
from forkpoint.agent.evaluation.known import CaseAnswer, KnownTruth, TrueLines, mark, open_neutral, similar_without
from forkpoint.agent.model import Account
from forkpoint.agent.talk import Hear, Talk
from forkpoint.agent.transcript import Replayed, read_transcript
from forkpoint.agent.workflow import explain
from forkpoint.cli import main
from forkpoint.errors import UnreadableInput, UsageError
from forkpoint.model.verdict import Cause
from looping import for_each

TWO = ("0001", "0003")
SHOWN = [f"F{number}" for number in range(1, 60)]
QUESTIONS = {
    "similar": {"cause": None},
    "log_lines": {
        "file": None,
        "rank": 0,
        "contains": "/tmp",
        "line": None,
        "around": None,
        "since": None,
        "until": None,
    },
    "evidence": {"id": None},
    "threads": {"rank": 0},
    "table": {},
}


def hypothesis(**told: object) -> dict:
    empty = {
        "opinion": "",
        "earliest_group": None,
        "earliest_seq": None,
        "suspects": [],
        "site_file": None,
        "site_line": None,
        "claims": [],
        "confidence": 0.5,
        "missing_evidence": "",
    }
    return {**empty, **told}


MISSING = {"kind": "missing", "ranks": [1], "group": "default_pg", "seq": 1, "evidence": []}
LIE = hypothesis(
    earliest_group="default_pg",
    earliest_seq=2,
    suspects=[1, 3],
    site_file="train.py",
    site_line=1,
    claims=[MISSING, {"kind": "frame", "rank": 0, "file": "train.py", "line": 1, "function": None, "evidence": []}],
    confidence=1.0,
)
METRIC = hypothesis(
    earliest_group="default_pg",
    earliest_seq=16,
    suspects=[0],
    site_file="train.py",
    site_line=15,
    claims=[
        {"kind": "issued", "ranks": [0], "group": "default_pg", "seq": 16, "op": "all_reduce", "evidence": ["F1"]},
        {"kind": "guards", "file": "train.py", "line": 15, "call_line": 16, "evidence": []},
    ],
)
CHECKPOINT = hypothesis(
    earliest_group="default_pg",
    earliest_seq=23,
    suspects=[0],
    site_file="train.py",
    site_line=14,
    claims=[
        {"kind": "missing", "ranks": [0], "group": "default_pg", "seq": 23, "evidence": ["F1"]},
        {"kind": "frame", "rank": 0, "file": "train.py", "line": 14, "function": "_upload", "evidence": []},
    ],
)


def knows_the_truth(request: Request) -> dict:
    """Which case it is, only the source it has read can tell."""
    return METRIC if "metric.compute" in request.text else CHECKPOINT


def walks(handed_in: Callable[[Request], dict]) -> Iterable[Step]:
    """A model that reads on, hands in its hypothesis when it may, and chooses nothing."""

    def step(request: Request):
        if "submit_hypothesis" in request.offered:
            return calls("submit_hypothesis", **handed_in(request))
        if "go_on" in request.offered:
            return calls("go_on", note="", evidence=[shown for shown in SHOWN if f"[{shown}]" in request.text])
        return calls("choose", remedies=[], patch=None, functions=[])

    return repeat(step)


def walks_and_asks() -> Iterable[Step]:
    """As `walks`, but each question that may be asked is asked first."""
    asked: set[str] = set()

    def step(request: Request):
        fresh = [name for name in QUESTIONS if name in request.offered and name not in asked]
        if not fresh:
            return next(iter(walks(lambda _: LIE)))(request)
        asked.add(fresh[0])
        return calls(fresh[0], **QUESTIONS[fresh[0]])

    return repeat(step)


def evaluate(capsys: pytest.CaptureFixture[str], script: Iterable[Step], *more: str) -> tuple[int, str, str]:
    with ScriptedServer(script) as server:
        argv = ["eval", str(CASES), "--model", "openai-compatible:scripted", "--endpoint", server.url]
        code = main([*argv, *more])
    said = capsys.readouterr()
    return code, said.out, said.err


def results(capsys: pytest.CaptureFixture[str], script: Iterable[Step], *more: str) -> dict:
    code, out, _ = evaluate(capsys, script, "--json", *more)
    assert code == 0
    return json.loads(out)


def truth(**told: object) -> KnownTruth:
    plain = {
        "healthy": False,
        "causes": (Cause.DIVERGENT_PATH,),
        "group": None,
        "seqs": (9,),
        "suspects": ((2,),),
        "places": (TrueLines("train.py", 14, 16),),
    }
    return KnownTruth(**{**plain, **told})


def answer(**told: object) -> CaseAnswer:
    right = {"groups": frozenset({"default_pg"}), "seq": 9, "suspects": (2,), "site": ("train.py", 15)}
    return CaseAnswer(**{**right, **told})


# ------------------------------------------------------------------------------------------------- answers and the truth


def test_an_answer_that_is_the_truth_is_right_in_all() -> None:
    marks = mark(truth(group="default_pg"), answer())

    assert (marks.earliest, marks.suspects, marks.precision, marks.site) == (True, True, 1.0, True)


@for_each("wrong", [{"seq": 8}, {"seq": None}, {"groups": frozenset({"tp"})}])
def test_another_slot_or_group_is_not_the_fork_point(wrong: dict) -> None:
    assert mark(truth(group="default_pg"), answer(**wrong)).earliest is False


@for_each("site", [("train.py", 13), ("train.py", 17), ("other.py", 15), None])
def test_a_line_beside_the_true_ones_is_not_the_site(site: tuple[str, int] | None) -> None:
    assert mark(truth(), answer(site=site)).site is False


@for_each(
    ("named", "exact", "precision"),
    [((2,), True, 1.0), ((1, 2), False, 0.5), ((1,), False, 0.0), ((), False, 0.0)],
)
def test_whoever_misses_a_suspect_has_no_precision(named: tuple[int, ...], exact: bool, precision: float) -> None:
    marks = mark(truth(), answer(suspects=named))

    assert (marks.suspects, marks.precision) == (exact, precision)


def test_naming_nobody_is_right_where_nobody_can_be_named() -> None:
    nobody = truth(suspects=((),))

    assert mark(nobody, answer(suspects=())).precision == 1.0
    assert mark(nobody, answer(suspects=(1,))).precision == 0.0


def test_no_answer_is_never_right_and_what_the_truth_does_not_say_is_not_asked() -> None:
    marks = mark(truth(seqs=(), suspects=((),), places=()), None)

    assert (marks.earliest, marks.suspects, marks.precision, marks.site) == (None, False, 0.0, None)


# --------------------------------------------------------------------------------------------------------------- models


def test_a_model_that_knows_the_truth_scores_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    told = results(capsys, walks(knows_the_truth), "--only", *TWO)

    model = told["totals"]["model"]
    assert [model[part] for part in ("earliest", "suspects", "site")] == [{"right": 2, "asked": 2}] * 3
    assert model["precision"] == told["totals"]["grounded"] == 1.0
    assert told["totals"]["claims"] == told["totals"]["supported"] == 4
    assert told["totals"]["abstained"] == told["totals"]["ended_early"] == 0
    assert [run["case"] for run in told["runs"]] == list(TWO)


def test_a_model_that_lies_scores_nothing_and_its_claims_are_contradicted(capsys: pytest.CaptureFixture[str]) -> None:
    told = results(capsys, walks(lambda _: LIE), "--only", *TWO)

    totals = told["totals"]
    assert [totals["model"][part]["right"] for part in ("earliest", "suspects", "site")] == [0, 0, 0]
    assert totals["model"]["precision"] == totals["grounded"] == 0.0
    assert (totals["claims"], totals["contradicted"], totals["supported"]) == (4, 4, 0)
    assert [totals["engine"][part]["right"] for part in ("earliest", "suspects", "site")] == [2, 2, 2]
    assert totals["suspects"] == {"model_alone": 0, "engine_alone": 2}
    assert totals["verdicts_intact"] == totals["runs"] == 2


def test_who_hands_in_nothing_abstains_unless_there_is_nothing_to_say(capsys: pytest.CaptureFixture[str]) -> None:
    sick, healthy = results(capsys, walks(lambda _: hypothesis()), "--only", "0001", "0006")["runs"]

    assert (sick["abstained"], sick["model"]["suspects"]) == (True, False)
    assert (healthy["abstained"], healthy["model"]["suspects"]) == (False, True)


def test_a_claim_that_cites_what_was_never_shown_is_counted_as_not_checked(capsys: pytest.CaptureFixture[str]) -> None:
    made_up = hypothesis(claims=[{**MISSING, "evidence": ["F999"]}])
    (run,) = results(capsys, walks(lambda _: made_up), "--only", "0001")["runs"]

    assert (run["claims"]["handed_in"], run["claims"]["turned_away"], run["claims"]["contradicted"]) == (1, 1, 0)


def test_each_case_is_run_as_often_as_asked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    more = ("--only", "0001", "--repeat", "2", "--out", str(tmp_path))
    told = results(capsys, walks(knows_the_truth), *more)

    assert [(run["case"], run["number"]) for run in told["runs"]] == [("0001", 1), ("0001", 2)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0001-1.jsonl", "0001-2.jsonl", "results.json"]
    assert json.loads((tmp_path / "results.json").read_text()) == told


def test_the_table_says_what_the_model_adds(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = evaluate(capsys, walks(knows_the_truth), "--only", *TWO)

    assert code == 0
    assert "fork point right     2 of 2 (100%)  2 of 2 (100%)" in out
    assert "claims: 4 handed in, 4 supported (100%), 0 contradicted, 0 unverifiable" in out
    assert "verdict identical to the one without a model: 2 of 2" in out
    assert "forkpoint: 2/2 0003: 2 of 2 claims supported" in err


# ----------------------------------------------------------------------------------------------------- a dead endpoint


def test_a_dead_endpoint_is_said_after_three_runs(capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedServer([]) as server:
        url = server.url
    code = main(["eval", str(CASES), "--model", "openai-compatible:gone", "--endpoint", url])

    said = capsys.readouterr()
    assert code == 3
    assert "no reply in 3 runs in a row; the last: 127.0.0.1:" in said.err
    assert "nothing listens there" in said.err
    assert "runs: 3, of which 3 abstained and 3 ended early" in said.out


def test_an_endpoint_that_fails_now_and_then_is_asked_on(capsys: pytest.CaptureFixture[str]) -> None:
    """Two runs without a reply, one with, two without: never three in a row."""
    bad = [Status(400)] * 2
    one_reply = [calls("go_on", note="", evidence=[]), Status(400)]
    cases = ("0001", "0003", "0005", "0007", "0008")
    told = results(capsys, [*bad, *one_reply, *bad], "--only", *cases)

    assert [run["requests"] for run in told["runs"]] == [0, 0, 1, 0, 0]
    assert all("status 400" in run["ended"] for run in told["runs"])


def test_what_was_counted_before_ctrl_c_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(_: Request) -> Status:
        interrupt_main()
        return Status(400)

    code, out, _ = evaluate(capsys, [Status(400), interrupted], "--only", "0001", "0003")

    assert code == 130
    assert "runs: 1, of which 1 abstained and 1 ended early" in out


# ----------------------------------------------------------------------------------------------------- unseen names


def test_nothing_that_a_model_is_told_says_which_case_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """It asks for what would: recorded cases, and lines of logs with the folder in which the job ran."""
    number, fault = "0108", tomllib.loads((CASES / "0108" / "case.toml").read_text())["fault"]
    with ScriptedServer(walks_and_asks()) as server:
        argv = ["eval", str(CASES), "--model", "openai-compatible:scripted", "--endpoint", server.url, "--json"]
        assert main([*argv, "--only", number]) == 0
    told = "\n".join(request.text for request in server.requests)

    assert json.loads(capsys.readouterr().out)["totals"]["tool_calls"] > 3
    assert "recorded case" in told
    assert f"recorded case {number}" not in told
    assert fault not in told
    assert "/job/train.py" in told
    assert "/tmp/trace/job/" in told
    assert str(CASES) not in told


def test_other_runs_of_the_same_fault_are_not_told_either() -> None:
    known = {case.name: case for case in read_known(CASES)}
    runs = [case for case in known.values() if case.fault == known["0108"].fault]
    tool = similar_without(known["0108"])
    with open_neutral(known["0108"]) as case:
        told = {fact.where for fact in tool.answer(case, tool.arguments(cause=None))}

    assert told
    assert told.isdisjoint(f"recorded case {run.name}" for run in runs)


def test_a_transcript_of_an_evaluation_plays_again_as_it_was(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    results(capsys, walks_and_asks(), "--only", "0108", "--out", str(tmp_path))
    path = str(tmp_path / "0108.jsonl")
    (known,) = read_known(CASES, ["0108"])
    replayed = Replayed(read_transcript(path), path)
    with open_neutral(known) as case:
        talk = Talk(case, replayed, Account(replayed.budget), replayed, Hear(print, print), replayed.clock)
        explanation = explain(talk, similar_without(known))
    replayed.finish()

    assert explanation.hypothesis is not None
    assert explanation.tool_calls > 3


# ------------------------------------------------------------------------------------------------------- what is given


def test_a_folder_without_cases_and_a_case_that_is_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="contains no recorded case"):
        read_known(tmp_path)
    with pytest.raises(UsageError, match="contains no case 9999"):
        read_known(CASES, ["9999"])


def test_a_truth_that_cannot_be_read_is_named_before_anything_is_asked(tmp_path: Path) -> None:
    copytree(CASES / "0001", tmp_path / "0001")
    (tmp_path / "0001" / "case.toml").write_text('[truth]\ncause = ["no-such-cause"]\n')

    with pytest.raises(UnreadableInput, match=r"0001/case\.toml"):
        read_known(tmp_path)


def test_there_is_no_default_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", str(CASES)]) == 2
    assert "give --model PROVIDER:NAME" in capsys.readouterr().err
