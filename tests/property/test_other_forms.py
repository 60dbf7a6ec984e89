"""The same evidence in the forms in which people have it: re-pickled, as JSON without stacks, active ops only."""

import json
import pickle
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import forkpoint
from cases import Case, load_cases, verdict_of
from forkpoint.errors import UnreadableInput
from forkpoint.model.verdict import Cause, Verdict
from forkpoint.traces.pickles import Machine
from looping import for_each

ALL = load_cases()
Dump = dict[str, Any]


def _load(path: Path) -> Dump:
    machine = Machine(path.read_bytes())
    machine.pause_depth = -1
    machine.run()
    assert isinstance(machine.root, dict)
    return machine.root


def as_json(dump: Dump) -> bytes:
    """As `_dump_fr_trace_json` writes it: no frames, zeros for None, counters as text, no entries when there are none."""
    entries = [{**e, "process_group": list(e["process_group"])} for e in dump["entries"]]
    for entry in entries:
        entry.pop("frames", None)
        for key in ("time_discovered_started_ns", "time_discovered_completed_ns"):
            entry[key] = entry[key] or 0
    status = {group: {k: str(v) for k, v in counters.items()} for group, counters in dump["pg_status"].items()}
    return json.dumps(
        {**dump, "pg_status": status, "entries": entries} if entries else {**dump, "pg_status": status}
    ).encode()


def as_active_only(dump: Dump) -> bytes:
    """As NVIDIA's resiliency extension keeps them: no frames, nothing that is done."""
    gloo = [e for e in dump["entries"] if e["profiling_name"].startswith("gloo") and not e["retired"]]
    other = [e for e in dump["entries"] if not e["profiling_name"].startswith("gloo") and e["state"] != "completed"]
    entries = [{k: v for k, v in e.items() if k != "frames"} for e in (*gloo, *other)]
    return pickle.dumps({**dump, "entries": entries}, protocol=4)


def _diagnose(case: Case, folder: Path, write: Callable[[Dump], bytes], *, with_texts: bool) -> Verdict | None:
    texts = sorted(p for p in case.capture.iterdir() if p.suffix in (".txt", ".jsonl"))
    paths = [str(p) for p in texts if with_texts]
    for dump in sorted({*case.capture.iterdir()} - {*texts}):
        (folder / dump.name).write_bytes(write(_load(dump)))
        paths.append(str(folder / dump.name))
    try:
        return forkpoint.diagnose(forkpoint.read(paths)) if paths else None
    except UnreadableInput:
        return None


FORMS = list(product(ALL, (as_json, as_active_only), (True, False)))
KINDS = list(product(ALL, ("nccl_trace_rank_*", "log_rank_*", "stacks_rank_*")))


@for_each(("case", "write", "with_texts"), FORMS, one_in=20)
def test_a_poorer_form_never_turns_the_verdict_wrong(
    case: Case, write: Callable[[Dump], bytes], with_texts: bool, tmp_path: Path
) -> None:
    verdict = _diagnose(case, tmp_path, write, with_texts=with_texts)

    if verdict is not None:
        assert set(verdict.suspects) <= case.guilty, verdict.summary
        assert verdict.cause in (*case.causes, Cause.INCONCLUSIVE), verdict.summary


@for_each("protocol", [2, 3, 4, 5])
def test_dumps_rewritten_by_python_give_the_same_verdict(protocol: int, tmp_path: Path) -> None:
    for case in (c for c in ALL if c.number in ("0001", "0005", "0017")):
        original = verdict_of(case.number)

        rewritten = _diagnose(case, tmp_path, lambda d: pickle.dumps(d, protocol=protocol), with_texts=True)

        assert rewritten is not None
        assert (rewritten.cause, rewritten.suspects) == (original.cause, original.suspects)
        assert rewritten.divergence == original.divergence


@for_each(("case", "kind"), KINDS, one_in=10)
def test_one_kind_of_evidence_alone_never_turns_the_verdict_wrong(case: Case, kind: str) -> None:
    paths = [str(p) for p in sorted(case.capture.glob(kind))]
    try:
        verdict = forkpoint.diagnose(forkpoint.read(paths)) if paths else None
    except UnreadableInput:
        verdict = None

    # The logs of a job that ran to its end do not tell that it computed something wrong.
    ran_on = {Cause.HEALTHY} if kind == "log_rank_*" and "no-hang" in case.symptoms else set[Cause]()
    if verdict is not None:
        assert set(verdict.suspects) <= case.guilty, verdict.summary
        assert verdict.cause in {*case.causes, Cause.INCONCLUSIVE} | ran_on, verdict.summary
