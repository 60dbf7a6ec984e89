"""`guards`: programs in which the line marked `decides` has a say in the line marked `calls`, and near misses."""

from pathlib import Path

from agent.claim_cases import CALLS, DECIDES, marked, recorded, with_source
from forkpoint.agent.case import ClaimCheck, ClaimStatus
from forkpoint.agent.claims import Guards
from looping import for_each


def checked(folder: Path, program: str) -> ClaimCheck:
    case = with_source(folder, train=program)
    lines = marked(folder, DECIDES), marked(folder, CALLS)
    return Guards(kind="guards", evidence=[], file="train.py", line=lines[0], call_line=lines[1]).check(case)


GUARDED = {
    "a branch around it": """
        def step(x):
            if dist.get_rank() == 0:  # decides
                dist.all_reduce(x)  # calls
        """,
    "its else": """
        def step(x, ok):
            if ok:  # decides
                pass
            else:
                dist.all_reduce(x)  # calls
        """,
    "the else as it is written": """
        def step(x, ok):
            if ok:
                pass
            else:  # decides
                dist.all_reduce(x)  # calls
        """,
    "an elif": """
        def step(x, ok, other):
            if ok:
                pass
            elif other:  # decides
                dist.all_reduce(x)  # calls
        """,
    "the if before an elif": """
        def step(x, ok, other):
            if ok:  # decides
                pass
            elif other:
                dist.all_reduce(x)  # calls
        """,
    "two branches above": """
        def step(x, ok, other):
            if ok:  # decides
                if other:
                    dist.all_reduce(x)  # calls
        """,
    "the second line of a condition": """
        def step(x, ok, other):
            if (
                ok
                and other  # decides
            ):
                dist.all_reduce(x)  # calls
        """,
    "an early return": """
        def step(x, ok):
            if not ok:  # decides
                return
            x += 1
            dist.all_reduce(x)  # calls
        """,
    "an early return that is itself under a branch": """
        def step(x, ok, other):
            if not ok:  # decides
                if other:
                    return
            dist.all_reduce(x)  # calls
        """,
    "an early raise": """
        def step(x, ok):
            if not ok:  # decides
                raise RuntimeError
            dist.all_reduce(x)  # calls
        """,
    "the end of the process": """
        def step(x, ok):
            if not ok:  # decides
                sys.exit(1)
            dist.all_reduce(x)  # calls
        """,
    "an assertion": """
        def step(x, ok):
            assert ok  # decides
            dist.all_reduce(x)  # calls
        """,
    "a continue": """
        def step(xs):
            for x in xs:
                if x is None:  # decides
                    continue
                dist.all_reduce(x)  # calls
        """,
    "a break before it": """
        def step(xs):
            while True:
                if xs.done():  # decides
                    break
                dist.all_reduce(xs)  # calls
        """,
    "a break after it, which ends its rounds": """
        def step(xs):
            while True:
                dist.all_reduce(xs)  # calls
                if xs.done():  # decides
                    break
        """,
    "the rounds of a for": """
        def step(xs):
            for x in xs:  # decides
                dist.all_reduce(x)  # calls
        """,
    "the rounds of a while": """
        def step(x):
            while x.more():  # decides
                dist.all_reduce(x)  # calls
        """,
    "the call in a while's own condition": """
        def step(x):
            while not agreed(x):  # decides # calls
                x += 1
        """,
    "an else after a loop that a break leaves out": """
        def step(xs, x):
            for y in xs:
                if y:  # decides
                    break
            else:
                dist.all_reduce(x)  # calls
        """,
    "a case of a match": """
        def step(x, mode):
            match mode:  # decides
                case "train":
                    dist.all_reduce(x)  # calls
                case _:
                    pass
        """,
    "the case itself": """
        def step(x, mode):
            match mode:
                case "train":  # decides
                    dist.all_reduce(x)  # calls
                case _:
                    pass
        """,
    "a handler that swallows what is raised before it": """
        def step(x, load):
            try:
                y = load()
                dist.all_reduce(x)  # calls
            except ValueError:  # decides
                pass
        """,
    "a handler that leaves": """
        def step(xs, load):
            for x in xs:
                try:
                    y = load(x)
                except ValueError:  # decides
                    continue
                dist.all_reduce(y)  # calls
        """,
    "a handler around it": """
        def step(x, load):
            try:
                load()
            except ValueError:  # decides
                dist.all_reduce(x)  # calls
        """,
    "the try that is meant with its handler": """
        def step(x, load):
            try:  # decides
                load()
                dist.all_reduce(x)  # calls
            except ValueError:
                pass
        """,
    "a branch around a try whose handler has it": """
        def step(x, load, ok):
            if ok:  # decides
                try:
                    load()
                except ValueError:
                    dist.all_reduce(x)  # calls
        """,
    "a with inside the branch": """
        def step(x, ok):
            if ok:  # decides
                with torch.no_grad():
                    dist.all_reduce(x)  # calls
        """,
    "one part of a conditional expression": """
        def step(x, ok):
            return (
                dist.all_reduce(x)  # calls
                if ok  # decides
                else None
            )
        """,
    "what stands behind an `and`": """
        def step(x, ok):
            (
                ok  # decides
                and dist.all_reduce(x)  # calls
            )
        """,
    "the first part of a condition, before a call in its second": """
        def step(x, ok):
            if ok and dist.all_reduce(x):  # decides # calls
                x += 1
        """,
    "the condition of a comprehension": """
        def step(xs):
            return [
                dist.all_reduce(x)  # calls
                for x in xs  # decides
            ]
        """,
    "a call that comes to a collective further down": """
        def step(x, ok):
            if ok:  # decides
                reduce(x)  # calls

        def reduce(x):
            dist.all_reduce(x)
        """,
    "a branch within a function within": """
        def outer(x, ok):
            def inner():
                if ok:  # decides
                    dist.all_reduce(x)  # calls
            inner()
        """,
    "whether a backward pass communicates": """
        def step(model: DDP, x, last):
            with contextlib.nullcontext() if last else model.no_sync():  # decides
                x.sum().backward()  # calls
        """,
    "top-level code": """
        if os.environ.get("RANK") == "0":  # decides
            dist.barrier()  # calls
        """,
}

REACHED_ANYHOW = {
    "after both arms": """
        def step(x, ok):
            if ok:  # decides
                x += 1
            else:
                x -= 1
            dist.all_reduce(x)  # calls
        """,
    "after a branch without an else": """
        def step(x, ok):
            if ok:  # decides
                x += 1
            dist.all_reduce(x)  # calls
        """,
    "under another branch that comes later": """
        def step(x, ok, other):
            if ok:  # decides
                x += 1
            if other:
                dist.all_reduce(x)  # calls
        """,
    "before the condition": """
        def step(x, ok):
            dist.all_reduce(x)  # calls
            if ok:  # decides
                return
        """,
    "before a continue, in every round": """
        def step(xs):
            for x in xs:
                dist.all_reduce(x)  # calls
                if x is None:  # decides
                    continue
                x.step()
        """,
    "in the condition itself": """
        def step(x):
            if agreed(x):  # decides # calls
                x += 1
        """,
    "a loop that is always run": """
        def step(x, ok):
            while True:  # decides
                dist.all_reduce(x)  # calls
                if ok():
                    break
        """,
    "what a loop goes over, evaluated once": """
        def step(x):
            for y in dist.all_gather_object(x):  # calls
                if y:  # decides
                    break
        """,
    "in a finally": """
        def step(x, ok):
            try:
                if ok:  # decides
                    return
                x += 1
            finally:
                dist.barrier()  # calls
        """,
    "after a handler that goes on": """
        def step(x, load):
            try:
                y = load()
            except ValueError:  # decides
                y = None
            dist.all_reduce(x)  # calls
        """,
    "a handler that raises again": """
        def step(x, load):
            try:
                y = load()
                dist.all_reduce(x)  # calls
            except ValueError:  # decides
                print("failed")
                raise
        """,
    "after a match, whatever the case": """
        def step(x, mode):
            match mode:  # decides
                case "train":
                    x += 1
                case _:
                    x -= 1
            dist.all_reduce(x)  # calls
        """,
    "the part of a conditional expression that is always evaluated": """
        def step(x, y):
            return (
                x + 1
                if dist.all_gather_object(y)  # calls
                else  x - 1)  # decides
        """,
    "a collective under no_sync, which speaks anyhow": """
        def step(model: DDP, x, last):
            with contextlib.nullcontext() if last else model.no_sync():  # decides
                dist.all_reduce(x)  # calls
        """,
    "the first part of a condition itself": """
        def step(x, ok):
            if dist.all_reduce(x) and ok:  # decides # calls
                x += 1
        """,
    "what stands before an `and`": """
        def step(x, ok):
            return (
                dist.all_reduce(x)  # calls
                and ok)  # decides
        """,
}

NOT_SHOWN = {
    "after a loop without a way out of the function": """
        def step(xs, x):
            for y in xs:  # decides
                if y:
                    break
            dist.all_reduce(x)  # calls
        """,
    "after a loop that only a break ends": """
        def step(x, ok):
            while True:
                if ok():  # decides
                    break
                x += 1
            dist.all_reduce(x)  # calls
        """,
    "a return of another function": """
        def step(x, ok):
            def stop():
                return
            if ok:  # decides
                stop()
            dist.all_reduce(x)  # calls
        """,
    "a branch that calls what may not return": """
        def step(x, ok):
            if ok:  # decides
                save(x)
            dist.barrier()  # calls
        """,
    "a value that is set in the branch and decides later": """
        def step(x, ok):
            n = 3
            if ok:  # decides
                n = 4
            rounds = n
            for _ in range(rounds):
                dist.all_reduce(x)  # calls
        """,
    "a conditional expression whose value decides later": """
        def step(x, ok):
            n = 3 if ok else 4  # decides
            for _ in range(n):
                dist.all_reduce(x)  # calls
        """,
    "no condition on the line": """
        def step(x, ok):
            if ok:
                x += 1  # decides
                dist.all_reduce(x)  # calls
        """,
    "no call on the line": """
        def step(x, ok):
            if ok:  # decides
                x += 1  # calls
        """,
    "another function": """
        def step(x, ok):
            if ok:  # decides
                reduce(x)

        def reduce(x):
            dist.all_reduce(x)  # calls
        """,
    "a function that is only made here": """
        def step(x, ok):
            if ok:  # decides
                later = (
                    lambda: dist.all_reduce(x)  # calls
                )
        """,
    "a try without a handler": """
        def step(x, ok):
            try:  # decides
                dist.all_reduce(x)  # calls
            finally:
                x += 1
        """,
}


@for_each("program", GUARDED.values(), ids=GUARDED)
def test_a_decision_that_a_call_hangs_on_is_supported(program: str, tmp_path: Path) -> None:
    check = checked(tmp_path, program)

    assert check.status is ClaimStatus.SUPPORTED, check.why
    assert len(check.facts) == 2


@for_each("program", REACHED_ANYHOW.values(), ids=REACHED_ANYHOW)
def test_a_call_that_is_reached_whatever_is_decided_contradicts(program: str, tmp_path: Path) -> None:
    check = checked(tmp_path, program)

    assert check.status is ClaimStatus.CONTRADICTED, check.why


@for_each("program", NOT_SHOWN.values(), ids=NOT_SHOWN)
def test_lines_that_show_no_decision_or_no_call_are_unverifiable(program: str, tmp_path: Path) -> None:
    check = checked(tmp_path, program)

    assert check.status is ClaimStatus.UNVERIFIABLE, check.why
    assert check.why


def test_of_two_functions_the_line_that_leads_to_the_other_is_named(tmp_path: Path) -> None:
    assert "line 8 calls reduce" in checked(tmp_path, NOT_SHOWN["another function"]).why


@for_each(
    ("file", "line", "call_line"),
    [("other.py", 15, 16), ("train.py", 0, 16), ("train.py", 15, 10_000), ("train.py", -15, 16), ("", 15, 16)],
)
def test_a_place_that_is_not_in_the_source_is_unverifiable(file: str, line: int, call_line: int) -> None:
    claim = Guards(kind="guards", evidence=[], file=file, line=line, call_line=call_line)

    assert claim.check(recorded("0001")).status is ClaimStatus.UNVERIFIABLE


def test_the_branch_of_a_recorded_case_guards_the_call_that_rank_0_alone_made() -> None:
    claim = Guards(kind="guards", evidence=[], file="train.py", line=15, call_line=16)
    check = claim.check(recorded("0001"))

    assert check.status is ClaimStatus.SUPPORTED
    assert claim.sentence() == "`train.py` line 15 decides whether line 16 is reached"
    assert "is_main_process" in check.facts[0].says
