"""JSON schemas in the part of the language that all providers take."""

from collections.abc import Sequence
from typing import Any, Final

from forkpoint.agent.model import Offer

_DEFS: Final = "$defs"


def portable(schema: Any) -> Any:
    """`anyOf` for `oneOf`: pydantic writes the latter for kinds that no value can share, and few enforce it."""
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
    """Definitions of several offers come to lie side by side, so each carries its offer's name."""
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
