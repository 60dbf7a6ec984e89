"""The same operation, called from the same place, with arguments that do not match.

What it looks like
    In one slot all members called the same operation from the same line, with other sizes or dtypes; an all_to_all
    whose members send more or less than they receive; a message whose two ends differ in size; a gloo broadcast in
    which members wait to send and none is left to receive: each takes another rank for the root. It may hang, raise, or
    complete with wrong data: NCCL does not check. gloo aborts a rank that receives more bytes than it expects; if its
    log shows the line it was in, and that line never had this size on the others, the arguments differ there. In an
    all_to_all, all ranks but one that refuse the same size agree among themselves.

Why it happens
    A tensor whose shape depends on local data (a ragged last batch, token counts per expert), a cast on one rank, a
    root that each rank computes for itself.

What rules it out
    Different lines or operations (divergent-path); the same calls permuted (order-inversion); sizes that may differ
    (gather, scatter, all_to_all that balances). A broadcast in which a member still waits to receive: a connection that
    does not deliver looks the same. A refused size that the line has in other rounds: the rank may be off by some calls.

Fix
    Exchange the sizes first and pad to the largest, or use the variant that takes splits; cast the same way on all ranks;
    agree on the root.
"""

from collections.abc import Iterator
from dataclasses import replace

from forkpoint.judge.facts.calls import (
    find_two_roots,
    issuing,
    may_be_reordered,
    may_differ_unseen,
    same_call_site,
    same_op,
)
from forkpoint.judge.facts.cite import LIKELY, STRONG, cite_divergence, cite_event, describe_slot, verb
from forkpoint.judge.facts.contrast import Contrast, find_contrast_among, find_lone_contrast
from forkpoint.judge.facts.log_lines import ModelMismatch, find_call_mismatch, find_lone_notice, find_model_mismatch
from forkpoint.judge.facts.older_dumps import says_nothing
from forkpoint.judge.facts.refusal import (
    Refused,
    find_refusal,
    find_refusal_at_one_place,
    refused_in_all_to_all,
    refused_sizes,
)
from forkpoint.judge.facts.refused_apart import UnlikeSenders, find_unlike_senders
from forkpoint.judge.facts.symptom import hang_is_shown
from forkpoint.judge.telling.phrases import others
from forkpoint.model.frames import user_place
from forkpoint.model.headline import first_words, plain_call, plain_place, plain_ranks, with_endings
from forkpoint.model.incident import Cohort, Divergence, Incident, PartingKind
from forkpoint.model.log import LogEvent
from forkpoint.model.verdict import Action, Cause, Finding, Fix, Probe
from forkpoint.model.world import name_ranks

NAME = "metadata-mismatch"

_PRINT_ROOT = Probe("print rank and root right before this call on every rank")
_AGREE_ON_ROOT = Fix("agree on the root before the call: work it out on one rank and broadcast it from a fixed one")
_PRINT_SPLITS = Probe("print rank, input splits and output splits right before this call on every rank")
_SEND_SPLITS = Fix("exchange the splits after the last change to what is sent, right before the call")


def find(incident: Incident) -> Iterator[Finding]:
    refusal = find_refusal(incident)
    if refusal is not None and refusal.how in (Refused.ARGUMENTS, Refused.SPLITS):
        finding = _finding(
            refusal.divergence, f"was called with sizes that do not match: {refusal.told}", refusal.confidence, incident
        )
        plain = _plain_refusal(refusal.stack.rank, refusal.event, refusal.divergence)
        yield replace(finding, evidence=(*refusal.evidence, *finding.evidence), headlines=plain)
    divergence = incident.divergence
    if divergence is None or says_nothing(divergence, incident):
        yield from _by_words(incident)
    if divergence is None:
        return
    if divergence.shift is not None:
        return
    if (noticed := _noticed_among(divergence, incident)) is not None:
        yield noticed
    elif _misfits(divergence, incident):
        called = "; ".join(f"{name_ranks(c.ranks)} {_arguments(c)}" for c in issuing(divergence)[:4])
        completed = "" if divergence.hang_seq is not None else "; it completed, with wrong data"
        finding = _finding(
            divergence, f"was called with arguments that do not match: {called}{completed}", STRONG, incident
        )
        yield replace(finding, headlines=_headlines(divergence, incident))
    elif (odd := _odd_about_root(divergence, incident)) is not None:
        named, rank = replace(divergence, odd=odd.ranks), odd.ranks[0]
        what = "was split differently on one rank" if _is_all_to_all(divergence) else "had more than one root"
        says = f'or a call before it {what}: rank {rank} printed "{odd.own}", the others "{odd.usual}"'
        finding = _finding(named, says, LIKELY, incident)
        did = "split its data differently from" if _is_all_to_all(divergence) else "used another root than"
        where = f"{_call(divergence)} or an earlier one"
        plain = f"rank {rank} {did} the others in {where}; it printed other values than they did"
        probe, fix = (_PRINT_SPLITS, _SEND_SPLITS) if _is_all_to_all(divergence) else (_PRINT_ROOT, _AGREE_ON_ROOT)
        cited = (*odd.evidence, *finding.evidence)
        yield replace(finding, evidence=cited, headlines=(plain,), probes=(probe,), fixes=(fix,))
    elif divergence.how is PartingKind.STUCK and (told := find_two_roots(divergence, incident)):
        senders = sorted(e.rank for e in told if e.rank is not None)
        wait = verb(senders, "waits", "wait")
        says = f"has more than one root: {name_ranks(senders)} {wait} to send, and no member is left to receive"
        finding = _finding(divergence, says, LIKELY, incident)
        yield replace(
            finding,
            evidence=(*(cite_event(e) for e in told[:4]), *finding.evidence),
            headlines=(
                f"{_call(divergence)} has more than one root: {plain_ranks(senders)} {wait} to send, and nobody is left to receive",
            ),
            probes=(_PRINT_ROOT,),
            fixes=(_AGREE_ON_ROOT,),
        )


def _noticed_among(divergence: Divergence, incident: Incident) -> Finding | None:
    """Amounts of an all_to_all may differ by rank, and these do not balance. One rank sends far less or more than the
    others differ among themselves, and it alone printed something that they did not.
    """
    if divergence.how is not PartingKind.VOLUME or divergence.odd:
        return None
    told = find_contrast_among(divergence.group.ranks, incident)
    traces = incident.timeline.of_group(divergence.group).traces
    sent = {
        rank: int(v.sent[v.seqs == divergence.seq][0])
        for rank, trace in traces.items()
        if (v := trace.volumes) and (v.seqs == divergence.seq).any()
    }
    if told is None or set(sent) != set(divergence.group.ranks) or not _is_apart(sent, told.ranks[0]):
        return None
    says = f"was called with amounts that do not balance; rank {told.ranks[0]} sends {sent[told.ranks[0]]} elements, and {told.told}"
    finding = _finding(replace(divergence, odd=told.ranks), says, LIKELY, incident)
    plain = f"rank {told.ranks[0]} called {_call(divergence)} with amounts that do not fit those of its peers"
    words = first_words(told.own)
    plainly = with_endings(plain, f'; it alone printed "{words}"' if words else "")
    return replace(finding, evidence=(*told.evidence, *finding.evidence), headlines=plainly)


_FEWEST = 4
"""Minimum number of ranks: three others show by how much they differ among themselves."""


def _is_apart(amounts: dict[int, int], rank: int) -> bool:
    """Its distance to the nearest of the others is larger than their distances to each other."""
    others_ = sorted(amount for other, amount in amounts.items() if other != rank)
    nearest = min(abs(amounts[rank] - amount) for amount in others_)
    return len(amounts) >= _FEWEST and nearest > others_[-1] - others_[0]


def _odd_about_root(divergence: Divergence, incident: Incident) -> Contrast | None:
    """All ranks that are seen wait in one call, no sizes differ, and one rank alone printed a number that differs from
    the others': it computed something by itself that all must agree on. Roots are not recorded.
    """
    waiting = divergence.how in (PartingKind.STUCK, PartingKind.ABSENCE) and len(divergence.sides) == 1
    may = waiting and (refused_sizes(incident) or may_differ_unseen(divergence, incident)) and hang_is_shown(incident)
    odd = find_lone_contrast(incident) if may else None
    return odd if odd and odd.usual else None


def _is_all_to_all(divergence: Divergence) -> bool:
    return any(c.op and c.op.startswith("all_to_all") for c in divergence.cohorts)


def _by_words(incident: Incident) -> Iterator[Finding]:
    """If nothing was recorded, but ranks log what they passed."""
    if (models := find_model_mismatch(incident)) and models.odd:
        yield _other_model(models)
    mismatch = find_call_mismatch(incident)
    if mismatch is not None and not mismatch.is_other_path:
        told = "; ".join(f"{name_ranks(c.ranks)} {mismatch.calls[c.ranks[0]]}" for c in mismatch.divergence.cohorts[:4])
        finding = _finding(
            mismatch.divergence, f"was called with arguments that do not match: {told}", LIKELY, incident
        )
        cited = tuple(cite_event(e) for e in mismatch.events[:4])
        yield replace(finding, evidence=cited, headlines=_headlines(mismatch.divergence, incident))
    elif find_refusal(incident) is None and (unlike := find_unlike_senders(incident)):
        yield _of_unlike_senders(unlike, incident)
    elif find_refusal(incident) is None and refused_in_all_to_all(incident) and (notice := find_lone_notice(incident)):
        yield _noticed(notice, incident)
    elif find_refusal(incident) is None and (places := find_refusal_at_one_place(incident)):
        says = f"was called with sizes that do not match: {places.told}, and every rank that says where it was is at this call"
        finding = _finding(places.divergence, says, LIKELY, incident)
        plain = _plain_refusal(places.event.rank, places.event, places.divergence)
        yield replace(finding, evidence=places.evidence, headlines=plain)


def _of_unlike_senders(unlike: UnlikeSenders, incident: Incident) -> Finding:
    first, fork = unlike.events[0], unlike.divergence
    sizes = f"{first.detail('sent')} bytes where they expected {first.detail('expected')}"
    ended, senders = fork.sides
    says = f"was called with sizes that do not match: {name_ranks(ended)} each got {sizes}, and {name_ranks(senders)} did not"
    finding = _finding(fork, says, LIKELY, incident)
    standing = unlike.standings[0]
    place = plain_place(standing.stack)
    where = f"the {plain_call(standing.called)}{f' at {place}' if place else ''}"
    plain = f"{plain_ranks(senders)} sent more in {where} than {others(ended, senders, incident)} expected"
    told = with_endings(plain, f"; gloo ended all of them ({sizes})")
    return replace(finding, evidence=(*unlike.evidence, *finding.evidence), headlines=told)


def _other_model(models: ModelMismatch) -> Finding:
    """DDP refuses to start. The ranks that log this are mostly those that are right."""
    who = plain_ranks(models.odd)
    return Finding(
        detector=NAME,
        cause=Cause.METADATA_MISMATCH,
        suspects=models.odd,
        confidence=LIKELY,
        summary=f"{name_ranks(models.odd)} built another model than the others, and DDP refuses to start: {models.told}",
        action=Action.FIX_CODE,
        evidence=tuple(cite_event(e) for e in models.events[:4]),
        divergence=models.divergence,
        probes=(Probe("print rank, and the names and shapes of model.named_parameters(), before DDP is made"),),
        fixes=(Fix("build the model from the same configuration, vocabulary and files on all ranks"),),
        headlines=(f"{who} built another model than the others, and DDP refused to start: {models.told}",
                   f"{who} built another model than the others, and DDP refused to start"),
    )  # fmt: skip


def _noticed(notice: LogEvent, incident: Incident) -> Finding:
    """A size was refused in an all_to_all, and one rank alone logs that it left something out of what it sends."""
    assert notice.rank is not None  # the notice of a rank
    refused = refused_sizes(incident)
    return Finding(
        detector=NAME,
        cause=Cause.METADATA_MISMATCH,
        suspects=(notice.rank,),
        confidence=LIKELY,
        summary=f"an all_to_all was called with splits that do not match; only rank {notice.rank} logged: {notice.text}",
        action=Action.FIX_CODE,
        evidence=(cite_event(notice), *(cite_event(e) for e in refused[:2])),
        probes=(_PRINT_SPLITS,),
        fixes=(_SEND_SPLITS,),
        headlines=with_endings(
            f"rank {notice.rank} called an all_to_all with other splits than its peers expect",
            f'; it alone logged "{words}"' if (words := first_words(notice.text)) else "",
        ),
    )


def _finding(divergence: Divergence, says: str, confidence: float, incident: Incident) -> Finding:
    op = issuing(divergence)[0].op
    place = next((p for c in divergence.cohorts if (p := user_place(c.stack))), None)
    return Finding(
        detector=NAME,
        cause=Cause.METADATA_MISMATCH,
        suspects=tuple(sorted(divergence.odd)),
        confidence=confidence,
        summary=f"the {op}{_at(divergence)}{f' ({place})' if place else ''} {says}",
        action=Action.FIX_CODE,
        evidence=cite_divergence(divergence, incident),
        divergence=divergence,
        probes=(Probe("print rank, shape and dtype of the tensor right before this call on every rank"),),
        fixes=(Fix("make sizes and dtype equal before the call: exchange the sizes and pad, or pass the splits"),),
    )


def _headlines(divergence: Divergence, incident: Incident) -> tuple[str, ...]:
    """Headlines that give the sizes, if they are short: sizes are what differs."""
    cohorts = issuing(divergence)
    own = next((c for c in cohorts if c.ranks == tuple(sorted(divergence.odd))), None)
    usual = max((c for c in cohorts if c is not own), key=lambda c: len(c.ranks), default=None)
    wrong = "; it did not hang, and the data is wrong" if divergence.hang_seq is None else ""
    if own is None or usual is None:
        what = "dtypes" if len({c.sizes for c in cohorts}) == 1 else "sizes"
        who = [plain_ranks(c.ranks) for c in cohorts]
        against = f": those of {who[1]} differ from those of {who[0]}" if len(who) == 2 else ""
        every = plain_ranks([rank for c in cohorts for rank in c.ranks])
        return with_endings(f"{every} called {_call(divergence)} with {what} that do not match", against, wrong)
    than, who = others(usual.ranks, own.ranks, incident), plain_ranks(own.ranks)
    what, values = _difference(own, usual)
    told = f"{who} called {_call(divergence)} with another {what} than {than}"
    if not values:
        return with_endings(told, wrong)
    exact = f"{who} called {_call(divergence)} with {what} {values[0]}, {than} with {values[1]}"
    return (*with_endings(exact, wrong), *with_endings(told, wrong))


def _difference(own: Cohort, usual: Cohort) -> tuple[str, tuple[str, str] | None]:
    """`size`, (`[8]`, `[12]`): of the first tensors that differ."""
    sizes = next(
        ((list(one), list(other)) for one, other in zip(own.sizes, usual.sizes, strict=False) if one != other), None
    )
    if sizes:
        return "size", (str(sizes[0]), str(sizes[1]))
    if own.sizes == usual.sizes and own.dtypes != usual.dtypes and own.dtypes and usual.dtypes:
        return "dtype", (own.dtypes[0], usual.dtypes[0])
    return "size", None


def _plain_refusal(rank: int | None, event: LogEvent, divergence: Divergence) -> tuple[str, ...]:
    who = "a rank" if rank is None else f"rank {rank}"
    sizes = f" ({event.detail('sent')} bytes, not {event.detail('expected')})"
    return with_endings(
        f"ranks called {_call(divergence)} with different sizes", f": {who} got more than it expected", sizes
    )


def _call(divergence: Divergence) -> str:
    """`the all_gather at evaluate.py:8`."""
    place = next((p for c in divergence.cohorts if (p := plain_place(c.stack))), None)
    return f"the {plain_call(issuing(divergence)[0].op)}{f' at {place}' if place else ''}"


def _at(divergence: Divergence) -> str:
    return f" at {describe_slot(divergence)}" if divergence.seq is not None else ""


def _misfits(divergence: Divergence, incident: Incident) -> bool:
    match divergence.how:
        case PartingKind.METADATA:
            return (
                same_op(divergence)
                and same_call_site(divergence) is True
                and not may_be_reordered(divergence, incident)
            )
        case PartingKind.VOLUME | PartingKind.MESSAGE:
            return bool(issuing(divergence))
        case _:
            return False


def _arguments(cohort: Cohort) -> str:
    dtypes = "/".join(dict.fromkeys(cohort.dtypes))
    return f"{[list(s) for s in cohort.sizes[:4]]} {dtypes}" if cohort.sizes else f"{dtypes} of unknown size"
