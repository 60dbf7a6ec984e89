from hypothesis import given
from hypothesis import strategies as st

from forkpoint.report.escape import escape
from looping import for_each


@for_each(
    ("text", "shown"),
    [
        ("plain, größer, 計算", "plain, größer, 計算"),
        ("\x1b[2J", r"\x1b[2J"),
        ("\x9b2J", r"\x9b2J"),
        ("two\nlines\r", r"two\nlines\r"),
        ("abc\u202etxt.exe", r"abc\u202etxt.exe"),
        ("\u2066\u200b\u2028", r"\u2066\u200b\u2028"),
        ("\udcff.txt", r"\udcff.txt"),
        ("\x07\x7f", r"\x07\x7f"),
    ],
)
def test_what_acts_on_a_terminal_becomes_visible(text: str, shown: str) -> None:
    assert escape(text) == shown


@given(st.text(st.characters()))
def test_nothing_unprintable_comes_out(text: str) -> None:
    assert escape(text).isprintable()
