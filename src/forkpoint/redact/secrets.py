"""Masks secrets: keys and tokens recognised by their form, and values after a name like `password=`.

Secrets that span lines are in `across.py`, published rules in `rules.py`.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable

# ---------------------------------------------------------------------------------------------------------------------
# What was replaced by what. Masked text is not kept; pseudonyms can be looked up on this machine.

PSEUDONYM = re.compile(r"(?:guid|host|ip|mac|mail|user)-[1-9][0-9]{0,8}")
MASKED = re.compile(r"\[masked-[a-z0-9-]+\]")


class Names:
    """Pseudonyms, numbered in order of first use: `host-1`, `host-2`."""

    def __init__(self) -> None:
        self._pseudonyms: dict[tuple[str, str], str] = {}
        self._last: Counter[str] = Counter()
        self._reserved: set[str] = set()
        self.counts: Counter[str] = Counter()
        """Number of replacements, by kind."""

    def mask(self, what: str) -> str:
        self.counts[what] += 1
        return f"[masked-{what}]"

    def pseudonym(self, what: str, original: str) -> str:
        """The same for the same original. What already looks like a pseudonym is left as it is."""
        if PSEUDONYM.fullmatch(original):
            return original
        self.counts[what] += 1
        return self.give(what, original)

    def reserve(self, originals: Iterable[str]) -> None:
        """Originals that look like a pseudonym: they stay as they are, and are not used as pseudonyms."""
        self._reserved.update(originals)

    def give(self, what: str, original: str) -> str:
        known = self._pseudonyms.get((what, original))
        if known is None:
            known = self._pseudonyms[what, original] = self._unused(what)
        return known

    def _unused(self, what: str) -> str:
        self._last[what] += 1
        while f"{what}-{self._last[what]}" in self._reserved:
            self._last[what] += 1
        return f"{what}-{self._last[what]}"

    @property
    def given(self) -> dict[tuple[str, str], str]:
        """(kind, original) -> pseudonym."""
        return self._pseudonyms


# ---------------------------------------------------------------------------------------------------------------------
# Precise patterns are slow, and few lines need them: a fast hint selects the lines.


def on_lines(hint: re.Pattern[str], text: str, redact: Callable[[str], str]) -> str:
    """Applies `redact` to the lines in which `hint` is found.

    A hint should begin with fixed characters and look back from there: Python's `re` finds these ten times faster than a
    set of alternatives.
    """
    found = hint.search(text)
    if found is None:
        return text
    done: list[str] = []
    start = 0
    while found is not None:
        line = text.rfind("\n", start, found.start()) + 1 or start
        end = text.find("\n", found.end())
        end = len(text) if end < 0 else end
        done += (text[start:line], redact(text[line:end]))
        start = end
        found = hint.search(text, end)
    return "".join((*done, text[start:]))


# ---------------------------------------------------------------------------------------------------------------------
# Keys and tokens that are recognised by their form anywhere.
#
# Every pattern begins with letters that are rare in logs, is bounded, and never backtracks. Commit hashes and uuids have no
# such prefix and stay.

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
        # The user name before a host is masked, too: tokens are put in either place.
        ("credentials", r"(?<=://)[^\s/@?#\[\]][^\s/?#]{0,512}(?=@)"),
        # A password may contain a slash although it should not; `host:8080/path@v1` is not one.
        ("credentials", r"""(?<=://)[^\s/@:?#\[\]"']{0,64}:(?!\d{1,5}/|//)[^\s@"'<>]{1,200}(?=@[A-Za-z0-9\[])"""),
    )
)
_SHAPE_HINTS = tuple(
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


def redact_secrets(text: str, names: Names) -> str:
    def shaped(line: str) -> str:
        for what, pattern in _SHAPES:
            line = pattern.sub(lambda _, what=what: names.mask(what), line)
        return line

    for hint in _SHAPE_HINTS:
        text = on_lines(hint, text, shaped)
    return text


# ---------------------------------------------------------------------------------------------------------------------
# Values after a telling name: `password=`, `HF_TOKEN:`, `Authorization: Bearer`, `--api-key`. The name is kept.
#
# A password is always masked. Other values must look generated (eight characters with a digit, or twenty letters and
# digits), since a model's tokens (`eos_token: 2`, `pad_token='<pad>'`, `token: str`) are not secret.


def _any_case(*words: str) -> str:
    """The spellings in code, in the environment, and in headers. Ignoring case would be ten times as slow."""
    return "|".join(dict.fromkeys(form for word in words for form in (word, word.upper(), word.title())))


_ALWAYS = r"(?:[pP]ass(?:[wW]ord|wd|phrase|code)|PASS(?:WORD|WD|PHRASE|CODE))s?(?P<suffix>[_-]?[0-9A-Za-z_]{0,20})"
_KEY = _any_case(
    "api_key",
    "api-key",
    "apikey",
    "access_key",
    "access-key",
    "account_key",
    "private_key",
    "secret_key",
    "signing_key",
    "encryption_key",
    "master_key",
    "session_key",
    "shared_key",
)
_CAMEL = (
    "apiKey|ApiKey|APIKey|API-Key|API_Key|accessKey|AccessKey|AccountKey|secretKey|SecretKey|privateKey|clientSecret"
)
_OTHER = _any_case("secret", "token", "secrets", "credential", "credentials", "cookie", "cookies", "auth")
_AUTHORIZATION = _any_case("authorization")
_QUOTE = r"""(?:[\\"']|&quot;|&#3[49];)"""
_MARK = r"(?::=|==|=>|->|[=:|\u2502])"
# Before a value: a list, a dict or a call that holds it (`Some("x")`), the prefix of a literal (`b"x"`), a YAML tag. `""` is not
# a value.
_HOLDER = r"""(?:[\[({]{1,2}(?:["'][\w .-]{1,40}["']: {0,2})?(?=["'])|[A-Za-z_]{1,20}\((?=["']))?"""
_PREFIX = r"""(?:[bfruBFRU](?=["'])|!!?\w{0,20}[ \t]{1,2}|&\w{1,40}[ \t]{1,2})?"""
_NOT_EMPTY = r"""(?!(?P<empty>["'])(?P=empty)(?!(?P=empty)))"""
# Atomic: what separates a name from its value is never taken for the value.
_SEPARATOR = (
    rf"(?>{_QUOTE}{{0,8}}+[\])]?[ \t]{{0,60}}{_MARK}[ \t]{{0,60}}"
    rf"""{_HOLDER}{_PREFIX}{_NOT_EMPTY}{_QUOTE}{{0,8}}+|["']{{0,2}}>|["'][)\]]?, {{0,2}}[bu]?["'])"""
)
_OPTION = r"--?[\w-]{0,30}"
_OPTION_GAP = r"""(?: {1,2}|[\\"']{1,4}\s{0,2},\s{0,2})[\\"']{0,4}"""
_LONGEST = 10_000
_QUOTED = (
    rf"""(?<=\\["'])[^"'\\\n]{{1,{_LONGEST}}}+|"""
    rf"""(?<=")(?:[^"\\\n]|\\.){{1,{_LONGEST}}}+(?=")|(?<=')(?:[^'\\\n]|\\.){{1,{_LONGEST}}}+(?=')"""
)
# Already masked values, placeholders (`<pad>`, `<your password>`), and `$HOME` or `${HOME}` are not secrets.
_UNLESS = r"""(?!\[masked-|<[A-Za-z _.|-]{0,40}>|\$\{?[A-Z_][A-Z0-9_]{0,60}\}?(?:[\s"',;)]|\Z))"""

_END = r"""[\\"'=:> |&\t]"""
_KEYED_HINTS = tuple(
    re.compile(hint)
    for hint in (
        rf"k(?:en|ies?|ey){_END}",
        rf"K(?:EN|IE|EY|ey|en){_END}",
        "ass(?:[wW]ord|wd|phrase|code)",
        "ASS(?:WORD|WD|PHRASE|CODE)",
        rf"ecrets?{_END}",
        rf"ECRET{_END}",
        rf"redentials?{_END}",
        rf"REDENTIALS?{_END}",
        rf"uthorization{_END}",
        rf"UTHORIZATION{_END}",
        "Bearer ",
        r"""uth[\\"'=:>]""",
        r"""UTH[\\"'=:>]""",
        r"""[=:](?:(?<=[wW]d.)|(?<=WD.)|(?<=ass.)|(?<=ASS.)|(?<=pw.)|(?<=PW.)|(?<=[dsw]["'].)|(?<=[DSW]["'].)|(?<=(?:ass|pwd) .)|(?<=pw .))""",
        "ookie: ",
    )
)
# A password's name is followed by a separator, a quoted value (`SET PASSWORD 'x'`), the next argument (`("password", "x")`), or
# an attribute (`key="password" value="x"`).
_PASSWORDS = re.compile(
    rf"""(?P<front>{_ALWAYS}(?:{_SEPARATOR}|(?: to| is)?[ \t]{{1,2}}(?=["'][^"'\s]{{1,200}}["'])["']|"""
    rf"""["'][ \t]{{1,4}}[vV]alue=["']| for \S{{1,100}}: {{1,2}})|{_OPTION}(?:password|passwd|passphrase){_OPTION_GAP}){_UNLESS}"""
    rf"""(?P<value>{_QUOTED}|(?:[,;](?=\w)|[^\s"',;)\\])[^\s"'\\]{{0,{_LONGEST}}}+(?:(?<=[(=])["'][^"'\n]{{1,200}}["'])?)"""
)
_VALUE = rf"""{_QUOTED}|[^\s"'\\,;&(){{}}\[\]][^\s"'\\&,;|<]{{0,{_LONGEST}}}+"""
_OTHERS = re.compile(
    rf"(?P<front>(?:{_KEY}|{_CAMEL}|{_OTHER}){_SEPARATOR}|{_OPTION}(?i:token|secret|api[-_]?key|access[-_]?key){_OPTION_GAP}|"
    rf"pass(?:word|phrase) (?:is:? )?|(?<![A-Za-z0-9])[A-Z0-9_]{{0,40}}(?:PASSWORD|SECRET|TOKEN|API_KEY)[A-Z0-9_]{{0,20}}[ \t]{{1,40}})"
    rf"{_UNLESS}(?P<value>{_VALUE})"
)
# `PWD` is more often a folder than a password, and `pass:` is also what training does forward and backward.
_SHORT_NAME = "(?:PWD|Pwd|pwd|PASS|Pass|pass|PW|pw)"
_SHORT = re.compile(
    rf"""(?P<front>(?<![A-Za-z0-9])(?:\w{{0,30}}_)?{_SHORT_NAME}=["']?|["'](?:\w{{0,30}}_)?{_SHORT_NAME}["']: {{0,2}}["'])"""
    r"""(?![\[/~.$])(?P<value>[^\s"';,]{4,200})"""
)
_SHORT_COLON = re.compile(
    rf"""(?P<front>(?:^[ \t]{{0,60}}|(?<=_)){_SHORT_NAME}(?::| =) {{1,4}}["']?)(?![\[/~.])(?P<value>[^\s"';,]{{8,200}})"""
)
_COOKIES = re.compile(r"""(?P<front>[cC]ookie: )(?!\[masked-)[^\s"'][^"'\n]{3,8000}""")
_SCHEME = "(?:Bearer|Basic|Digest|Token|token) "
_HEADER = re.compile(
    rf"(?P<front>(?:{_AUTHORIZATION}){_SEPARATOR}(?P<scheme>{_SCHEME})?)(?!{_SCHEME}){_UNLESS}(?P<value>{_VALUE})"
)
_BEARER = re.compile(r"(?<=Bearer )[A-Za-z0-9._~+/=-]{16,2000}")
_TOKEN = re.compile(r"[\w+/=.~%:@!#$^*?-]+")
"""Without brackets, which occur in code."""
_TELLS_NOTHING = re.compile(r"[0-9]+\Z|[/~.]|(?:true|True|false|False)\b")
"""`password_file=/etc/x`, `password_length=12`, `passwordless: true`."""
_NO_SECRETS = frozenset({"None", "null", "true", "false", "True", "False", "str", "bytes", "bool", "int"})


def redact_keyed(text: str, names: Names) -> str:
    def password(match: re.Match[str]) -> str:
        value = match["value"]
        shown = value in _NO_SECRETS or not value.strip("*") or (match["suffix"] and _TELLS_NOTHING.match(value))
        return match[0] if shown else match["front"] + names.mask("value")

    def other(match: re.Match[str]) -> str:
        return match["front"] + names.mask("value") if looks_made(match["value"]) else match[0]

    def header(match: re.Match[str]) -> str:
        secret = match["scheme"] or looks_made(match["value"])
        return match["front"] + names.mask("authorization") if secret else match[0]

    def short(match: re.Match[str]) -> str:
        return match[0] if match["value"].isdecimal() else match["front"] + names.mask("value")

    def in_line(line: str) -> str:
        line = _SHORT_COLON.sub(other, line)
        line = _SHORT.sub(short, _COOKIES.sub(lambda match: match["front"] + names.mask("cookie"), line))
        line = _BEARER.sub(lambda _: names.mask("authorization"), _HEADER.sub(header, line))
        return _OTHERS.sub(other, _PASSWORDS.sub(password, line))

    for hint in _KEYED_HINTS:
        text = on_lines(hint, text, in_line)
    return text


def looks_made(value: str) -> bool:
    own = PSEUDONYM.sub("", value)
    if not _TOKEN.fullmatch(own) or own.isdecimal():
        return False
    return (len(own) >= 8 and any(c.isdigit() for c in own)) or (len(own) >= 20 and own.isalnum())
