"""Agreed decisions: small functions that make rank divergence hard to write. For training code; imports torch.

Each is one small collective that every member of the group must call. See docs/consensus.md for the bug each one prevents.
"""

from forkpoint.consensus.decisions import (
    Joined,
    agree_on_exception,
    all_ranks,
    any_rank,
    broadcast_decision,
    join_uneven,
    same_on_all_ranks,
)
from forkpoint.consensus.question import (
    CollectiveInRankZero,
    ConsensusError,
    NoAgreement,
    NotAMember,
    PeerFailed,
    RanksDisagree,
    Side,
)
from forkpoint.consensus.refuse import rank_only, rank_zero_only

__all__ = [
    "CollectiveInRankZero",
    "ConsensusError",
    "Joined",
    "NoAgreement",
    "NotAMember",
    "PeerFailed",
    "RanksDisagree",
    "Side",
    "agree_on_exception",
    "all_ranks",
    "any_rank",
    "broadcast_decision",
    "join_uneven",
    "rank_only",
    "rank_zero_only",
    "same_on_all_ranks",
]
