"""What the source says of the lines at which ranks were seen decides between readings that calls and stacks leave open."""

import ast
import textwrap
from pathlib import Path

import forkpoint
from forkpoint.model.capture import Capture, LiveStack, SourceFacts
from forkpoint.model.frames import bare_name
from forkpoint.model.verdict import Action, Cause, Verdict
from forkpoint.source.analysis import analyse
from forkpoint.source.builtin_calls import name_builtins
from forkpoint.source.program import read_program
from forkpoint.source.witness import holds_on_one_rank, read_witness
from looping import for_each
from texts import TIMED_OUT, TORCH, raised, stack

HEAD = "import time, torch, torch.distributed as dist\n"


class Job:
    """A program, the logs and the stacks of its ranks. Marks such as `# call` in the program stand for line numbers."""

    def __init__(self, folder: Path, program: str) -> None:
        self.folder, self.text = folder, HEAD + textwrap.dedent(program)
        self.source = folder / "source"
        self.source.mkdir()
        (self.source / "train.py").write_text(self.text)
        self.given = folder / "given"
        self.given.mkdir()

    def line(self, mark: str) -> int:
        return next(n for n, line in enumerate(self.text.split("\n"), 1) if f"# {mark}" in line)

    def place(self, mark: str, function: str) -> tuple[str, int, str]:
        return "/job/train.py", self.line(mark), function

    def log(self, rank: int, text: str) -> None:
        (self.given / f"log_rank_{rank}.txt").write_text(text)

    def timed_out(self, rank: int, said: str, mark: str, function: str, call: str = "all_reduce") -> None:
        text = raised(rank, TIMED_OUT, self.place(mark, function), call=call)
        self.log(rank, said + text.replace("line 90", f"line {self.line('start')}"))

    def stands(self, rank: int, mark: str, function: str, call: str | None = "all_reduce") -> None:
        text = stack(self.place(mark, function), call=call).replace("line 90", f"line {self.line('start')}")
        (self.given / f"stacks_rank_{rank}.txt").write_text(text)

    def capture(self) -> Capture:
        return forkpoint.read([str(self.given)])

    def facts(self) -> SourceFacts:
        return read_witness(self.capture(), analyse(read_program([str(self.source)])))

    def verdict(self) -> Verdict:
        return forkpoint.diagnose(self.capture(), source=[str(self.source)])

    def without_source(self) -> Verdict:
        return forkpoint.diagnose(self.capture())


# ---------------------------------------------------------------------------------------------------------------------
# The last line of a rank, from a place that its peers have not passed.

BEGINS = "training begins\n"
EPOCHS = """
def main(loader, x, log):
    log.info("training begins")
    for epoch in range(9):
        for batch in loader:
            dist.all_reduce(x)  # call
        log.info("epoch %d finished", epoch)
        BETWEEN
        log.info("epoch %d begins", epoch + 1)

main([], None, None)  # start
"""


def epochs(folder: Path, between: str, *, others: int) -> Verdict:
    """Rank 2 printed the end of an epoch, and nothing more; the others so many such lines before they gave up in the loop."""
    job = Job(folder, EPOCHS.replace("BETWEEN", between))
    for rank in (0, 1, 3):
        job.timed_out(rank, BEGINS + "epoch 0 finished\nepoch 1 begins\n" * others, "call", "main")
    job.log(2, BEGINS + "epoch 0 finished\n")
    return job.verdict()


def test_a_rank_whose_last_line_comes_after_the_loop_of_the_others_left_it(tmp_path: Path) -> None:
    verdict = epochs(tmp_path, "dist.barrier()", others=0)

    assert (verdict.cause, verdict.suspects) == (Cause.DIVERGENT_PATH, (2,))
    assert "rank 2 had left the loop in which the others wait (train.py:7)" in verdict.findings[0].summary


def test_a_line_that_the_others_printed_as_often_is_no_other_way(tmp_path: Path) -> None:
    assert epochs(tmp_path, "dist.barrier()", others=1).suspects == ()


def test_a_rank_that_can_still_come_without_another_call_is_not_past_it(tmp_path: Path) -> None:
    assert epochs(tmp_path, "time.sleep(0)", others=0).cause is not Cause.DIVERGENT_PATH


def test_the_end_of_a_cut_log_is_not_the_last_line_that_was_printed(tmp_path: Path) -> None:
    job = Job(tmp_path, EPOCHS.replace("BETWEEN", "dist.barrier()"))
    for rank in (0, 1, 3):
        job.timed_out(rank, BEGINS, "call", "main")
    job.log(2, BEGINS + "epoch 0 finished\nepoch 1 beg")

    assert job.facts().other_ways == ()


BRANCH = """
def main(loader, x, rank, log):
    log.info("training begins")
    for batch in loader:
        if CONDITION:
            log.info("skipped a batch of %d", len(batch))
            continue
        dist.all_reduce(x)  # call

main([], None, dist.get_rank(), None)  # start
"""


def skipped(folder: Path, condition: str, ranks: tuple[int, ...], others: str = BEGINS) -> Job:
    """What these ranks printed last; the rest gave up in the call."""
    job = Job(folder, BRANCH.replace("CONDITION", condition))
    for rank in range(4):
        if rank in ranks:
            job.log(rank, BEGINS + "skipped a batch of 12\n")
        else:
            job.timed_out(rank, others, "call", "main")
    return job


def test_a_rank_that_printed_from_the_other_branch_did_not_make_the_call(tmp_path: Path) -> None:
    verdict = skipped(tmp_path, "batch.sum() > 3", (2,)).verdict()

    assert (verdict.cause, verdict.suspects) == (Cause.DIVERGENT_PATH, (2,))
    assert verdict.headline.startswith("Rank 2 took the `continue` at train.py:8")
    assert (verdict.sites[0].file, verdict.sites[0].line) == ("train.py", 6)
    assert 'there it printed "skipped a batch of 12"' in (verdict.sites[0].why or "")


def test_of_two_sides_that_are_as_many_nobody_is_named_where_no_dump_shows_earlier_rounds(tmp_path: Path) -> None:
    verdict = skipped(tmp_path, "batch.sum() > 3", (2, 3)).verdict()

    assert (verdict.cause, verdict.suspects) == (Cause.DIVERGENT_PATH, ())


def test_a_line_that_depends_on_the_rank_says_nothing_of_its_way(tmp_path: Path) -> None:
    assert skipped(tmp_path, "rank == 2", (2,)).facts().other_ways == ()


def test_ranks_that_print_nothing_in_this_way_may_have_gone_the_same_way(tmp_path: Path) -> None:
    assert skipped(tmp_path, "batch.sum() > 3", (2,), others="").facts().other_ways == ()


# ---------------------------------------------------------------------------------------------------------------------
# The last line of a rank, from a place after which its program only ends.

ENDS = """
import sys

def main(loader, x, store, log):
    try:
        for batch in loader:
            dist.all_reduce(x)  # call
    except RuntimeError as error:
        log.error("cannot go on: %s", error)
        sys.exit(1)
    except MemoryError:
        log.error("no buffer is left, giving up")
        store.close()
        LAST
    log.info("training has finished")
    dist.destroy_process_group()

main([], None, None, None)  # start
"""
GAVE_UP_ALONE, FINISHED = "no buffer is left, giving up\n", "training has finished\n"


def ended(folder: Path, said: dict[int, str], last: str = "sys.exit(1)") -> Verdict:
    """Four ranks: these printed a last line, all others gave up in the loop."""
    job = Job(folder, ENDS.replace("LAST", last))
    for rank in range(4):
        if rank in said:
            job.log(rank, said[rank])
        else:
            job.timed_out(rank, "", "call", "main")
    return job.verdict()


def test_a_rank_that_can_only_have_exited_with_a_failure_is_lost(tmp_path: Path) -> None:
    verdict = ended(tmp_path, {2: GAVE_UP_ALONE})

    assert (verdict.cause, verdict.suspects, verdict.action) == (Cause.RANK_LOST, (2,), Action.FIX_CODE)
    assert verdict.headline == (
        'Rank 2 ended its program while others still needed it: it logged "no buffer is left, giving up".'
    )


def test_what_a_cut_log_left_out_cannot_have_been_a_call(tmp_path: Path) -> None:
    assert ended(tmp_path, {2: GAVE_UP_ALONE + "stor"}).suspects == (2,)


@for_each("last", ["store.push_all()", "return main(loader, x, store, log)", "sys.exit(0 if store else 1)"])
def test_a_rank_that_may_have_gone_on_or_ended_well_has_not_failed(last: str, tmp_path: Path) -> None:
    folder = tmp_path / str(abs(hash(last)))
    folder.mkdir()

    assert ended(folder, {2: GAVE_UP_ALONE}, last).cause is not Cause.RANK_LOST


def test_a_rank_that_exits_because_its_peers_failed_is_a_victim(tmp_path: Path) -> None:
    job = Job(tmp_path, ENDS.replace("LAST", "sys.exit(1)"))
    for rank in (0, 1):
        job.timed_out(rank, "", "call", "main")
    job.timed_out(3, "cannot go on: Timed out waiting 20000ms for recv operation to complete\n", "call", "main")

    assert job.verdict().suspects == ()


def test_one_rank_that_came_to_its_end_left_the_loop_in_which_most_still_wait(tmp_path: Path) -> None:
    verdict = ended(tmp_path, {2: FINISHED})

    assert (verdict.cause, verdict.suspects) == (Cause.DIVERGENT_PATH, (2,))


def test_of_ranks_that_came_to_their_end_none_is_named_where_few_still_wait(tmp_path: Path) -> None:
    assert ended(tmp_path, {0: FINISHED, 1: FINISHED, 2: FINISHED}).suspects in ((), (3,))


# ---------------------------------------------------------------------------------------------------------------------
# Calls whose sizes cannot differ: a later call is then another path, and no smaller tensor that was let pass.

SIZES = """
def main(model, batch, group):
    SIZED
    dist.all_reduce(x)  # call

main(build(), load(), None)  # start
"""


@for_each(
    "sized",
    [
        "x = torch.zeros(2)",
        "x = torch.tensor([batch.sum(), 1.0])",
        "x = model.weight.grad.clone()",
        "x = torch.zeros(dist.get_world_size())",
        "x = cross_entropy(model(batch), batch).detach()",
    ],
)
def test_numbers_and_gradients_have_one_size_on_all_ranks(sized: str, tmp_path: Path) -> None:
    assert fixed_sizes(tmp_path, sized) == {5}


@for_each(
    "sized",
    ["x = batch", "x = batch[batch > 3]", "x = torch.zeros(len(batch))", "x = unknown(batch)", "x = model(batch)"],
)
def test_what_is_made_of_a_batch_may_have_any_size(sized: str, tmp_path: Path) -> None:
    assert fixed_sizes(tmp_path, sized) == set()


def fixed_sizes(folder: Path, sized: str) -> set[int]:
    job = Job(folder, SIZES.replace("SIZED", sized))
    job.stands(0, "call", "main")
    return {lines[0][1] for lines in job.facts().fixed_sizes}


VALIDATES = """
def main(model, rank, x):
    if rank < 9:
        validate(x)
    dist.all_reduce(torch.zeros(1))  # step

def validate(x):
    dist.all_reduce(MADE)  # score

main(None, 0, load())  # start
"""


def test_one_rank_in_another_call_of_a_fixed_size_left_the_path_of_the_others(tmp_path: Path) -> None:
    """Without the source the others could have let pass a rank that brought a smaller tensor."""
    job = Job(tmp_path, VALIDATES.replace("MADE", "torch.zeros(1)"))
    ahead(job)

    assert job.without_source().cause is Cause.INCONCLUSIVE
    assert (job.verdict().cause, job.verdict().suspects) == (Cause.DIVERGENT_PATH, (3,))


def test_one_rank_in_another_call_whose_size_is_its_own_may_have_brought_another(tmp_path: Path) -> None:
    job = Job(tmp_path, VALIDATES.replace("MADE", "x"))
    ahead(job)

    assert job.verdict().cause is Cause.INCONCLUSIVE


def ahead(job: Job) -> None:
    """Ranks 0-2 validate, rank 3 is at the step."""
    for rank in range(3):
        job.timed_out(rank, "", "score", "validate")
    job.timed_out(3, "", "step", "main")


# ---------------------------------------------------------------------------------------------------------------------
# Whether a call is one of all ranks.

GROUPS = """
def main(x, tp_group):
    MADE
    CALL  # call

main(None, None)  # start
"""


@for_each(
    "made, call, whole",
    [
        ("pass", "dist.all_reduce(x, group=tp_group)", True),  # no program makes a group
        ("pass", "dist.recv(x, 1)", False),
        ("tp_group = dist.new_group([0, 1])", "dist.all_reduce(x)", True),
        ("tp_group = dist.new_group([0, 1])", "dist.all_reduce(x, group=dist.group.WORLD)", True),
        ("tp_group = dist.new_group([0, 1])", "dist.all_reduce(x, group=tp_group)", False),
        ("tp_group = dist.new_group([0, 1])", "tp_group.allreduce(x)", False),
    ],
)
def test_a_call_is_of_all_ranks_if_it_names_no_group(made: str, call: str, whole: bool, tmp_path: Path) -> None:
    job = Job(tmp_path, GROUPS.replace("MADE", made).replace("CALL", call))
    job.stands(0, "call", "main")

    assert bool(job.facts().of_whole_job) == whole


# ---------------------------------------------------------------------------------------------------------------------
# Functions that are written in C have no frame: the line that calls them is where a rank is seen.

BUILTINS = """
def sleep(seconds): ...

def main(x, sock, lock, file, work, queue):
    pending = dist.irecv(x, 1)
    DOES  # here

main(None, None, None, None, None, None)  # start
"""


@for_each(
    "does, named",
    [
        ("sock.recv(4)", "recv"),
        ("time.sleep(3)", "sleep"),
        ("lock.acquire()", "lock.acquire"),
        ("with work.lock: pass", "lock.acquire"),
        ("with work.timer: pass", None),  # entering it may be anything
        ("pending.wait()", "Work.wait"),
        ("work.wait()", None),  # nobody knows what it is
        ("sleep(3)", None),  # the program's own function would be a frame
        ("x.item()", None),  # no GPU in sight
        ("file.read(sock.recv(4))", None),  # one of two
    ],
)
def test_the_call_on_a_line_without_a_deeper_frame_is_what_holds_the_rank(
    does: str, named: str | None, tmp_path: Path
) -> None:
    job = Job(tmp_path, BUILTINS.replace("DOES", does))
    job.stands(0, "here", "main", call=None)

    (live,) = name_builtins(job.capture(), analyse(read_program([str(job.source)]))).stacks

    assert innermost(live) == (named or "main")


def test_a_number_that_is_read_from_the_gpu_waits_for_it(tmp_path: Path) -> None:
    job = Job(tmp_path, BUILTINS.replace("DOES", "x.item()"))
    job.stands(0, "here", "main", call=None)
    job.log(1, WATCHDOG)

    (live,) = name_builtins(job.capture(), analyse(read_program([str(job.source)]))).stacks

    assert innermost(live) == "Tensor.item"


WATCHDOG = (
    "[rank1]:[E1118 10:00:00.123456789 ProcessGroupNCCL.cpp:689] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=11, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=20000) ran for 20000 milliseconds before timing out.\n"
)


def innermost(live: LiveStack) -> str:
    return bare_name(live.stack[0])


# ---------------------------------------------------------------------------------------------------------------------
# The start of a job.

UNREACHABLE = "torch.distributed.DistNetworkError: The client socket has timed out after 30000ms while trying to connect to (10.0.0.4, 27191)."
JOINS = """
def main(rank):
    dist.init_process_group("gloo", rank=rank, world_size=4)  # call
    dist.all_reduce(torch.ones(4))

main(0)  # start
"""


def test_ranks_in_different_parts_of_the_rendezvous_are_on_one_path(tmp_path: Path) -> None:
    """One counts clients, one waits for a key, and two cannot reach the store. The call itself has no sizes that could differ."""
    job = Job(tmp_path, JOINS)
    inside = {
        0: "torch.distributed.DistStoreError: Timed out after 31 seconds waiting for clients. 2/4 clients joined.",
        1: "torch.distributed.DistStoreError: wait timeout after 30000ms, keys: /default_pg/0//cpu//0/0",
        2: UNREACHABLE,
        3: UNREACHABLE,
    }
    for rank, error in inside.items():
        file, line = ("distributed_c10d.py", 1899) if rank == 1 else ("rendezvous.py", 1892)
        frames = [
            ("/job/train.py", job.line("start"), "<module>"),
            job.place("call", "main"),
            (f"{TORCH}/distributed/distributed_c10d.py", line, "init_process_group"),
            (f"{TORCH}/distributed/{file}", 199, "_make"),
        ]
        lines = [text for where in frames for text in ('  File "{}", line {}, in {}'.format(*where), "    call()")]
        told = ["joining", "Traceback (most recent call last):", *lines, error]
        job.log(rank, "".join(f"[rank{rank}]: {text}\n" for text in told))

    verdict = job.verdict()

    assert (verdict.cause, verdict.suspects) == (Cause.NEVER_JOINED, (2, 3))


# ---------------------------------------------------------------------------------------------------------------------
# All others gave up in the call that comes next after the last line of a rank that did not fail.

SHARDS = """
def read(path, log):
    log.info("opening the shard %s", path)
    return open(path).read()

def main(paths, x, log):
    for number, path in enumerate(paths):
        batch = read(path, log)
        BETWEEN
        dist.all_reduce(x)  # call
        log.info("step %d has ended", number)

main([], None, None)  # start
"""
FIRST = "opening the shard a\nstep 0 has ended\n"


def waited_for(
    folder: Path, last: str, between: str = "pass", others: str = FIRST + "opening the shard b\n"
) -> Verdict:
    job = Job(folder, SHARDS.replace("BETWEEN", between))
    for rank in (0, 1, 3):
        job.timed_out(rank, others, "call", "main")
    job.log(2, last)
    return job.verdict()


def test_a_rank_whose_next_call_is_the_one_in_which_all_others_gave_up_is_held_before_it(tmp_path: Path) -> None:
    verdict = waited_for(tmp_path, FIRST + "opening the shard c\nno such file, trying again\n")

    assert (verdict.cause, verdict.suspects) == (Cause.HOST_STALL, (2,))
    assert '"no such file, trying again" was its last line' in verdict.summary


@for_each(
    ("what", "last", "between"),
    [
        ("it is a round ahead", FIRST + "opening the shard b\nstep 1 has ended\nopening the shard c\n", "pass"),
        ("another call comes first", FIRST + "opening the shard c\n", "dist.barrier()"),
    ],
)
def test_a_rank_that_may_be_in_another_call_is_not_held(tmp_path: Path, what: str, last: str, between: str) -> None:
    (tmp_path / what).mkdir()

    assert waited_for(tmp_path / what, last, between).cause is not Cause.HOST_STALL


def test_without_the_source_such_a_rank_is_the_first_reading(tmp_path: Path) -> None:
    job = Job(tmp_path, SHARDS)
    for rank in (0, 1, 3):
        job.timed_out(rank, FIRST, "call", "main")
    job.log(2, FIRST)
    verdict = job.without_source()

    assert verdict.cause is Cause.INCONCLUSIVE
    assert (verdict.hypotheses[0].cause, verdict.hypotheses[0].suspects) == (Cause.HOST_STALL, (2,))


# ---------------------------------------------------------------------------------------------------------------------
# Conditions and loops around the lines at which ranks were seen.

AROUND = """
def main(loader, x, log, rank):
    for batch in loader:
        if CONDITION:
            dist.all_reduce(x)  # aside
        dist.all_reduce(x * 2)  # call
    for name in ORDER:
        dist.all_reduce(x)  # each

main([], None, None, dist.get_rank())  # start
"""


def around(folder: Path, condition: str = "True", order: str = "[1, 2]") -> SourceFacts:
    folder.mkdir(parents=True, exist_ok=True)
    job = Job(folder, AROUND.replace("CONDITION", condition).replace("ORDER", order))
    for rank, mark in enumerate(("aside", "call", "each")):
        job.stands(rank, mark, "main")
    return job.facts()


@for_each(
    ("condition", "own", "one"),
    [
        ("rank == 0", True, True),
        ("rank == 0 and batch.sum() > 3", True, True),
        ("rank % 2 == 0", True, False),
        ("rank == 0 and is_local_main_process()", True, True),
        ("bool((batch == 3).any())", True, False),
        ("len(loader) > 3 or True", False, False),
    ],
)
def test_a_line_under_a_condition_of_the_rank_or_its_data_is_not_on_the_way_of_all(
    tmp_path: Path, condition: str, own: bool, one: bool
) -> None:
    facts = around(tmp_path / str(abs(hash(condition))), condition)

    assert [line for place in facts.own_way for _, line in place[:1]] == ([6] if own else [])
    assert [line for place in facts.on_one_rank for _, line in place[:1]] == ([6] if one else [])


def test_a_call_that_the_others_make_in_the_other_arm_is_one_of_all_ranks(tmp_path: Path) -> None:
    program = """
    rank = dist.get_rank()

    def save(x, parts):
        if rank == 0:
            dist.gather(x, parts)  # aside
        else:
            dist.gather(x)

    save(torch.ones(4), None)  # start
    """
    job = Job(tmp_path, program)
    job.stands(0, "aside", "save", call="gather")

    assert not job.facts().on_one_rank


@for_each(
    ("leaves", "one"),
    [("rank != 0", True), ("len(x) > 3 or not is_main_process()", True), ("rank != 0 and len(x) > 3", False)],
)
def test_a_line_behind_a_return_of_the_other_ranks_is_of_one_rank(tmp_path: Path, leaves: str, one: bool) -> None:
    folder = tmp_path / str(len(leaves))
    folder.mkdir()
    program = """
    rank = dist.get_rank()

    def is_main_process():
        return dist.get_rank() == 0

    def probe(x):
        if LEAVES:
            return
        dist.all_reduce(x)  # aside

    probe(torch.ones(4))  # start
    """
    job = Job(folder, program.replace("LEAVES", leaves))
    job.stands(0, "aside", "probe")

    assert bool(job.facts().on_one_rank) is one


@for_each(("order", "own"), [('{"a", "b"}', True), ('sorted({"a", "b"})', False), ('["a", "b"]', False)])
def test_a_call_for_each_element_of_a_set_comes_in_an_order_of_each_process(
    tmp_path: Path, order: str, own: bool
) -> None:
    facts = around(tmp_path / str(abs(hash(order))), order=order)

    assert [line for place in facts.own_order for _, line in place[:1]] == ([9] if own else [])


@for_each(
    ("condition", "one"),
    [
        ("rank == 0", True),
        ("dist.get_rank() == 0", True),
        ("self.is_main_process", True),
        ("state.is_world_process_zero", True),
        ("dist.get_rank(group) == 0", False),
        ("dp_rank == 0", False),
        ("local_rank == 0", False),
        ("is_local_main_process()", False),
        ("remaining", False),
    ],
)
def test_a_number_or_name_that_several_ranks_have_alike_is_not_of_one_rank(condition: str, one: bool) -> None:
    assert holds_on_one_rank(ast.parse(condition, mode="eval").body) is one
