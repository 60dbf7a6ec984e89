"""Makes strings from input safe to show: escapes for terminals, and pure ASCII JSON."""

from collections.abc import Callable

Json = str | int | float | bool | None | list["Json"] | tuple["Json", ...] | dict[str, "Json"]


def escape(text: str) -> str:
    r"""Makes visible what would control a terminal or deceive a reader: `ESC [ 2 J` becomes `\x1b[2J`.

    Covers everything that Unicode calls not printable: control characters, newlines, bidirectional overrides, zero-width
    characters and lone surrogates.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def ascii_json(value: object, indent: int | None = None) -> str:
    """Printable ASCII only. json escapes everything else except DEL."""
    import json  # noqa: PLC0415 - not needed by commands that print text

    return json.dumps(value, indent=indent).replace("\x7f", "\\u007f")


def valid_text(text: str) -> str:
    r"""Writes lone surrogates (undecodable bytes of a file name) as text `\udcff`: strict parsers reject raw ones."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def map_texts(value: Json, change: Callable[[str], str]) -> Json:
    """The same document with every text in it changed. Keys stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {name: map_texts(item, change) for name, item in value.items()}
    if isinstance(value, (list, tuple)) and any(isinstance(item, (str, dict, list, tuple)) for item in value):
        return [map_texts(item, change) for item in value]
    return value  # a number, or a list of them: there may be 100,000 ranks


def json_text(document: object) -> str:
    """Builtins, dataclasses and msgspec structs -> indented JSON in ASCII, without a final newline."""
    import msgspec  # noqa: PLC0415 - not needed by commands that print text

    return ascii_json(msgspec.to_builtins(document), indent=2)
