"""Probes and fixes that a model may choose, at the verdict's forks and at lines that it names."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from agent.claim_cases import DECIDES, all_recorded, marked, recorded, with_source
from cases import load_cases
from forkpoint.agent.catalogue import offer_at, offers
from forkpoint.brief.case import Case, QuestionRefused, name_module
from forkpoint.model.verdict import Cause
from looping import for_each, one_in

SOME = ["0001", "0007", "0017"]


def applies(patch: str, folder: str) -> bool:
    done = subprocess.run(["git", "apply", "--check", "-"], input=patch.encode(), cwd=folder, check=False)
    return done.returncode == 0


@for_each("number", [case.number for case in load_cases()], one_in=10)
def test_all_that_a_verdict_offers_as_a_patch_is_in_the_catalogue(number: str) -> None:
    case = recorded(number)
    patches = {offered.patch for offered in offers(case)}

    assert {o.patch for o in (*case.verdict.probes, *case.verdict.fixes) if o.patch} <= patches
    assert patches or number not in SOME


@for_each("number", SOME)
def test_ids_are_plain_and_the_same_each_time(number: str) -> None:
    made = offers(recorded(number))
    ids = [offered.id for offered in made]

    assert len(set(ids)) == len(ids) > 0
    assert all(re.fullmatch(r"[PX][1-9][0-9]?", i) for i in ids)
    assert made == offers(recorded(number))


@for_each("number", SOME)
def test_what_is_offered_applies_and_is_the_engines(number: str) -> None:
    case = recorded(number)
    for offered in offers(case):
        remedy = offered.remedy
        assert applies(remedy.patch, case.source[0])
        assert remedy.trusted
        assert remedy.kind == ("probe" if offered.id.startswith("P") else "fix")


@one_in(10)
def test_forks_of_all_cases_can_be_named_by_their_line(share: int) -> None:
    made, refused = 0, 0
    for number, case in all_recorded(share):
        for fork in case.forks:
            try:
                found = offer_at(case, name_module(case, fork.function.module), fork.node.lineno)
            except QuestionRefused:
                refused += 1
                continue
            own = {o.patch for o in offers(replace(case, forks=(fork,)))}
            assert all(o.id.endswith(f":{fork.node.lineno}") for o in found), number
            assert own <= {o.patch for o in found}, number
            made += 1
    assert made > (2 if share == 1 else 1) * refused


SKIPPED = """
    def step(x, threshold):
        if x.sum() > threshold:  # decides
            dist.all_reduce(x)
    """
LEFT = """
    def step(xs):
        for x in xs:
            if torch.isnan(x).any():  # decides
                continue
            dist.all_reduce(x)
    """
CAUGHT = """
    def step(x):
        try:
            x.load()
            dist.all_reduce(x)
        except OSError:  # decides
            return
    """
CALL = """
    def step(x):
        dist.all_reduce(x)  # decides
    """


@for_each("program", [SKIPPED, LEFT, CAUGHT, CALL])
def test_a_line_on_which_communication_hangs_gets_a_probe_that_applies(program: str, tmp_path: Path) -> None:
    case = with_source(tmp_path, train=program)
    line = marked(tmp_path, DECIDES)
    found = offer_at(case, "train.py", line)

    assert found[0].id == f"P1@train.py:{line}"
    assert all(applies(o.patch, str(tmp_path)) for o in found)
    assert all(o.remedy.trusted for o in found)


NO_COMMUNICATION = """
    def step(x):
        if x.sum() > 0:  # decides
            print(x)
    """
OUTSIDE = """
    def step(x):
        if x.sum() > 0:  # decides
            x += 1
        dist.all_reduce(x)
    """
PLAIN = """
    def step(x):
        x += 1  # decides
        dist.all_reduce(x)
    """
MATCH = """
    def step(x, mode):
        match mode:  # decides
            case "train":
                dist.all_reduce(x)
    """


@for_each("program", [NO_COMMUNICATION, OUTSIDE, PLAIN, MATCH])
def test_a_line_on_which_nothing_hangs_is_refused(program: str, tmp_path: Path) -> None:
    case = with_source(tmp_path, train=program)

    with pytest.raises(QuestionRefused, match="nothing that communicates"):
        offer_at(case, "train.py", marked(tmp_path, DECIDES))


@for_each(
    ("file", "line"),
    [("train.py", 0), ("train.py", 10**9), ("../train.py\x00", 5), ("other.py", 5), ("", 5), ("x" * 10**6, 10**400)],
)
def test_a_line_that_is_not_in_the_source_is_refused(file: str, line: int) -> None:
    with pytest.raises(QuestionRefused):
        offer_at(recorded("0001"), file, line)


def test_without_source_or_without_a_fault_nothing_is_offered() -> None:
    case = recorded("0001")
    bare: Case = replace(case, analysis=None, source=(), forks=())
    healthy: Case = replace(case, verdict=replace(case.verdict, cause=Cause.HEALTHY))

    assert offers(bare) == ()
    with pytest.raises(QuestionRefused, match="no source was given"):
        offer_at(bare, "train.py", 15)
    with pytest.raises(QuestionRefused, match="nothing wrong was found"):
        offer_at(healthy, "train.py", 15)


def test_an_undecided_verdict_gets_no_fixes() -> None:
    case = recorded("0001")
    undecided = replace(case, verdict=replace(case.verdict, cause=Cause.INCONCLUSIVE))

    assert {o.kind for o in offers(case)} == {"probe", "fix"}
    assert {o.kind for o in offers(undecided)} == {"probe"}
