"""An issue on GitHub, or a comment on one; and the same text as a file, to be posted in another way.

An open issue about the same fork gets a comment instead of a second issue: a mark in its text identifies it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import cast
from urllib.parse import quote

from forkpoint.report.markdown import sentence
from forkpoint.sinks.notice import Notice
from forkpoint.sinks.sink import Sink, SinkRefused, Variable
from forkpoint.sinks.web import HttpCall, post_json

_TOKEN = Variable("FORKPOINT_GITHUB_TOKEN", "a token that may write issues (default: GITHUB_TOKEN)", secret=True)
_ACTIONS_TOKEN = Variable("GITHUB_TOKEN", "as GitHub Actions gives it", secret=True)
_REPOSITORY = Variable("GITHUB_REPOSITORY", "OWNER/NAME, as in GitHub Actions")
_ISSUE = Variable("FORKPOINT_GITHUB_ISSUE", "comment on the issue or pull request of this number, open none")
_FILE = Variable("FORKPOINT_GITHUB_FILE", "also, or without a token only, write the text to this file")
_API = Variable("GITHUB_API_URL", "of GitHub Enterprise (default: https://api.github.com)")

LABEL = "forkpoint"
_MAX_BODY = 60_000
"""GitHub takes 65,536 characters."""
_MAX_TITLE = 200


def body(notice: Notice) -> str:
    facts = "".join(f"- {label}: {sentence(text, 600)}\n" for label, text in notice.facts() if label in _SHOWN)
    undecided = (
        "" if notice.is_decided else "**Not decided**: the evidence does not show the cause; nobody is accused.\n\n"
    )
    return f"{undecided}{notice.markdown[:_MAX_BODY]}\n{facts}\n{_mark(notice)}\n"


_SHOWN = ("job", "evidence", "from")
"""The rest is in the report."""


def title(notice: Notice) -> str:
    return f"forkpoint: {notice.title}"[:_MAX_TITLE]


def _mark(notice: Notice) -> str:
    return f"<!-- forkpoint fork {notice.fork} -->"


def render(notice: Notice, _environ: Mapping[str, str]) -> str:
    return f"{title(notice)}\n\n{body(notice)}"


def send(notice: Notice, environ: Mapping[str, str], limit_s: float) -> None:
    file, token = environ.get(_FILE.name), environ.get(_TOKEN.name) or environ.get(_ACTIONS_TOKEN.name)
    if file:
        _write(file, f"{title(notice)}\n\n{body(notice)}")
    if token:
        _post(notice, environ, token, limit_s)


def _write(file: str, text: str) -> None:
    try:
        Path(file).write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise SinkRefused(f"{file}: cannot be written ({error.strerror})") from error


def _post(notice: Notice, environ: Mapping[str, str], token: str, limit_s: float) -> None:
    owner, _, name = environ.get(_REPOSITORY.name, "").partition("/")
    if not owner or not name:
        raise SinkRefused(f"{_REPOSITORY.name} must be OWNER/NAME")
    base = (environ.get(_API.name) or "https://api.github.com").rstrip("/")
    issues = f"{base}/repos/{quote(owner)}/{quote(name)}/issues"
    headers = (
        ("Authorization", f"Bearer {token}"),
        ("Accept", "application/vnd.github+json"),
        ("X-GitHub-Api-Version", "2022-11-28"),
    )
    number = environ.get(_ISSUE.name) or _open_issue(notice, issues, headers, limit_s)
    if number:
        post_json(HttpCall(f"{issues}/{quote(number)}/comments", {"body": body(notice)}, headers), limit_s)
        return
    told = {"title": title(notice), "body": body(notice), "labels": [LABEL]}
    post_json(HttpCall(issues, told, headers), limit_s)


def _open_issue(notice: Notice, issues: str, headers: tuple[tuple[str, str], ...], limit_s: float) -> str | None:
    """The number of the newest open issue of the same fork, among the last hundred with our label."""
    listed = post_json(HttpCall(f"{issues}?labels={LABEL}&state=open&per_page=100", headers=headers), limit_s)
    known = (
        [cast("dict[str, object]", one) for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    )
    return next((str(one["number"]) for one in known if _mark(notice) in str(one.get("body"))), None)


SINK = Sink(
    "github",
    "an issue, or a comment on the open one of the same fork",
    (_TOKEN, _ACTIONS_TOKEN, _REPOSITORY, _ISSUE, _FILE, _API),
    render,
    send,
    any_of=(_TOKEN.name, _ACTIONS_TOKEN.name, _FILE.name),
    acts=True,
)
