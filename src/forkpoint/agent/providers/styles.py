"""How tools, calls and results are written for a provider: as tool calls, or as JSON text.

The JSON style is for models without tool calls. All tools become one JSON schema that the endpoint enforces, a call is the text
`{"next": {"call": NAME, "arguments": {...}}}`, and results are plain text. `next` exists because several providers require an
object, not a choice, at the top level.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import count
from typing import Any, Final

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
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.tools import ToolDefinition

from forkpoint.agent.model import Answered, Call, Message, Offer, Reply, Said


class WireStyle(ABC):
    """A style differs in how it writes calls and results; the rest is shared."""

    @abstractmethod
    def instruct(self, instructions: str, offers: Sequence[Offer]) -> str:
        """The instructions, plus those that the style needs."""

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
        """Consecutive messages of the engine become one request, because providers require alternating turns."""
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


class ToolStyle(WireStyle):
    def instruct(self, instructions: str, offers: Sequence[Offer]) -> str:  # noqa: ARG002 tools carry their own words
        return instructions

    def offer(self, offers: Sequence[Offer]) -> ModelRequestParameters:
        # Not strict: we check the input ourselves, and strict schemas have limits that the list of evidence ids exceeds.
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
    """Not `args_as_json_str`: that wraps invalid JSON into valid JSON."""
    return (call.args or "{}") if isinstance(call.args, str | None) else json.dumps(call.args)


class JsonStyle(WireStyle):
    def __init__(self) -> None:
        self._numbers = count(1)
        """For ids of calls, which the endpoint does not provide."""

    def instruct(self, instructions: str, offers: Sequence[Offer]) -> str:
        """Lists the tools in words: servers enforce a schema without showing it to the model."""
        if not offers:
            return instructions
        ways = "\n".join(f"- {_signature(offer)}: {offer.description}" for offer in offers)
        return f'{instructions}\n\nAnswer {{"next": {{"call": NAME, "arguments": {{...}}}}}} in JSON, to call one of:\n{ways}'

    def offer(self, offers: Sequence[Offer]) -> ModelRequestParameters:
        if not offers:
            return ModelRequestParameters()
        wanted = OutputObjectDefinition(json_schema=choice_of(offers), name="next")
        return ModelRequestParameters(output_mode="native", output_object=wanted)

    def call(self, call: Call) -> ModelResponsePart:
        return TextPart(f'{{"next": {{"call": {json.dumps(call.name)}, "arguments": {call.arguments}}}}}')

    def answer(self, answered: Answered) -> ModelRequestPart:
        return UserPromptPart(f"Result of {answered.call.name}:\n{answered.text}")

    def hear(self, response: ModelResponse) -> tuple[str, tuple[Call, ...]]:
        text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
        call = _call_in(text, f"json_{next(self._numbers)}")
        return (text, ()) if call is None else ("", (call,))


def _signature(offer: Offer) -> str:
    return f"{offer.name}({', '.join(offer.schema.get('properties', {}))})"


def _call_in(text: str, number: str) -> Call | None:
    """None: the text is not a call."""
    try:
        match json.loads(text):
            case {"next": {"call": str(name), "arguments": arguments}}:
                return Call(number, name, json.dumps(arguments))
            case _:
                return None
    except (ValueError, RecursionError):
        return None


_DEFS: Final = "$defs"


def portable(schema: Any) -> Any:
    """Replaces `oneOf` by `anyOf`: pydantic writes `oneOf` for discriminated unions, and few servers support it."""
    if isinstance(schema, list):
        return [portable(item) for item in schema]
    if isinstance(schema, dict):
        kept = {key: portable(value) for key, value in schema.items() if key != "discriminator"}
        if "oneOf" in kept:
            kept["anyOf"] = kept.pop("oneOf")
        return kept
    return schema


def choice_of(offers: Sequence[Offer]) -> dict[str, Any]:
    """`{"next": {"call": NAME, "arguments": {...}}}` for one of the offers."""
    ways: list[dict[str, Any]] = []
    definitions: dict[str, Any] = {}
    for offer in offers:
        arguments = _renamed(portable(offer.schema), offer.name)
        definitions |= arguments.pop(_DEFS, {})
        ways.append(_object({"call": {"type": "string", "const": offer.name}, "arguments": arguments}))
    schema = _object({"next": ways[0] if len(ways) == 1 else {"anyOf": ways}})
    return {**schema, _DEFS: definitions} if definitions else schema


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _renamed(node: Any, offer: str) -> Any:
    """Definitions of all offers share one namespace, so each is prefixed with its offer's name."""
    if isinstance(node, list):
        return [_renamed(item, offer) for item in node]
    if not isinstance(node, dict):
        return node
    renamed = {key: _renamed(value, offer) for key, value in node.items()}
    if isinstance(reference := renamed.get("$ref"), str):
        renamed["$ref"] = f"#/{_DEFS}/{offer}_{reference.rpartition('/')[2]}"
    if isinstance(definitions := renamed.get(_DEFS), dict):
        renamed[_DEFS] = {f"{offer}_{name}": value for name, value in definitions.items()}
    return renamed
