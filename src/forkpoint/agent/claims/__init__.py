"""Claims by subject: what a model may say of a case, each with the check that asks the engine again.

The truth table of a claim stands above it; the class's own docstring is what a model reads. A check takes nothing from what
was cited, and a claim that makes no sense is unverifiable: it never raises. It contradicts only where the evidence would show
the claim if it were true: what is not recorded, not kept or not read proves nothing.
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
