"""Claims by subject: what a model may state about a case, each with a check by the engine.

The truth table of a claim is in a comment above its class; the class docstring is what a model reads. A check ignores what the
model cited. It never raises: a claim that makes no sense is unverifiable. It returns `contradicted` only if the evidence would
show the claim if it were true: what was not recorded, not kept or not read proves nothing.
"""

from typing import Annotated

from pydantic import Field

from forkpoint.agent.claims.calls import MemberOf, NothingFurther, Sizes
from forkpoint.agent.claims.flow import ValueUsed
from forkpoint.agent.claims.guards import Guards
from forkpoint.agent.claims.quoted import FrameAt, LogSays
from forkpoint.agent.claims.recorded import Issued, Missing
from forkpoint.agent.claims.threads import WaitsForLock
from forkpoint.agent.claims.values import CanDiffer, SameValue

__all__ = [
    "CLAIMS",
    "AnyClaim",
    "CanDiffer",
    "FrameAt",
    "Guards",
    "Issued",
    "LogSays",
    "MemberOf",
    "Missing",
    "NothingFurther",
    "SameValue",
    "Sizes",
    "ValueUsed",
    "WaitsForLock",
]

CLAIMS = (
    Issued,
    Missing,
    Sizes,
    NothingFurther,
    MemberOf,
    FrameAt,
    WaitsForLock,
    Guards,
    CanDiffer,
    SameValue,
    ValueUsed,
    LogSays,
)

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
