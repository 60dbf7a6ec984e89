"""Keys and tokens that are known by their shape, wherever they stand.

Every pattern begins with letters that are rare in logs, is bounded, and leaves nothing to try twice. Hashes of commits and
uuids have no such beginning and stay.
"""

import re

from forkpoint.redact.lines import on_lines
from forkpoint.redact.names import Names

_GAP = r"(?:\s|\\n|\\r){0,4}"
_HEADERS = r"(?:\s{1,2}[A-Za-z-]{1,20}: [^\n]{0,80}){0,3}"
# The body is taken with or without an end: a log may be cut.
_PEM = (
    rf"-----BEGIN [A-Z ]{{0,30}}PRIVATE KEY-----{_HEADERS}(?:{_GAP}[A-Za-z0-9+/=]{{16,100}}){{0,800}}"
    rf"(?:{_GAP}[A-Za-z0-9+/=]{{1,100}})?{_GAP}(?:-----END [A-Z ]{{0,30}}PRIVATE KEY-----)?"
)
_PRIVATE_KEY = re.compile(_PEM)
_SHAPES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (what, re.compile(pattern))
    for what, pattern in (
        ("aws-key", r"(?<![A-Za-z0-9])A[KS]IA[0-9A-Z]{16}(?![A-Za-z0-9])"),
        ("google-key", r"(?<![A-Za-z0-9])AIza[0-9A-Za-z_-]{35}"),
        ("google-key", r"(?<![A-Za-z0-9])ya29\.[0-9A-Za-z_-]{20,2000}"),
        ("google-key", r"(?<![A-Za-z0-9])GOCSPX-[0-9A-Za-z_-]{20,60}"),
        ("azure-signature", r"(?<=[?&;]sig=)[A-Za-z0-9%/+=]{20,200}"),
        ("huggingface-token", r"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{20,200}(?![A-Za-z0-9])"),
        ("model-key", r"(?<![A-Za-z0-9])sk-[A-Za-z0-9_-]{20,300}"),
        ("nvidia-key", r"(?<![A-Za-z0-9])nvapi-[A-Za-z0-9_-]{20,200}"),
        ("github-token", r"(?<![A-Za-z0-9])gh[opusr]_[A-Za-z0-9]{30,260}(?![A-Za-z0-9])"),
        ("github-token", r"(?<![A-Za-z0-9])github_pat_[A-Za-z0-9_]{22,260}(?![A-Za-z0-9])"),
        ("gitlab-token", r"(?<![A-Za-z0-9])glpat-[A-Za-z0-9_-]{20,60}"),
        ("slack-token", r"(?<![A-Za-z0-9])xox[abeoprs]-[A-Za-z0-9-]{10,260}"),
        ("slack-token", r"(?<=hooks\.slack\.com/)[A-Za-z0-9/]{20,100}"),
        ("wandb-key", r"(?<![A-Za-z0-9])wandb_v1_[A-Za-z0-9_]{20,200}(?![A-Za-z0-9])"),
        ("wandb-key", r"(?<=wandb login )(?:--relogin )?[0-9a-f]{40}(?![A-Za-z0-9])"),
        ("jwt", r"(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{8,8000}(?:\.[A-Za-z0-9_-]{0,2000})?"),
        # Somebody's name before the host is masked with the password: tokens are given in either place.
        ("credentials", r"(?<=://)[^\s/@?#\[\]][^\s/?#]{0,512}(?=@)"),
    )
)
_HINTS = tuple(
    re.compile(hint)
    for hint in (
        r"_(?:(?<=hf_)|(?<=gh[opusr]_)|(?<=pat_)|(?<=_v1_))[A-Za-z0-9_]{20}",
        r"-(?:(?<=sk-)|(?<=pi-)|(?<=PX-)|(?<=at-)|(?<=xox[abeoprs]-))[A-Za-z0-9_-]{10}",
        r"IA(?<=A[KS]IA)[0-9A-Z]{16}",
        r"AIza[0-9A-Za-z_-]{35}",
        r"ya29\.",
        r"sig=",
        r"slack\.com/",
        r"wandb login ",
        r"eyJ[A-Za-z0-9_-]{8}",
        r"@",
    )
)
_KEY_LINE = re.compile(r"(?:\A|(?<=\n))[A-Za-z0-9+/]{64}(?=\s|\Z)")
_KEY_LINE_HINT = re.compile(r"\n[A-Za-z0-9+/]{64}")
_HEX_ONLY = re.compile(r"[0-9a-f]{64}|[0-9A-F]{64}")


def redact_secrets(text: str, names: Names) -> str:
    def shaped(line: str) -> str:
        for what, pattern in _SHAPES:
            line = pattern.sub(lambda _, what=what: names.mask(what), line)
        return line

    for hint in _HINTS:
        text = on_lines(hint, text, shaped)
    return text


def redact_private_keys(text: str, names: Names) -> str:
    """Whole keys, and lines from the middle of one for readers that come line by line. A SHA-256 is as long, in hex."""

    def masked(match: re.Match[str]) -> str:
        return match[0] if _HEX_ONLY.fullmatch(match[0]) else names.mask("private-key")

    if "PRIVATE KEY-----" in text:
        text = _PRIVATE_KEY.sub(lambda _: names.mask("private-key"), text)
    if _KEY_LINE.match(text) or _KEY_LINE_HINT.search(text):
        text = _KEY_LINE.sub(masked, text)
    return text
