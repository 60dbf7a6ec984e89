"""Every claim with evidence that shows it, evidence that shows its opposite, and evidence that does not speak.

A check that contradicts what it cannot see misleads more than none. Most of what follows is near to a contradiction, and is none.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from agent.claim_cases import DECIDES, marked, recorded, with_source
from forkpoint.agent.case import Claim, ClaimStatus
from forkpoint.agent.claims import (
    CLAIMS,
    CanDiffer,
    FrameAt,
    Guards,
    Issued,
    LogSays,
    MemberOf,
    Missing,
    NothingFurther,
    SameValue,
    Sizes,
    ValueUsed,
    WaitsForLock,
)
from forkpoint.brief.case import Case, open_case
from forkpoint.model.incident import Incident
from forkpoint.model.timeline import GroupTimeline
from forkpoint.source.apis import Origin
from looping import for_each

YES, NO, SILENT = ClaimStatus.SUPPORTED, ClaimStatus.CONTRADICTED, ClaimStatus.UNVERIFIABLE
NCCL, GLOO, MESSAGES, BATCHES = "0001", "0050", "0077", "0022"
"""Recorded cases: rank 0 alone called at seq 16; the same kind on gloo, which declares no members; message 13 of 2->3 never sent;
messages in batches, which the watchdog numbers otherwise than the recorder.
"""
IDLE = "0017"
"""Rank 5 stands on its host with nothing pending."""

PROGRAM = """
    lock = threading.Lock()


    class Trainer:
        def __init__(self):
            self.best = 0

        def step(self, x, items):
            limit = 10  # sets
            rounds = limit
            late = rounds  # uses
            flag = torch.ones(1)
            dist.all_reduce(flag)
            if flag.item() > 0:  # made
                x += 1
            if flag is None:  # presence
                x += 1
            if dist.get_rank() == 0:  # rank
                dist.barrier()  # inside
            for item in items:  # data
                x += item
            seen = x  # later
            with lock:  # waits
                save(seen)
            return self.best  # reads


    def write(path):
        with lock:
            path.write()  # holds
    """
PYSPY = """\
Process 700: python train.py
Python v3.11.9

Thread 700 (idle): "MainThread"
    step (train.py:{waits})
    <module> (train.py:{waits})
Thread 701 (active): "writer"
    write (train.py:{holds})
    run (threading.py:982)
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A program, and stacks of one rank with two threads."""
    folder = tmp_path_factory.mktemp("source")
    source = with_source(folder, train=PROGRAM)
    lines = {mark: marked(folder, f"# {mark}") for mark in ("waits", "holds")}
    stacks = tmp_path_factory.mktemp("stacks") / "py-spy_rank_0.txt"
    stacks.write_text(PYSPY.format(**lines))
    stacks.with_name("py-spy_rank_1.txt").write_text(PYSPY.format(**lines))
    opened = open_case([str(stacks.parent)])
    return replace(source, incident=opened.incident, verdict=opened.verdict, paths=opened.paths)


def at(case: Case, mark: str) -> int:
    return marked(Path(case.source[0]), f"# {mark}")


def of_records() -> Iterator[tuple[str, Claim, ClaimStatus]]:
    def issued(ranks: list[int], group: str, seq: int, op: str) -> Claim:
        return Issued(kind="issued", ranks=ranks, group=group, seq=seq, op=op)

    def missing(rank: int, seq: int, channel: list[int] | None = None) -> Claim:
        return Missing(kind="missing", ranks=[rank], group="default_pg", seq=seq, channel=channel)

    def sizes(rank: int, seq: int, size: list[int]) -> Claim:
        return Sizes(kind="sizes", ranks=[rank], group="default_pg", seq=seq, input=[size])

    yield NCCL, issued([0], "0", 16, "all_reduce"), YES
    yield NCCL, issued([0], "0", 16, "broadcast"), NO
    yield NCCL, issued([0], "0", 16, "all_gather_object"), SILENT
    yield NCCL, issued([0], "0", 16, "barrier"), SILENT
    yield NCCL, issued([9], "0", 16, "all_reduce"), NO
    yield GLOO, issued([99], "default_pg", 1, "all_reduce"), SILENT
    yield GLOO, issued([0], "default_pg", 1, "send"), SILENT
    yield MESSAGES, issued([2], "default_pg", 1, "send"), YES
    yield MESSAGES, issued([2], "default_pg", 13, "send 2->3"), NO
    yield MESSAGES, missing(2, 13, [2, 3]), YES
    yield MESSAGES, missing(3, 13, [2, 3]), NO
    yield MESSAGES, missing(3, 13, [0, 3]), SILENT
    yield NCCL, missing(0, 1000), SILENT
    yield NCCL, missing(1, 15), NO  # all ranks made this call
    yield NCCL, missing(0, 16), SILENT  # another one than its peers made: its own may be the next
    yield BATCHES, issued([3], "default_pg", 24, "coalesced"), SILENT  # as the watchdog counts, not the recorder
    yield BATCHES, sizes(3, 12, [4, 64]), SILENT  # of a message, perhaps
    yield NCCL, sizes(0, 16, [2]), YES
    yield NCCL, sizes(0, 16, [5]), NO
    yield NCCL, sizes(0, 16, [2, 1]), SILENT
    yield NCCL, sizes(0, 10**6, [1]), NO
    yield NCCL, MemberOf(kind="member", ranks=[0, 3], group="0"), YES
    yield NCCL, MemberOf(kind="member", ranks=[7], group="0"), NO
    yield GLOO, MemberOf(kind="member", ranks=[99], group="default_pg"), SILENT
    yield NCCL, NothingFurther(kind="nothing-further", ranks=[0], group="0", seq=15), NO
    yield IDLE, NothingFurther(kind="nothing-further", ranks=[5], group=idle().group.name, seq=last_of_idle()), YES
    yield NCCL, NothingFurther(kind="nothing-further", ranks=[0], group="no such", seq=15), SILENT


def idle() -> GroupTimeline:
    return next(g for g in recorded(IDLE).incident.timeline.groups if g.track(5) is not None)


def last_of_idle() -> int:
    track = idle().track(5)
    assert track is not None
    return track.last_seq


def test_claims_about_records_are_contradicted_by_records_alone() -> None:
    for number, claim, expected in of_records():
        check = claim.check(recorded(number))
        assert check.status is expected, (number, claim.sentence(), check)


def test_a_dump_that_is_not_whole_contradicts_nothing() -> None:
    case = recorded(IDLE)
    timeline = structs.replace(case.incident.timeline, blind=frozenset({5}))
    cut = replace(case, incident=Incident.of(case.incident.capture, timeline, case.incident.divergences))

    claim = NothingFurther(kind="nothing-further", ranks=[5], group=idle().group.name, seq=last_of_idle())
    assert claim.check(cut).status is SILENT
    assert FrameAt(kind="frame", rank=5, file="nowhere.py", line=1).check(cut).status is SILENT


def of_source(case: Case) -> Iterator[tuple[Claim, ClaimStatus]]:
    def differs(mark: str, because: Origin) -> Claim:
        return CanDiffer(kind="can-differ", file="train.py", line=at(case, mark), because=because)

    def same(mark: str) -> Claim:
        return SameValue(kind="same-value", file="train.py", line=at(case, mark))

    def used(mark: str, where: str) -> Claim:
        return ValueUsed(kind="value-used", file="train.py", line=at(case, mark), used_line=at(case, where))

    def guards(mark: str, where: str) -> Claim:
        return Guards(kind="guards", file="train.py", line=at(case, mark), call_line=at(case, where))

    yield differs("rank", Origin.RANK), YES
    yield differs("made", Origin.RANK), NO
    yield differs("presence", Origin.RANK), SILENT
    yield differs("data", Origin.RANK), SILENT
    yield same("made"), YES
    yield same("rank"), NO
    yield same("presence"), SILENT
    yield same("data"), SILENT
    yield used("sets", "uses"), YES
    yield used("later", "uses"), NO
    yield used("sets", "reads"), SILENT
    yield guards("rank", "inside"), YES
    yield guards("presence", "inside"), NO
    yield guards("data", "waits"), SILENT


def test_claims_about_source_are_contradicted_by_what_cannot_be_otherwise(written: Case) -> None:
    for claim, expected in of_source(written):
        check = claim.check(written)
        assert check.status is expected, (claim.sentence(), check)


EQUAL_BY_LUCK = [
    "def step(x):\n    found = x.find(1)\n    if found == -1:  # decides\n        dist.barrier()\n",
    "def step(x, tp):\n    dist.all_reduce(x, group=tp)\n    if x.item():  # decides\n        dist.barrier()\n",
    "def step(x):\n    dist.all_reduce(x, async_op=True)\n    if x.item():  # decides\n        dist.barrier()\n",
    "def step(x):\n    ok = 1\n    try:\n        x.load()\n    except OSError:\n        ok = 0\n    if ok:  # decides\n        dist.barrier()\n",
    "def step(x):\n    try:\n        dist.all_reduce(x)\n    except RuntimeError:\n        pass\n    if x.item():  # decides\n        dist.barrier()\n",
    "N = 3\ndef step(x):\n    if N:  # decides\n        dist.barrier()\n",
]


@for_each("program", EQUAL_BY_LUCK)
def test_what_only_looks_equal_on_all_ranks_is_never_called_so(program: str, tmp_path: Path) -> None:
    case = with_source(tmp_path, train=program)
    line = marked(tmp_path, DECIDES)

    assert SameValue(kind="same-value", file="train.py", line=line).check(case).status is SILENT
    claim = CanDiffer(kind="can-differ", file="train.py", line=line, because=Origin.FILES)
    assert claim.check(case).status is not NO


def of_threads(case: Case) -> Iterator[tuple[Claim, ClaimStatus]]:
    def frame(rank: int, line: int) -> Claim:
        return FrameAt(kind="frame", rank=rank, file="train.py", line=line)

    def lock(mark: str, holder: str) -> Claim:
        return WaitsForLock(
            kind="waits-for-lock",
            rank=0,
            file="train.py",
            line=at(case, mark),
            holder_file="train.py",
            holder_line=at(case, holder),
        )

    yield frame(0, at(case, "waits")), YES
    yield frame(0, at(case, "holds")), YES  # another thread's
    yield frame(0, at(case, "rank")), NO
    yield frame(9, at(case, "waits")), SILENT
    yield lock("waits", "holds"), YES
    yield lock("waits", "rank"), NO
    yield lock("holds", "waits"), YES


def test_a_frame_of_any_thread_counts(written: Case) -> None:
    for claim, expected in of_threads(written):
        check = claim.check(written)
        assert check.status is expected, (claim.sentence(), check)
    without = replace(written, analysis=None)
    assert next(c.check(without).status for c, _ in of_threads(written) if isinstance(c, WaitsForLock)) is SILENT


def test_a_place_that_a_text_names_is_not_denied(tmp_path: Path) -> None:
    """A thread that runs no code of the program is not kept as a stack, but its lines are in the file."""
    (tmp_path / "py-spy_rank_0.txt").write_text(
        PYSPY.format(waits=5, holds=9) + "odd: frame at other.py:77 in thread 9\n"
    )
    case = open_case([str(tmp_path)])

    assert FrameAt(kind="frame", rank=0, file="other.py", line=77).check(case).status is SILENT
    assert FrameAt(kind="frame", rank=0, file="other.py", line=78).check(case).status is NO


def test_stacks_of_which_nothing_says_whose_they_are_leave_doubt(tmp_path: Path) -> None:
    stack = 'Process {pid}: python train.py\nThread {pid} (idle): "MainThread"\n    main (train.py:{line})\n'
    (tmp_path / "console.log").write_text("[rank0]: rank 0 pid 11\n[rank1]: rank 1 pid 12\n", "utf-8")
    (tmp_path / "pyspy-11.txt").write_text(stack.format(pid=11, line=5), "utf-8")

    def frame() -> ClaimStatus:
        return FrameAt(kind="frame", rank=0, file="loader.py", line=9).check(open_case([str(tmp_path)], [])).status

    assert frame() is NO
    (tmp_path / "pyspy-99.txt").write_text(stack.format(pid=99, line=6), "utf-8")
    assert frame() is SILENT


def test_a_line_that_is_shown_cut_or_masked_is_not_held_against_a_quote(tmp_path: Path) -> None:
    log = tmp_path / "log_rank_0.txt"
    log.write_text(
        "a plain line of it\nlogin token=ghp_0123456789abcdefghijABCDEFGHIJ012345 was used\n" + "word " * 9000 + "\n"
    )
    case = open_case([str(log)])

    def says(line: int, quote: str) -> ClaimStatus:
        return LogSays(kind="log-says", file="log_rank_0.txt", line=line, quote=quote).check(case).status

    assert says(1, "plain line of") is YES
    assert says(1, "another line of") is NO
    assert says(2, "token=secret was used there") is SILENT
    assert says(3, "word word end") is SILENT


def test_each_claim_is_seen_to_be_supported_contradicted_and_neither(written: Case) -> None:
    """LogSays has its own test above."""
    told = [(type(c), s) for _, c, s in of_records()]
    told += [(type(c), s) for c, s in (*of_source(written), *of_threads(written))]
    for claim in set(CLAIMS) - {LogSays, WaitsForLock}:
        assert {status for kind, status in told if kind is claim} == set(ClaimStatus), claim
