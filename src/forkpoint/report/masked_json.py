"""Masks secrets in the texts of a verdict's JSON document, before it leaves the process."""

from forkpoint.redact import mask_secrets
from forkpoint.report.json_report import Json


def mask_document(document: dict[str, Json]) -> dict[str, Json]:
    return {name: _masked(value) for name, value in document.items()}


def _masked(value: Json) -> Json:
    if isinstance(value, str):
        return mask_secrets(value)
    if isinstance(value, (list, tuple)):
        return (
            [_masked(item) for item in value]
            if any(isinstance(item, (str, dict, list, tuple)) for item in value)
            else value
        )
    return mask_document(value) if isinstance(value, dict) else value
