"""How `make` installs: uv is told what pip is told, and where that is not possible pip installs."""

import runpy
from pathlib import Path

import pytest

INSTALL = runpy.run_path(str(Path(__file__).parents[1] / ".ci" / "install.py"))


def test_settings_of_pip_become_those_of_uv_and_variables_are_stronger_than_files() -> None:
    listed = (
        ":env:.find-links='/wheels'\n"
        ":env:.default-timeout='180'\n"
        "freeze.user='1'\n"
        "global.find-links='/elsewhere'\n"
        "global.extra-index-url='\\nhttps://one.example/simple\\nhttps://two.example/simple'\n"
        "install.find-links='/a /b'\n"
        "install.no-compile='true'\n"
    )

    assert INSTALL["as_uv_reads_them"](INSTALL["pip_settings"](listed)) == {
        "UV_FIND_LINKS": "/wheels",
        "UV_HTTP_TIMEOUT": "180",
        "UV_INDEX": "https://one.example/simple https://two.example/simple",
    }
    assert INSTALL["as_uv_reads_them"]({"find-links": "/a\n/b"}) == {"UV_FIND_LINKS": "/a,/b"}


def test_a_setting_that_uv_does_not_have_is_left_to_pip() -> None:
    with pytest.raises(LookupError, match="platform"):
        INSTALL["as_uv_reads_them"]({"platform": "linux_x86_64", "index-url": "https://one.example/simple"})
