"""The base of everything that a model hands in.

Schemas stay in the subset that all providers take: every field required, `null` rather than absent, nothing else allowed,
no limits on numbers or lengths (these are checked where they matter), few levels.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict


class Wire(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


def schema_of(wire: type[Wire], shown: Sequence[str], remedies: Sequence[str] = ()) -> dict[str, Any]:
    """JSON schema of what may be handed in. Lists named `evidence` take ids of facts that were shown, lists named
    `remedies` those of remedies that were offered.
    """
    schema = json.loads(_written_schema(wire))
    _limit(schema, {"evidence": shown, "remedies": remedies})
    return schema


@cache
def _written_schema(wire: type[Wire]) -> str:
    """Cached as text: each request needs its own copy, and pydantic is slow to make one."""
    return json.dumps(wire.model_json_schema())


def _limit(node: Any, choices: Mapping[str, Sequence[str]]) -> None:
    if isinstance(node, list):
        for item in node:
            _limit(item, choices)
    elif isinstance(node, dict):
        if isinstance(node.get("title"), str):
            del node["title"]
        for name, values in choices.items():
            listed = node.get("properties", {}).get(name)
            if listed is not None and values:
                listed["items"] = {"type": "string", "enum": list(values)}
        for value in node.values():
            _limit(value, choices)
