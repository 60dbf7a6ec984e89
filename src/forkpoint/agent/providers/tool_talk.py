"""What is said, in pydantic-ai's words and back. Here with tool calls; `json_talk` does without."""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

from forkpoint.agent.model import Answered, Call, Message, Offer, Reply, Said
from forkpoint.agent.providers.schema import portable


class Talk(ABC):
    """One style. Calls and their results are said in as many ways as there are styles, the rest in one."""

    @abstractmethod
    def instruct(self, instructions: str, offers: Sequence[Offer]) -> str:
        """With what the style has to tell in words."""

    @abstractmethod
    def offer(self, offers: Sequence[Offer]) -> ModelRequestParameters: ...

    @abstractmethod
    def call(self, call: Call) -> ModelResponsePart: ...

    @abstractmethod
    def answer(self, answered: Answered) -> ModelRequestPart: ...

    @abstractmethod
    def hear(self, response: ModelResponse) -> tuple[str, tuple[Call, ...]]:
        """Text and calls."""

    def tell(self, instructions: str, messages: Sequence[Message]) -> list[ModelMessage]:
        """All that the engine says in one go becomes one request, as providers want turns to alternate."""
        told: list[ModelMessage] = []
        asked: list[ModelRequestPart] = []
        for message in messages:
            match message:
                case Said(text):
                    asked.append(UserPromptPart(text))
                case Answered():
                    asked.append(self.answer(message))
                case Reply(text, calls):
                    told.append(ModelRequest(asked, instructions=instructions))
                    said = [TextPart(text)] if text else []
                    told.append(ModelResponse([*said, *map(self.call, calls)]))
                    asked = []
        return [*told, ModelRequest(asked, instructions=instructions)]


class ToolTalk(Talk):
    def instruct(self, instructions: str, offers: Sequence[Offer]) -> str:  # noqa: ARG002 tools carry their own words
        return instructions

    def offer(self, offers: Sequence[Offer]) -> ModelRequestParameters:
        # Not strict: what a model writes is checked on this side, and strict schemas have limits that evidence ids pass.
        tools = [
            ToolDefinition(
                name=offer.name,
                description=offer.description,
                parameters_json_schema=portable(offer.schema),
                strict=False,
            )
            for offer in offers
        ]
        return ModelRequestParameters(function_tools=tools)

    def call(self, call: Call) -> ModelResponsePart:
        return ToolCallPart(call.name, call.arguments, tool_call_id=call.id)

    def answer(self, answered: Answered) -> ModelRequestPart:
        return ToolReturnPart(answered.call.name, answered.text, tool_call_id=answered.call.id)

    def hear(self, response: ModelResponse) -> tuple[str, tuple[Call, ...]]:
        text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
        calls = (part for part in response.parts if isinstance(part, ToolCallPart))
        return text, tuple(Call(call.tool_call_id, call.tool_name, _written(call)) for call in calls)


def _written(call: ToolCallPart) -> str:
    """Not `args_as_json_str`: that hides what is no JSON in some that is."""
    return (call.args or "{}") if isinstance(call.args, str | None) else json.dumps(call.args)
