"""The one door through which strings from input reach a terminal."""


def escape(text: str) -> str:
    r"""Show what would act on a terminal or deceive a reader: `ESC [ 2 J` becomes `\x1b[2J`.

    Covers control characters, newlines, bidirectional overrides, zero-width characters and lone surrogates: all that
    Unicode calls not printable.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
