"""Which model, where, with which key: decided before anything is sent."""

import subprocess
import sys

import pytest

from forkpoint.agent.providers import Provider, parse_address
from forkpoint.errors import UsageError
from looping import for_each

KEY = "sk-0123456789"
LOCAL = "http://127.0.0.1:8000/v1"


@pytest.fixture(autouse=True)
def _keys(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("MINE", "mine-0123456789")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)


def test_a_provider_is_asked_at_home_with_the_key_of_its_usual_variable():
    address = parse_address("openai:gpt-5", None, None)

    assert (address.provider, address.model, address.key) == (Provider.OPENAI, "gpt-5", KEY)
    assert address.host == "api.openai.com"
    assert address.name == "openai:gpt-5"


def test_variables_of_the_providers_client_do_not_move_its_home(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/elsewhere")

    assert parse_address("openai:gpt-5", None, None).host == "api.openai.com"


def test_a_key_does_not_go_to_another_endpoint_unless_its_variable_is_named():
    assert parse_address("openai:gpt-5", LOCAL, None).key is None
    assert parse_address("openai-compatible:qwen", LOCAL, None).key is None
    assert parse_address("openai:gpt-5", LOCAL, "OPENAI_API_KEY").key == KEY


def test_a_named_variable_stands_before_the_usual_one():
    address = parse_address("openai:gpt-5", None, "MINE")

    assert (address.key, address.key_variable) == ("mine-0123456789", "MINE")


def test_a_model_name_may_hold_colons_and_slashes():
    assert parse_address("openai-compatible:org/qwen:7b", LOCAL, None).model == "org/qwen:7b"


@for_each("spec", ["", "gpt-5", "openai:", ":gpt-5", "gemini:x", "OPENAI:x"])
def test_a_spec_without_a_known_provider_and_a_name_is_refused(spec):
    with pytest.raises(UsageError, match="write PROVIDER:NAME"):
        parse_address(spec, None, None)


def test_a_compatible_endpoint_has_no_default():
    with pytest.raises(UsageError, match="--endpoint"):
        parse_address("openai-compatible:qwen", None, None)


@for_each(
    "endpoint",
    [
        "ftp://host/v1",
        "file:///etc/passwd",
        "unix:///run/model.sock",
        "127.0.0.1:8000",
        "http://",
        "http://host:0/v1",
        "http://host:99999/v1",
        "http://[::1/v1",
        "http://ho st/v1",
        "http://host/v1\x1b[2J",
        "",
    ],
)
def test_an_endpoint_that_is_no_web_address_is_refused(endpoint):
    with pytest.raises(UsageError, match="--endpoint"):
        parse_address("openai-compatible:qwen", endpoint, None)


@for_each("endpoint", ["https://me:hunter2@host/v1", "https://host/v1?key=hunter2", "https://host/#hunter2"])
def test_a_secret_in_an_endpoint_is_refused_and_not_repeated(endpoint):
    with pytest.raises(UsageError, match="--key-variable") as refused:
        parse_address("openai-compatible:qwen", endpoint, None)

    assert "hunter2" not in str(refused.value)


def test_a_missing_key_is_named_by_its_variable():
    with pytest.raises(UsageError, match="ANTHROPIC_API_KEY is not set"):
        parse_address("anthropic:claude-sonnet-5", None, None)


@for_each("key", ["sk-one two", "sk-one\nX-Header: two", "sk-öne"])
def test_what_cannot_be_a_key_is_not_sent_and_not_repeated(monkeypatch, key):
    monkeypatch.setenv("MINE", key)

    with pytest.raises(UsageError, match="MINE is not a valid key") as refused:
        parse_address("openai:gpt-5", None, "MINE")
    assert "one" not in str(refused.value)


def test_an_address_can_be_printed_without_its_key():
    assert KEY not in repr(parse_address("openai:gpt-5", None, None))


def test_a_key_is_scrubbed_and_a_stand_in_for_one_is_not(monkeypatch):
    monkeypatch.setenv("MINE", "EMPTY")

    assert parse_address("openai:gpt-5", None, None).scrub(f"a {KEY} b") == "a [key] b"
    assert parse_address("openai-compatible:q", LOCAL, "MINE").scrub("the log is EMPTY") == "the log is EMPTY"


def test_providers_cost_nothing_until_one_is_asked_for():
    heavy = "{'pydantic', 'pydantic_ai', 'openai', 'anthropic', 'httpx2'}"
    code = f"import sys, forkpoint.agent.providers; print({heavy} & set(sys.modules))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "set()\n"


@for_each(("spec", "other"), [("anthropic:claude-sonnet-5", "openai"), ("openai:gpt-5", "anthropic")], one_in=2)
def test_one_provider_does_not_load_the_other(spec, other):
    code = (
        "import sys; from forkpoint.agent.providers import Style, connect; "
        f"connect({spec!r}, {LOCAL!r}, None, Style.TOOLS); print({other!r} in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"


def test_without_the_extra_the_message_says_what_to_install():
    code = (
        "import sys; sys.modules['pydantic_ai'] = None; from forkpoint.agent.providers import Style, connect; "
        f"connect('openai:gpt-5', {LOCAL!r}, None, Style.TOOLS)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.stderr.splitlines()[-1].endswith("pip install 'forkpoint[agent]'")
