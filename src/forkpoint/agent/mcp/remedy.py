"""Probes and fixes for a peer: made by the catalogue, or the peer's own, checked. Nothing is applied."""

from forkpoint.agent.case import Case
from forkpoint.agent.catalogue import offer_at, offers
from forkpoint.agent.hypothesis import Remedy
from forkpoint.agent.mcp.answers import Answer, RemediesOut, RemedyOut
from forkpoint.agent.mcp.cleaned import clean_lines
from forkpoint.agent.mcp.desk import Opened
from forkpoint.agent.patch_check import check_patch as check_for
from forkpoint.agent.tool import Refused
from forkpoint.agent.wire import Wire

_MASKED = "secrets or names in it were masked: it does not apply as it is shown here"


class OfferRemedy(Wire):
    file: str | None
    """As under the source root; null, with line null: for the places that the verdict names."""
    line: int | None


class CheckPatch(Wire):
    patch: str
    """A unified diff of files as under the source root."""
    functions: list[str]
    """Those it changes, as the source names them (`Trainer.fit`)."""


def offer_remedy(opened: Opened, asked: OfferRemedy) -> Answer:
    case = opened.case
    if (asked.file is None) != (asked.line is None):
        raise Refused("give both file and line, or null for both to get what the verdict's places allow")
    offered = offers(case) if asked.file is None or asked.line is None else offer_at(case, asked.file, asked.line)
    if not offered:
        raise Refused("no patch is known for this case: without source there is none, nor where no branch was found")
    return Answer.of(RemediesOut(remedies=[_shown(case, one.remedy) for one in offered]))


def check_patch(opened: Opened, asked: CheckPatch) -> Answer:
    return Answer.of(_shown(opened.case, check_for(opened.case, asked.patch, asked.functions)))


def _shown(case: Case, remedy: Remedy) -> RemedyOut:
    patch = clean_lines(case, remedy.patch)
    masked = (_MASKED,) if patch != remedy.patch else ()
    return RemedyOut(
        kind=remedy.kind,
        title=case.clean(remedy.title),
        where=None if remedy.where is None else case.clean(remedy.where),
        patch=patch,
        trusted=remedy.trusted,
        notes=[case.clean(note) for note in (*remedy.notes, *masked)],
    )
