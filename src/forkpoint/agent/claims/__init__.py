"""Claims by subject: what a model may state about a case, each with a check by the engine.

The truth table of a claim is in a comment above its class; the class docstring is what a model reads. A check ignores what the
model cited. It never raises: a claim that makes no sense is unverifiable. It returns `contradicted` only if the evidence would
show the claim if it were true: what was not recorded, not kept or not read proves nothing.
"""

from typing import Annotated, get_args

from pydantic import Field

from forkpoint.agent.case import Claim
from forkpoint.agent.claims.guards import Guards
from forkpoint.agent.claims.quoted import FrameAt, LogSays, WaitsForLock
from forkpoint.agent.claims.recorded import Issued, MemberOf, Missing, NothingFurther, Sizes
from forkpoint.agent.claims.values import CanDiffer, SameValue, ValueUsed

__all__ = ["CLAIMS", "AnyClaim", "CanDiffer", "FrameAt", "Guards", "Issued", "LogSays", "MemberOf", "Missing"]
__all__ += ["NothingFurther", "SameValue", "Sizes", "ValueUsed", "WaitsForLock"]

AnyClaim = Annotated[
    Issued
    | Missing
    | Sizes
    | NothingFurther
    | MemberOf
    | FrameAt
    | WaitsForLock
    | Guards
    | CanDiffer
    | SameValue
    | ValueUsed
    | LogSays,
    Field(discriminator="kind"),
]
CLAIMS: tuple[type[Claim], ...] = get_args(get_args(AnyClaim)[0])
