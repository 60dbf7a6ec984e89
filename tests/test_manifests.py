"""What coding agents are given to find forkpoint by: valid, in agreement with the program, and within the formats' limits."""

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

import forkpoint
from forkpoint.agent.case import ClaimStatus
from forkpoint.agent.claims import CLAIMS
from forkpoint.agent.hypothesis import ModelHypothesis
from forkpoint.agent.mcp.questions import questions
from forkpoint.brief.case import open_case
from forkpoint.cli import build_parser
from forkpoint.source.apis import Origin
from looping import for_each
from test_docs import PLACEHOLDERS, command_lines, leads_somewhere, links

ROOT = Path(__file__).parents[1]
SKILL = ROOT / "skills" / "forkpoint" / "SKILL.md"
CLAIMS_PAGE = SKILL.parent / "references" / "claims.md"
PLUGINS = [".claude-plugin/plugin.json", ".codex-plugin/plugin.json", ".cursor-plugin/plugin.json"]
MANIFESTS = [
    *PLUGINS,
    ".claude-plugin/marketplace.json",
    ".agents/plugins/marketplace.json",
    "gemini-extension.json",
    "mcp.json",
    "server.json",
]
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
VERSIONED = re.compile(r"forkpoint(?:\[[\w,]+\])?==([\w.]+)")


def load(name: str) -> Any:
    return json.loads((ROOT / name).read_text())


def values(node: Any, key: str) -> list[Any]:
    """All values under this key, however deep."""
    if isinstance(node, list):
        return [found for item in node for found in values(item, key)]
    if isinstance(node, dict):
        return [*([node[key]] if key in node else []), *(f for item in node.values() for f in values(item, key))]
    return []


def frontmatter() -> dict[str, str]:
    """Of the skill: the lines `key: text` between the marks, those of `metadata` with it."""
    head = SKILL.read_text().split("---\n")[1]
    return {
        key.strip(): text.strip().strip('"') for key, _, text in (line.partition(":") for line in head.splitlines())
    }


# Versions and names.


@for_each("name", MANIFESTS)
def test_every_version_is_that_of_the_package(name: str) -> None:
    stated = [*values(load(name), "version"), *VERSIONED.findall((ROOT / name).read_text())]

    assert set(stated) <= {forkpoint.__version__}
    assert stated or name == ".agents/plugins/marketplace.json", "Codex takes it from the plugin"


def test_the_skill_has_the_version_of_the_package() -> None:
    assert frontmatter()["version"] == forkpoint.__version__


@for_each("name", sorted(set(MANIFESTS) - {"server.json", "mcp.json"}))
def test_everything_is_called_forkpoint(name: str) -> None:
    manifest = load(name)

    assert manifest["name"] == "forkpoint"
    assert [plugin["name"] for plugin in manifest.get("plugins", [])] in ([], ["forkpoint"])


def test_the_name_in_the_registry_is_the_one_that_the_readme_marks() -> None:
    name = load("server.json")["name"]

    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", name)
    assert f"mcp-name: {name}" in (ROOT / "README.md").read_text()


# Limits of the formats.


def test_the_skill_is_within_the_limits_of_its_format() -> None:
    head = frontmatter()

    assert NAME.fullmatch(head["name"])
    assert len(head["name"]) <= 64
    assert head["name"] == SKILL.parent.name
    assert 0 < len(head["description"]) <= 1024
    assert ": " not in head["description"], "YAML would read a mapping"
    assert len(head["compatibility"]) <= 500
    assert len(SKILL.read_text().splitlines()) < 500


def test_the_description_for_the_registry_is_short() -> None:
    server = load("server.json")

    assert server["$schema"].endswith("/2025-12-11/server.schema.json")
    assert 0 < len(server["description"]) <= 100
    assert {package["registryType"] for package in server["packages"]} == {"pypi"}


def test_prompts_that_codex_offers_are_short_and_few() -> None:
    prompts = load(".codex-plugin/plugin.json")["interface"]["defaultPrompt"]

    assert 0 < len(prompts) <= 3
    assert all(0 < len(prompt) <= 128 for prompt in prompts)


def test_cursor_allows_no_other_fields() -> None:
    allowed = {"name", "displayName", "description", "version", "author", "license", "keywords", "skills", "mcpServers"}

    assert set(load(".cursor-plugin/plugin.json")) <= allowed


def test_codex_lists_no_plugin_that_lies_at_the_root_of_a_local_marketplace() -> None:
    """It skips a `local` source of `./`; as a repository to clone, the same folder is taken."""
    (plugin,) = load(".agents/plugins/marketplace.json")["plugins"]

    assert plugin["source"] == {"source": "url", "url": "./"}
    assert plugin["policy"]["installation"] == "AVAILABLE"


# What they point to.


@for_each("name", PLUGINS)
def test_paths_in_plugins_begin_at_the_plugin_and_exist(name: str) -> None:
    manifest = load(name)
    skills = manifest.get("skills", "./skills/")  # where Claude Code looks of its own accord

    assert skills.startswith("./")
    assert (ROOT / skills / "forkpoint" / "SKILL.md").is_file()
    assert manifest["mcpServers"].startswith("./")
    assert (ROOT / manifest["mcpServers"]).is_file()


def command_of(arguments: list[str]) -> list[str]:
    """What follows the name of the program."""
    return arguments[arguments.index("forkpoint") + 1 :]


@pytest.mark.parametrize("name", ["mcp.json", "gemini-extension.json"])
def test_the_server_is_started_by_a_command_that_exists_with_its_extra(name: str) -> None:
    server = load(name)["mcpServers"]["forkpoint"]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    assert server["command"] == "uvx"
    assert server["args"][:2] == ["--from", f"forkpoint[mcp]=={forkpoint.__version__}"]
    assert build_parser().parse_args(command_of(server["args"])).run
    assert "mcp" in extras


def test_the_registry_starts_the_same_command() -> None:
    (package,) = load("server.json")["packages"]

    assert [argument["value"] for argument in package["packageArguments"]] == ["mcp"]
    assert [argument["value"] for argument in package["runtimeArguments"]] == [
        f"forkpoint[mcp]=={forkpoint.__version__}"
    ]


@for_each("page", [SKILL, CLAIMS_PAGE, ROOT / "llms.txt"], ids=lambda page: page.name)
def test_links_for_agents_lead_somewhere(page: Path) -> None:
    assert [target for _, _, target in links(page) if not leads_somewhere(page, target)] == []
    assert links(page) or page == CLAIMS_PAGE


def test_commands_of_the_skill_can_be_parsed() -> None:
    lines = command_lines(SKILL)

    assert len(lines) >= 4
    for line in lines:
        build_parser().parse_args([PLACEHOLDERS.get(word, word) for word in shlex.split(line)[1:]])


def test_tools_that_the_skill_and_the_page_name_exist() -> None:
    there = {question.name for question in questions(may_open=True, store="history.db")}
    page = (ROOT / "docs" / "mcp.md").read_text()
    in_table = set(re.findall(r"^\| `(\w+)`", page, re.MULTILINE))
    named = set(re.findall(r"`(\w+)`", SKILL.read_text()))

    assert in_table == there
    assert {"brief", "open_case", "table", "log_lines", "submit_hypothesis", "offer_remedy"} <= named
    assert named - there == {"fixes", "pickle"}


def test_the_skill_can_be_read_cold() -> None:
    assert len(SKILL.read_text()) < 3_000
    assert "verdict stands" not in SKILL.read_text()


# Files of clients, held to what each documents.

CLIENTS = {
    "mcpServers": {"command", "args", "env", "cwd", "type", "url", "headers"},
    "servers": {"type", "command", "args", "env", "envFile", "cwd", "url", "headers"},
    "mcp_servers": {"command", "args", "env", "cwd", "url", "startup_timeout_sec", "tool_timeout_sec", "enabled"},
}
"""`.mcp.json` of Claude Code, Cursor, Gemini and Copilot; `.vscode/mcp.json`; Codex' `config.toml`."""


def test_the_lines_for_clients_are_in_their_forms_and_start_a_command_that_exists() -> None:
    page = (ROOT / "docs" / "mcp.md").read_text()
    written = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", page, re.DOTALL)]
    written += [tomllib.loads(block) for block in re.findall(r"```toml\n(.*?)```", page, re.DOTALL)]

    assert {key for one in written for key in one} == set(CLIENTS)
    for one in written:
        ((form, servers),) = one.items()
        server = servers["forkpoint"]
        assert set(server) <= CLIENTS[form]
        assert form != "servers" or server["type"] == "stdio", "VS Code wants it"
        assert server["command"] == "forkpoint"
        assert build_parser().parse_args(server["args"]).run


# The claims as agents learn them.


def test_the_page_on_claims_has_every_kind_with_its_fields() -> None:
    rows = dict(re.findall(r"^\| `([\w-]+)` \| (.*?) \|", CLAIMS_PAGE.read_text(), re.MULTILINE))
    fields = {claim.model_fields["kind"].annotation.__args__[0]: set(claim.model_fields) for claim in CLAIMS}

    assert {kind: set(re.findall(r"`(\w+)`", row)) | {"kind", "evidence"} for kind, row in rows.items()} == fields


def test_the_page_on_claims_has_every_reason_for_which_a_condition_can_differ() -> None:
    told = re.search(r"`because` is one of (.*?)\.", CLAIMS_PAGE.read_text(), re.DOTALL)

    assert told
    assert set(re.findall(r"`([\w-]+)`", told[1])) == set(Origin)


def test_the_example_of_claims_is_true_of_the_case_it_tells_of() -> None:
    example = re.search(r"```json\n(.*?)```", CLAIMS_PAGE.read_text(), re.DOTALL)
    assert example
    hypothesis = ModelHypothesis.model_validate_json(example[1])
    case = open_case([str(ROOT / "cases/0001/capture")], [str(ROOT / "cases/0001/source")])

    assert hypothesis.claims
    assert {claim.check(case).status for claim in hypothesis.claims} == {ClaimStatus.SUPPORTED}
    assert (hypothesis.suspects, hypothesis.earliest_seq) == (list(case.verdict.suspects), 16)
