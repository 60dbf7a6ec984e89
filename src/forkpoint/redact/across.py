"""Secrets that span lines: private keys, a name on one line and its value on the next, wrapped tokens."""

import re

from forkpoint.redact.secrets import Names, looks_made

# ---------------------------------------------------------------------------------------------------------------------
# Private keys: plain, escaped, or with a prefix from a launcher or logger on each line.

_BEGIN = r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
_END = r"-----END [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
_GAP = r"(?:\s|\\{1,4}[nr]){0,4}"
_HEADERS = r"(?:\s{1,2}[A-Za-z-]{1,20}: [^\n]{0,80}){0,3}"
# The body is masked with or without an end: a log may be truncated.
_WHOLE = re.compile(
    rf"{_BEGIN}{_HEADERS}(?:{_GAP}[A-Za-z0-9+/=]{{16,100}}){{1,800}}(?:{_GAP}[A-Za-z0-9+/=]{{1,100}})?{_GAP}(?:{_END})?"
)
_BEGUN = re.compile(rf"(?P<front>[^\n]*?){_BEGIN}(?P<rest>[^\n]*)")
_ENDED = re.compile(_END)
_BODY = re.compile(
    r"""["'\s]{0,20}(?:[A-Za-z0-9+/=]{0,100}|[A-Za-z-]{1,20}: [^\n]{0,80})(?:\\{1,4}[nr]|["'\s,+\\)]){0,20}"""
)
_LONG_RUN = re.compile(r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{40,100}={0,2}(?![A-Za-z0-9+/])")
_LINES_AT_MOST = 400
_KEY_LINE = re.compile(r"(?:\A|(?<=\n))[A-Za-z0-9+/]{64}(?=\s|\Z)")
_KEY_LINE_HINT = re.compile(r"\n[A-Za-z0-9+/]{64}")
_HEX_ONLY = re.compile(r"[0-9a-f]{40,100}|[0-9A-F]{40,100}")
_SIGN = "PRIVATE KEY"


def _redact_private_keys(text: str, names: Names) -> str:
    if _SIGN in text:
        text = _WHOLE.sub(lambda _: names.mask("private-key"), text)
    return _behind_fronts(text, names) if _SIGN in text else text


def redact_key_lines(text: str, names: Names) -> str:
    """Masks lines from the middle of a key, for callers that pass single lines. A SHA-256 in hex has the same length."""
    if _KEY_LINE.match(text) or _KEY_LINE_HINT.search(text):
        text = _KEY_LINE.sub(lambda match: _masked_run(match, names), text)
    return text


def _masked_run(match: re.Match[str], names: Names) -> str:
    return match[0] if _HEX_ONLY.fullmatch(match[0]) else names.mask("private-key")


def _behind_fronts(text: str, names: Names) -> str:
    lines = text.split("\n")
    for place, line in enumerate(lines):
        begun = _BEGUN.match(line)
        if begun:
            lines[place] = begun["front"] + names.mask("private-key") + ("" if _ENDED.search(line) else begun["rest"])
            _mask_body(lines, place + 1, begun["front"], names)
    return "\n".join(lines)


def _mask_body(lines: list[str], start: int, front: str, names: Names) -> None:
    """Masks lines with the same prefix as the first (digits may differ), up to the end of the key. Lines of other writers may
    come in between.
    """
    own = re.compile(re.sub("[0-9]+", "[0-9]+", re.escape(front)))
    for place in range(start, min(start + _LINES_AT_MOST, len(lines))):
        line = lines[place]
        begins = own.match(line)
        rest = line[begins.end() :] if begins else ""
        if _ENDED.search(line):
            lines[place] = _ENDED.sub(lambda _: names.mask("private-key"), line)
            return
        if begins and _BODY.fullmatch(rest):
            lines[place] = begins[0] + names.mask("private-key") if rest.strip() else line
        elif _LONG_RUN.search(line):
            lines[place] = _LONG_RUN.sub(lambda match: _masked_run(match, names), line)
        elif begins and front:
            return


# ---------------------------------------------------------------------------------------------------------------------
# `name: DB_PASSWORD` and `value: ...`, as in Kubernetes; `"--api-key",` and its value in a list with one item per line; a
# YAML block (`password: |-`); `<name>fs.s3a.secret.key</name>` and its `<value>`, as in Hadoop.

_NAMED = r"(?i:password|passwd|passphrase|secret|token|credential|api[_-]?key|access[_-]?key|private[_-]?key)"
_LINE_FRONT = r"(?:\[[\w.:-]{1,40}\]:? ?)?+"
"""What a launcher puts before each line."""
_PAIR_HINT = re.compile(r"""alue(?=\\?["']?\s{0,4}[:=])""")
_PAIR = re.compile(
    rf"""(?P<front>\b(?:[nN]ame|[kK]ey)\\?["']?\s{{0,4}}[:=]\s{{0,4}}\\?["']?[\w.-]{{0,60}}{_NAMED}[\w.-]{{0,20}}\\?["']?\s{{0,20}},?{_LINE_FRONT}\s{{0,40}}"""
    rf"""\\?["']?[vV]alue\\?["']?\s{{0,4}}[:=]\s{{0,4}}\\?["']?)(?!\[masked-)(?P<value>[^\s"'\\,}}][^"'\\\n]{{0,500}})"""
)
_TAGS_HINT = re.compile(r"<value>(?=[^\s<])")
_TAGS = re.compile(
    rf"""(?P<front><name>\s{{0,4}}[\w.-]{{0,60}}{_NAMED}[\w.-]{{0,40}}\s{{0,4}}</name>\s{{0,20}}{_LINE_FRONT}\s{{0,40}}<value>)(?!\[masked-)(?P<value>[^\s<][^<\n]{{0,500}})"""
)
_OPTION_HINT = re.compile(r"""--[\w-]{0,40}(?i:word|phrase|wd|ret|ken|key)["']?,?[^\S\n]{0,3}\\?\n""")
_OPTION = re.compile(
    rf"""(?P<front>--[\w-]{{0,30}}(?:{_NAMED})["']?,?[^\S\n]{{0,3}}\\?\n{_LINE_FRONT}\s{{0,40}}(?:- )?["']?)(?!\[masked-|-)(?P<value>[^\s"',][^"'\n]{{0,500}})"""
)
_BLOCK_HINTS = (re.compile(r"\|(?=[-+]?[ \t]{0,3}\n)"), re.compile(r">(?=[-+]?[ \t]{0,3}\n)"))
_BLOCK = re.compile(
    rf"""(?P<front>{_NAMED}["']?:[ \t]{{1,4}}[|>][-+]?[ \t]{{0,3}}\n[ \t]{{1,40}})(?!\[masked-)(?P<value>[^\s][^\n]{{0,500}})"""
)
_BELOW_HINT = re.compile(r"""(?i:word|phrase|wd|ret|ken|key|s)["']?[ \t]{0,4}[:=][ \t]{0,3}\n""")
_BELOW = re.compile(
    rf"""(?P<front>{_NAMED}s?["']?[ \t]{{0,4}}[:=][ \t]{{0,3}}\n{_LINE_FRONT}[ \t]{{1,60}}(?:- )?["']?)(?!\[masked-|-|\S{{0,80}}:(?:[ \n]|\Z))(?P<value>[^\s"'{{\[][^\s"']{{0,500}})"""
)
_SHOWN = frozenset({"true", "false", "null", "None", "True", "False"})


def _redact_pairs(text: str, names: Names) -> str:
    def masked(match: re.Match[str]) -> str:
        value = match["value"]
        return match[0] if value in _SHOWN or value.isdecimal() else match["front"] + names.mask("value")

    if _PAIR_HINT.search(text):
        text = _PAIR.sub(masked, text)
    if _TAGS_HINT.search(text):
        text = _TAGS.sub(masked, text)
    if any(hint.search(text) for hint in _BLOCK_HINTS):
        text = _BLOCK.sub(masked, text)
    if _BELOW_HINT.search(text):
        text = _BELOW.sub(masked, text)
    return _OPTION.sub(masked, text) if _OPTION_HINT.search(text) else text


# ---------------------------------------------------------------------------------------------------------------------
# Tokens that a terminal or a person wrapped: the line ends inside one, and the next line is just the rest.

_FRONTS = r"hf_|gh[opusr]_|github_pat_|glpat-|sk-|nvapi-|xox[abeoprs]-|A[KS]IA|AIza|eyJ|wandb_v\d_|GOCSPX-|ya\d\d\."
_WRAPPED = re.compile(
    rf"(?<![A-Za-z0-9])(?P<one>(?:{_FRONTS})[A-Za-z0-9_.-]{{0,300}})(?P<gap>\\?\n[ \t]{{0,8}})(?P<two>[A-Za-z0-9_.-]{{4,300}})(?=\s*(?:\n|\Z))"
)
_WRAPPED_HINTS = tuple(
    re.compile(hint)
    for hint in (
        r"_(?:(?<=hf_)|(?<=gh[opusr]_)|(?<=pat_)|(?<=_v\d_))[A-Za-z0-9_]{0,300}\\?\n",
        r"-(?:(?<=sk-)|(?<=pi-)|(?<=PX-)|(?<=at-)|(?<=xox[abeoprs]-))[A-Za-z0-9_-]{0,300}\\?\n",
        r"IA(?<=A[KS]IA)[0-9A-Z]{0,16}\\?\n",
        r"AIza[0-9A-Za-z_-]{0,35}\\?\n",
        r"eyJ[A-Za-z0-9_.-]{0,300}\\?\n",
        r"ya\d\d\.[A-Za-z0-9_-]{0,300}\\?\n",
    )
)


def _redact_wrapped(text: str, names: Names) -> str:
    def masked(match: re.Match[str]) -> str:
        whole = match["one"] + match["two"]
        if len(whole) < 20 or not looks_made(whole):
            return match[0]
        return names.mask("wrapped-token") + match["gap"] + names.mask("wrapped-token")

    return _WRAPPED.sub(masked, text) if any(hint.search(text) for hint in _WRAPPED_HINTS) else text


def redact_across_lines(text: str, names: Names) -> str:
    """Masks all secrets that a single line does not show."""
    return _redact_wrapped(_redact_pairs(_redact_private_keys(text, names), names), names)


_GOES_ON = (_PAIR_HINT, _TAGS_HINT, _OPTION_HINT, _BELOW_HINT, *_BLOCK_HINTS, *_WRAPPED_HINTS)
_NAMES_ONE = re.compile(
    rf"(?:(?:ame(?<=\b[nN]ame)|ey(?<=\b[kK]ey))\\?[\"']?\s{{0,4}}[:=]\s{{0,4}}\\?[\"']?|<name>\s{{0,4}})[\w.-]{{0,60}}{_NAMED}"
)


def goes_on(lines: str) -> bool:
    """Whether a secret may span these lines, so that they cannot be redacted one by one."""
    return _SIGN in lines or asks_for_next(lines)


def asks_for_next(lines: str) -> bool:
    """Whether the next line may hold the value or the rest of something."""
    return any(hint.search(lines) for hint in _GOES_ON) or _NAMES_ONE.search(lines) is not None
