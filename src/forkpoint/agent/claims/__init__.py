"""Claims, one per file: what a model may say of a case, each with the check that asks the engine again.

The truth table of a claim stands at the top of its file; the class's own docstring is what a model reads. A check takes
nothing from what was cited, and a claim that makes no sense is unverifiable: it never raises.
"""

from typing import Annotated

from pydantic import Field

from forkpoint.agent.claims.can_differ import CanDiffer
from forkpoint.agent.claims.guards import Guards
from forkpoint.agent.claims.quoted import FrameAt, LogSays
from forkpoint.agent.claims.recorded import Issued, Missing

__all__ = ["CLAIMS", "AnyClaim", "CanDiffer", "FrameAt", "Guards", "Issued", "LogSays", "Missing"]

CLAIMS = (Issued, Missing, FrameAt, Guards, CanDiffer, LogSays)

AnyClaim = Annotated[Issued | Missing | FrameAt | Guards | CanDiffer | LogSays, Field(discriminator="kind")]
