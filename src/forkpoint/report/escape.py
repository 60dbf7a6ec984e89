"""Strings from input, made safe to show: the one door to a terminal, and JSON that is pure ASCII."""


def escape(text: str) -> str:
    r"""Show what would act on a terminal or deceive a reader: `ESC [ 2 J` becomes `\x1b[2J`.

    Covers control characters, newlines, bidirectional overrides, zero-width characters and lone surrogates: all that
    Unicode calls not printable.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def ascii_json(value: object, indent: int | None = None) -> str:
    """Printable ASCII only: json escapes everything else but DEL."""
    import json  # noqa: PLC0415 - commands that print text do not pay for it

    return json.dumps(value, indent=indent).replace("\x7f", "\\u007f")


def valid_text(text: str) -> str:
    r"""Lone surrogates (undecodable bytes of a file name) as text `\udcff`: strict parsers refuse them raw."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def json_text(document: object) -> str:
    """Builtins, dataclasses and msgspec structs -> indented JSON in ASCII, without a final newline."""
    import msgspec  # noqa: PLC0415 - as above

    return ascii_json(msgspec.to_builtins(document), indent=2)
