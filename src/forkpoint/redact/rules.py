"""Masks secrets that published rules know, and words that look machine-generated.

Rules are data: `secret_rules/gitleaks.toml` as gitleaks publishes it (with its licence), and `secret_rules/ours.toml` for
what that lacks. They are tried only on lines with a generated-looking word, and only on the text around it.
"""

import base64
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from forkpoint.redact.hidden import BASE64_RUN, decode_base64
from forkpoint.redact.secrets import MASKED, Names, on_lines, redact_keyed, redact_secrets

# ---------------------------------------------------------------------------------------------------------------------
# Words that look generated: upper case, lower case and digits alternate. Only classes of characters are used, never single
# digits, so the result is the same for all lines that differ only in digits (`logs.py` relies on it).

_SHORTEST = 16
_WORD_BREAKS = {code: " " for code in range(128) if not (chr(code).isalnum() or chr(code) in "_+/.~%-")}
_CLASSES = {
    **dict.fromkeys(range(ord("a"), ord("z") + 1), "a"),
    **dict.fromkeys(range(ord("A"), ord("Z") + 1), "A"),
    **dict.fromkeys(range(ord("0"), ord("9") + 1), "0"),
}
_TURNS = ("a0", "0a", "A0", "0A", "aA")
_RUNS = re.compile(r"[A-Za-z0-9]+")
_POINTER = re.compile(r"0x[0-9a-fA-F]+")
_ONLY_HEX = re.compile(r"[0-9a-fA-F-]+")
_SYMBOL = re.compile(r"_{0,2}Z(?:N|L|T|St|\d)|Cijk_|_R(?:N|I)")
"""Mangled names of C++, Rust and AMD's kernels."""


def made_words(text: str) -> list[str]:
    """Distinct words that look generated."""
    long = " ".join([word for word in text.split() if len(word) >= _SHORTEST])
    return [word for word in set(long.translate(_WORD_BREAKS).split()) if len(word) >= _SHORTEST and is_made(word)]


@lru_cache(maxsize=8192)
def is_made(word: str) -> bool:
    """A loose test: also true for hashes, uuids and much else that is not secret. A rule must confirm it."""
    if _POINTER.fullmatch(word):
        return False
    if _digits_alike(word).startswith(_encoded_fronts()):
        return True
    long = _turns(word)
    letters = sum(map(len, _RUNS.findall(word)))
    if letters >= 20 and long >= 0.3 * letters:
        return True
    if any(_digits_alike(front.lower()) in _fronts() for front in _FRONT.findall(word)):
        return True
    return any(
        len(run) >= _SHORTEST and (turns := _turns(run)) >= 4 and turns >= 0.2 * len(run) for run in _RUNS.findall(word)
    )


_FRONT = re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9]{2,12}[_.-](?=[A-Za-z0-9_.-]{12})")
_COMMON_FRONTS = frozenset({"key-", "api-", "test_", "live_", "secret_", "ext_", "together_"})


@cache
def _fronts() -> frozenset[str]:
    """Prefixes of providers' keys: `npm_`, `hvs.`."""
    words = {word for word, _ in _keywords() if len(word) > 3 and re.fullmatch(r"[a-z0-9]+[_.-]", word)}
    return frozenset(_digits_alike(word) for word in words - _COMMON_FRONTS)


_KEY_FRONTS = (
    "AKIA",
    "ASIA",
    "AIza",
    "hf_",
    "sk-",
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "xox",
    "nvapi-",
    "eyJ",
    "password",
)


@cache
def _encoded_fronts() -> tuple[str, ...]:
    """How keys begin in base64, where few digits may follow."""
    whole = (base64.b64encode(front.encode()[: len(front) // 3 * 3]).decode() for front in _KEY_FRONTS)
    return tuple(_digits_alike(front) for front in whole)


def _digits_alike(text: str) -> str:
    return re.sub("[0-9]", "0", text)


def _turns(word: str) -> int:
    """How often the class of characters changes. A capital followed by a small letter, as in CamelCase, does not count."""
    classes = word.translate(_CLASSES)
    return sum(classes.count(turn) for turn in _TURNS)


_SEGMENT = re.compile(r"[A-Za-z0-9_+-]{20,}={0,2}")
_BASE64 = re.compile(r"[A-Za-z0-9+/]{32,}={0,2}")


def _random_parts(word: str) -> Iterator[str]:
    """A strict test: parts that nobody writes by hand and no program uses as a name. Hex hashes are names."""
    if _SYMBOL.match(word):
        return
    whole = _BASE64.fullmatch(word)
    if whole and _is_random(word, 32):
        yield word
        return
    for segment in _SEGMENT.findall(word):
        if any(_is_random(run, 20) for run in _RUNS.findall(segment)):
            yield segment


def _is_random(run: str, shortest: int) -> bool:
    classes = run.translate(_CLASSES)
    return (
        len(run) >= shortest
        and all(kind in classes for kind in "aA0")
        and sum(classes.count(turn) for turn in _TURNS) >= 0.33 * len(run)
    )


# ---------------------------------------------------------------------------------------------------------------------
# The rules.

_FOLDER = Path(__file__).parent / "secret_rules"
_NOT_USED = frozenset({"generic-api-key", "curl-auth-header", "curl-auth-user", "private-key", "pkcs12-file"})
"""Replaced by code here and in `secrets.py`, which fits logs better and is faster."""
_GO_TAIL = r"""(?:[\x60'"\s;]|\\[nr]|$)"""
_GO_FRONT = r"[\w.-]{0,50}?"
_INSIDE_NAME = "(?<![A-Za-z0-9])"
"""A folder's name may contain a key between underscores, so `_` does not count as a letter."""


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    keywords: tuple[str, ...]
    """In lower case."""
    source: str
    is_plain: bool
    """Tried on any line with a keyword, not only near generated-looking words."""

    def secret(self, match: re.Match[str]) -> tuple[int, int]:
        groups = [number for number in range(1, len(match.groups()) + 1) if match[number]]
        return match.span(groups[0] if groups else 0)


@cache
def rules() -> tuple[Rule, ...]:
    return tuple(rule for name in ("ours.toml", "gitleaks.toml") for rule in _read(_FOLDER / name))


def _read(path: Path) -> Iterator[Rule]:
    for entry in tomllib.loads(path.read_text(encoding="utf-8"))["rules"]:
        if entry["id"] not in _NOT_USED:
            yield _rule(entry)


def _rule(entry: Mapping[str, object]) -> Rule:
    keywords = tuple(str(word).lower() for word in _listed(entry["keywords"]))
    return Rule(str(entry["id"]), keywords, in_python(str(entry["regex"])), bool(entry.get("plain")))


def _listed(value: object) -> list[object]:
    assert isinstance(value, list)
    return value


def in_python(pattern: str) -> str:
    """Translates a Go pattern to Python. The text around a secret is matched less strictly, to mask too much rather than too
    little.
    """
    pattern = pattern.replace(r"\z", r"\Z").replace("[[:alnum:]]", "[A-Za-z0-9]").replace(_GO_TAIL, "(?![A-Za-z0-9])")
    pattern = pattern.replace(_GO_FRONT, "", 1) if pattern.startswith(("(?i)" + _GO_FRONT, _GO_FRONT)) else pattern
    return _scoped(pattern).replace(r"\b(", _INSIDE_NAME + "(", 1)


def _scoped(pattern: str) -> str:
    """In Go, `a(?i)b` ignores case for b, to the end of its group; in Python that is `a(?i:b)`."""
    at = pattern.find("(?i)", 1)
    if at < 0:
        return pattern
    end = _group_end(pattern, at + 4)
    return _scoped(f"{pattern[:at]}(?i:{pattern[at + 4 : end]}){pattern[end:]}")


def _group_end(pattern: str, at: int) -> int:
    depth, in_set = 0, False
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            at += 1
        elif in_set:
            in_set = char != "]"
        elif char == "[":
            in_set = True
        elif char in "()":
            depth += 1 if char == "(" else -1
            if depth < 0:
                return at
        at += 1
    return at


@cache
def _compiled(source: str) -> re.Pattern[str]:
    """Compiled on first use: compiling all of them takes half a second."""
    return re.compile(source)


@cache
def _plain_rules() -> tuple[tuple[str, Rule], ...]:
    return tuple((word, rule) for rule in rules() if rule.is_plain for word in rule.keywords)


@cache
def _keywords() -> tuple[tuple[str, tuple[Rule, ...]], ...]:
    by_word: dict[str, list[Rule]] = {}
    for rule in rules():
        for word in rule.keywords:
            if not rule.is_plain:
                by_word.setdefault(word, []).append(rule)
    return tuple((word, tuple(found)) for word, found in by_word.items())


@cache
def _keyword_kinds() -> frozenset[str]:
    return frozenset(_digits_alike(word) for word, _ in _keywords() if len(word) > 2)


# ---------------------------------------------------------------------------------------------------------------------
# Lines.

_BEFORE, _BEHIND, _LONGEST = 200, 100, 4000
_NAMED = re.compile(
    r"(?i:access|auth|api|credential|creds|key|license|pass|private|secret|session|sign|token|twilio|unseal)"
    r"""[ \w.-]{0,20}["'\\]{0,2}\s{0,3}(?:=|:|=>|:=)[\s"'\\=]{0,5}\Z"""
)
"""A name before a generated-looking value. A looser pattern than the names in `secrets.py`, where any value is secret."""


_COMMAND_HINTS = tuple(
    re.compile(hint)
    for hint in (
        " -(?=[abkpuwPU]|-user|-proxy-user)",
        "login ",
        "in(?<=-stdin)",
        "<<<",
        " -S",
        "chpasswd",
        "kinit",
        "(?i:identified )",
        "requirepass",
        "masterauth",
        r":(?:5432|6432|\*):",
    )
)
"""Options that may be followed by a password, and commands and settings that take one."""


def redact_ruled(text: str, names: Names) -> str:
    """Masks what the rules find, and what looks random."""
    for hint in _COMMAND_HINTS:
        text = on_lines(hint, text, lambda line: _command(line, names))
    made = set(made_words(text))
    if not made:
        return text
    lines = text.split("\n")
    for place, line in enumerate(lines):
        if len(line) >= _SHORTEST:
            words = [word for word in line.translate(_WORD_BREAKS).split() if word in made]
            if words:
                lines[place] = _masked(line, _in_line(line, words), names)
    return "\n".join(lines)


def _command(line: str, names: Names) -> str:
    low = line.lower()
    for word, rule in _plain_rules():
        if word in low:
            line = _masked(line, _found(rule, line), names)
    return line


def _in_line(line: str, words: list[str]) -> list[tuple[int, int, str]]:
    spans: list[tuple[int, int, str]] = []
    at = 0
    for word in words:
        at = line.index(word, at)
        end = at + len(word)
        start = max(0, at - _BEFORE)
        around = line[start : min(end, at + _LONGEST) + _BEHIND]
        low = around.lower()
        tried = {rule for keyword, found in _keywords() if keyword in low for rule in found}
        spans += [(begin + start, stop + start, what) for rule in tried for begin, stop, what in _found(rule, around)]
        if _NAMED.search(line, start, at):
            spans.append((at, end, "value"))
        elif any(_wraps_secret(run) for part in (word, *word.split("/")) for run in BASE64_RUN.findall(part)):
            spans.append((at, end, "encoded"))
        else:
            spans += [(place := line.index(part, at), place + len(part), "random-text") for part in _random_parts(word)]
        at = end
    return spans


@lru_cache(maxsize=1024)
def _wraps_secret(run: str) -> bool:
    held = decode_base64(run)
    return held is not None and without_secrets(held) != held


def without_secrets(text: str) -> str:
    """The text with each secret as one character: the more secrets, the shorter."""
    names = Names()
    return MASKED.sub("*", redact_ruled(redact_keyed(redact_secrets(text, names), names), names))


def _found(rule: Rule, text: str) -> list[tuple[int, int, str]]:
    return [(*rule.secret(match), rule.name) for match in _compiled(rule.source).finditer(text)]


def _masked(text: str, spans: list[tuple[int, int, str]], names: Names) -> str:
    """Overlapping spans become one, with the name of the first."""
    done: list[str] = []
    at = 0
    for start, end, what in _joined(spans):
        if not MASKED.search(text[start:end]):
            done += (text[at:start], names.mask(what))
            at = end
    return "".join((*done, text[at:]))


def _joined(spans: list[tuple[int, int, str]]) -> Iterator[tuple[int, int, str]]:
    current: tuple[int, int, str] | None = None
    for start, end, what in sorted(spans):
        if current and start < current[1]:
            current = current[0], max(end, current[1]), current[2]
        else:
            if current:
                yield current
            current = start, end, what
    if current:
        yield current


def asks_for_digits(line: str) -> bool:
    """Whether what these rules find in a line may depend on its digits."""
    made = made_words(line)
    if not made:
        return False
    if not all(_ONLY_HEX.fullmatch(word) for word in made):
        return True
    low = _digits_alike(line.lower())
    return any(word in low for word in _keyword_kinds())
