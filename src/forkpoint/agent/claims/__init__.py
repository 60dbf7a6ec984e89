"""Claims: what a model may say of a case, each with the check that asks the engine again. A check takes nothing from what was cited."""

from typing import Annotated

from pydantic import Field

from forkpoint.agent.claims.can_differ import CanDiffer
from forkpoint.agent.claims.guards import Guards
from forkpoint.agent.claims.quoted import FrameAt, LogSays
from forkpoint.agent.claims.recorded import Issued, Missing

__all__ = ["CLAIMS", "AnyClaim", "CanDiffer", "FrameAt", "Guards", "Issued", "LogSays", "Missing"]

CLAIMS = (Issued, Missing, FrameAt, Guards, CanDiffer, LogSays)

AnyClaim = Annotated[Issued | Missing | FrameAt | Guards | CanDiffer | LogSays, Field(discriminator="kind")]
