"""JSON documents: one way to write them."""

import json

import msgspec


def json_text(document: object) -> str:
    """Builtins, dataclasses and msgspec structs -> indented JSON in ASCII, without a final newline."""
    return json.dumps(msgspec.to_builtins(document), indent=2).replace("\x7f", "\\u007f")  # json leaves DEL as it is
