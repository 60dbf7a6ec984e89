"""The one plain sentence that comes first: examples of every kind, and what holds for all of them."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accept import HEADLINES
from cases import load_cases, verdict_of
from forkpoint.judge.telling.phrases import barest
from forkpoint.model.headline import (
    MAX_HEADLINE,
    fit_headline,
    plain_call,
    plain_line,
    plain_ranks,
    quoted,
    the_others,
    with_endings,
)
from forkpoint.model.verdict import Cause, Verdict
from looping import for_each, one_in

NUMBERS = tuple(case.number for case in load_cases())

FROM_EVIDENCE = {
    "0008": "Rank 2 called barrier at train.py:56 while the other 3 called all_reduce at train.py:39.",
    "0050": """Rank 4 raised KeyError ("'fr;405'") at train.py:18 and left; ranks 0 and 2 waited for it in all_reduce (train.py:31).""",
    "0012": "Rank 2 ended its program; the other 3 waited for it in all_reduce.",
    "0005": "Rank 2 skipped one message to rank 3; since then its messages are paired with the wrong ones (seen at train.py:19).",
    "0010": "Rank 0 made one call too many; since then its calls are paired with the wrong ones of the other 3 (seen at train.py:24).",
    "0021": "Rank 1 skipped one message to rank 2; rank 2 waits for it in recv (link.py:13).",
    "0077": "Rank 2 sent no message to rank 3, which waits for it in recv at ring.py:38; rank 2 waits in a send to rank 0.",
    "0100": "Rank 0 called recv (reporting.py:31) once more than rank 3 sent: one of them skipped or added a message.",
    "0042": "Rank 2 skipped one call; rank 3 waits for it in all_reduce (train.py:21).",
    "0015": "Ranks 0-3 make the same calls in different orders, from stats.py:20 on.",
    "0016": "Rank 0 waits in group grads (train.py:16) and rank 1 in group stats (train.py:21), each for the other; they use the groups in different orders.",
    "0025": "Rank 1 called the all_gather at evaluate.py:8 with size [8], the other 3 with [12].",
    "0027": "Rank 1 called the all_reduce at train.py:18 with dtype Float, the other 3 with Half; it did not hang, and the data is wrong.",
    "0017": "Rank 5 was still in `lookup` (features.py:22); ranks 4 and 6-7 waited for it in all_reduce (train.py:18).",
    "0018": "Rank 1 is still in `subprocess.run` (train.py:18); the other 3 wait for it in all_gather (train.py:38).",
    "0024": "Ranks 0-3 called the all_to_all at moe.py:25 with sizes that do not match: those of rank 2 differ from those of ranks 0-1 and 3.",
    "0057": "Ranks 3-4 are gone or stopped: they left no dumps, and their logs end without mentioning a failure; rank 0 waited for them in all_reduce (train.py:26).",
    "0076": "Rank 1 used another root than the others in the broadcast at train.py:43 or an earlier one; it printed other values than they did.",
    "0082": "Ranks 1-2 and 5-6 wait in a circle, each for the next, in different groups (train.py:26 and train.py:20); they use the groups in different orders.",
    "0089": "Two threads use one group, and nothing keeps their calls in the same order on all ranks (load.py:20 and train.py:24).",
    "0127": "Ranks called the all_to_all at train.py:32 with different sizes: rank 3 got more than it expected (4096 bytes, not 3584).",
    "0034": "The GPU of rank 3 never started all_reduce (train.py:19), which runs on the others: earlier work there has not finished.",
    "0035": "Rank 0 waits for its own GPU at train.py:12; the other 3 wait for it in all_reduce (train.py:34).",
    "0039": "All 4 ranks are in all_reduce (train.py:23), and it does not finish; a network error came before the timeout.",
    "0031": "Rank 1 is gone or stopped: it left no dump, and its log ends without mentioning a failure; the other 3 wait for it in all_reduce (train.py:34).",
    "0038": "Rank 2 never joined the job: it is still in `wait_for_staging` (train.py:13); the other 3 wait for it at start-up.",
    "0079": "Rank 2 built another model than the others, and DDP refused to start: rank 2 holds 4 parameters, ranks 0-1 and 3 hold 6 parameters.",
    "0036": "Rank 0 reached all_reduce (train.py:30) 20.7 s after the other 3, later than the timeout allows.",
    "0137": "Rank 1 held other values than the other replicas at step 20; all was equal at step 10; an update was skipped.",
    "0006": "No fault found: all 4 ranks agree on every call that their dumps hold, and none is waiting.",
    "0009": "Rank 3 called all_reduce at train.py:28 while the other 3 called all_gather at train.py:11.",
    "0011": "Rank 1 called all_reduce at train.py:16 while the other 3 called another all_reduce of size [51600].",
    "0049": "Rank 1 went on to all_gather at train.py:11 without the all_reduce at train.py:24 that the other 3 made.",
}
UNDECIDED = {
    "0107": "Rank 2 got data of another size than it expected: most likely rank 3 or ranks 0-1 made another call or used other sizes; the dumps of all ranks would decide.",
    "0138": "Losses or gradients of ranks 0-3 were abnormal at step 36: most likely the data or the optimisation is the cause; the batches of that step would decide.",
    "0061": "Ranks 0-5 and 7-15 wait in all_reduce at train.py:22, most likely in the middle of a healthy step; dumps taken ten seconds later would decide.",
    "0084": "Rank 2 failed with DistNetworkError: most likely the process that hosts the store (usually rank 0) had ended; the exit code of rank 0 would decide.",
}
WITH_SOURCE = {
    "0009": "Rank 3 left the loop over `files` at train.py:24 when ranks 0-2 ran another round; the loop's length depends on the rank.",
    "0070": "The condition `full` at train.py:32 had another result on rank 2 than on ranks 0-1 and 3; it depends on each rank's own data.",
    "0002": "Rank 3 caught `CorruptSample` at train.py:54 and went on without the all_reduce of ranks 0-2.",
    "0013": "Rank 0 skipped the barrier at prepared.py:20 that ranks 1-3 ran; `self.rank != 0` was false on it.",
    "0051": "Rank 0 ran `report()` at train.py:28, which ranks 1-3 skipped; `rank == 0` was true on it.",
    "0072": "Rank 1 took the `return` at keeper.py:19 and missed the gather of ranks 2-3; `error >= self.best` was true on it.",
    "0094": "Rank 3 caught an exception at tolerance.py:19 and went on without the all_reduce of ranks 0-2.",
    "0052": "Rank 3 left the `while budget.left() > 0` loop at train.py:33 when ranks 0-2 ran another round; each rank reads its own clock.",
    "0047": "Rank 3 caught `torch.OutOfMemoryError` at train.py:28 and went on without the all_reduce of ranks 0-2, in an earlier round.",
    "0015": "Ranks make one call per element of `self.changed` at stats.py:18, in an order that differs by rank; it is a set, whose order differs between processes.",
    "0092": "Rank 0 and ranks 1-2 went different ways at storage.py:29; `not self.cadence.due()` was false on rank 0.",
}


@for_each("number, told", [*FROM_EVIDENCE.items(), *UNDECIDED.items()])
def test_evidence_alone_says_who_did_what_where_and_who_waits(number: str, told: str) -> None:
    assert verdict_of(number).headline == told


@for_each("number, told", WITH_SOURCE.items())
def test_source_says_what_decided(number: str, told: str) -> None:
    assert verdict_of(number, source=True).headline == told


_RANKS = re.compile(r"\b[Rr]anks? (\d[\d, and-]*)")
_CUT = ("...", "…")


def ranks_in(text: str) -> set[int]:
    """Every rank that a sentence names: `ranks 0-3 and 5`."""
    found: set[int] = set()
    for numbers in _RANKS.findall(text):
        for part in re.split(r",\s*|\s+and\s+|\s+", numbers.strip(" ,-and")):
            first, _, last = part.partition("-")
            found |= set(range(int(first), int(last or first) + 1)) if first.isdigit() else set()
    return found


def named_by(verdict: Verdict) -> set[int]:
    """Every rank that the verdict itself names anywhere."""
    fork = verdict.divergence
    named = set(verdict.suspects) | ranks_in(verdict.summary) | {e.rank for e in verdict.evidence if e.rank is not None}
    named |= set(fork.group.ranks) | {r for c in fork.cohorts for r in c.ranks} if fork else set()
    for hypothesis in verdict.hypotheses:
        named |= set(hypothesis.suspects).union(*hypothesis.sides)
    return named


def check_headline(verdict: Verdict) -> None:
    text = verdict.headline
    assert 20 <= len(text) <= MAX_HEADLINE
    assert text[0].isupper()
    assert text.endswith((".", "?"))
    assert text == " ".join(text.split())
    assert not any(cut in text for cut in _CUT)
    assert text.count("`") % 2 == 0
    assert text.count("(") == text.count(")")
    assert ranks_in(text) <= named_by(verdict)
    assert not re.search(r"(?<!and )\b[Rr]ank \d+ (?:wait|are|were|have) ", text)
    assert not re.search(r"\b[Rr]anks [\d, and-]*\d (?:waits|is|was|has) ", text)
    assert "seq " not in text
    assert "default_pg" not in text


@for_each("number", NUMBERS)
def test_a_headline_is_a_whole_sentence_that_names_no_other_ranks(number: str) -> None:
    check_headline(verdict_of(number))


@one_in(10)
def test_so_is_the_headline_that_source_makes(share: int) -> None:
    told = json.loads(HEADLINES.read_text())
    for number in NUMBERS[::share]:
        verdict = verdict_of(number, source=True)
        check_headline(verdict)
        assert verdict.headline == told[number], "run `make accept`, and read the diff"


def test_a_headline_that_names_somebody_names_a_suspect_where_there_is_one() -> None:
    """A rank that only waits must not be the subject."""
    first = re.compile(r"^Ranks? ([\d, and-]*\d)")
    for number in NUMBERS:
        verdict = verdict_of(number)
        subject = first.match(verdict.headline)
        if subject and verdict.suspects and verdict.cause not in (Cause.INCONCLUSIVE, Cause.ORDER_INVERSION):
            assert ranks_in(subject[0]) & set(verdict.suspects), number


# What cannot be said in 160 characters is left out whole.


def test_what_does_not_fit_is_left_out_from_the_end() -> None:
    told = with_endings("rank 3 left", "; " + "because " * 20, "; and went")

    assert fit_headline(told, "rank 3 left") == "Rank 3 left."


@given(st.text(max_size=400), st.text(max_size=200))
def test_texts_of_the_evidence_never_make_it_too_long(text: str, name: str) -> None:
    place = plain_line(f"/job/{name}", 7)
    tellings = with_endings(f"rank 3 raised {text}", f" at {place}", f"; {quoted(text)}")

    told = fit_headline(tellings, barest(Cause.DIVERGENT_PATH, (3,)))

    assert len(told) <= MAX_HEADLINE
    assert "\n" not in told


@given(st.sampled_from(Cause), st.lists(st.integers(0, 10**6), unique=True).map(sorted).map(tuple))
def test_there_is_always_something_to_say(cause: Cause, suspects: tuple[int, ...]) -> None:
    assert len(barest(cause, suspects)) < MAX_HEADLINE


@pytest.mark.parametrize(
    ("ranks", "told"),
    [
        ((3,), "rank 3"),
        ((0, 1, 2, 3, 5, 6, 7), "ranks 0-3 and 5-7"),
        ((1, 3, 5), "ranks 1, 3 and 5"),
        (range(0, 1024, 2), "512 ranks"),
    ],
)
def test_ranks_are_told_as_a_person_would(ranks: tuple[int, ...], told: str) -> None:
    assert plain_ranks(ranks) == told


def test_the_others_are_counted_only_where_all_of_them_are_meant() -> None:
    assert the_others((0, 1, 2), (3,), range(4)) == "the other 3"
    assert the_others((0, 1), (3,), range(4)) == "ranks 0-1"
    assert the_others((0,), (1,), range(2)) == "rank 0"


@for_each(
    "recorded, told",
    [
        ("_all_gather_base", "all_gather"),
        ("all_reduce_barrier", "barrier"),
        ("ALLREDUCE", "all_reduce"),
        ("all_gather_into_tensor_coalesced", "all_gather"),
        ("nccl:send 2->3", "send"),
        (None, "a call"),
        ("a b\nc", "a"),
        ("x" * 200, "a call"),
    ],
)
def test_operations_are_called_as_their_users_call_them(recorded: str | None, told: str) -> None:
    assert plain_call(recorded) == told
