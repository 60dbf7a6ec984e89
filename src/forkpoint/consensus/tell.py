"""Tells the other ranks about an error of this rank."""

from forkpoint.consensus.ask import ask
from forkpoint.consensus.errors import NoAgreement, PeerFailed, is_settled, settle
from forkpoint.consensus.question import Question


def tell(question: Question, error: BaseException) -> None:
    """Returns when the others know, or cannot be told: the caller re-raises its own error, which says more."""
    ranks = question.members.ranks
    if is_settled(error, ranks):
        return
    try:
        ask(question, failure=error)
    except PeerFailed:
        pass  # ours, as the others see it
    except NoAgreement as silence:
        error.add_note(f"forkpoint: the other ranks could not be told: {silence}")
    settle(error, ranks)
