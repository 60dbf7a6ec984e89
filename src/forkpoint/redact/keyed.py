"""Values that a name gives away: `password=`, `HF_TOKEN:`, `Authorization: Bearer`, `--api-key`. The name is kept.

A password is masked whatever it is. What a model calls a token (`eos_token: 2`, `pad_token='<pad>'`, `token: str`) is not
one: other values must look made by a machine, with a digit in eight characters, or twenty letters.
"""

import re

from forkpoint.redact.lines import on_lines
from forkpoint.redact.names import PSEUDONYM, Names


def _any_case(*words: str) -> str:
    """As they are written in code, in the environment, and in headers. Ignoring case would cost ten times as much."""
    return "|".join(dict.fromkeys(form for word in words for form in (word, word.upper(), word.title())))


_PASSWORD = _any_case("password", "passwd", "passphrase")
_KEY = _any_case("api_key", "api-key", "apikey", "access_key", "access-key", "account_key", "private_key", "secret_key")
_CAMEL = "apiKey|accessKey|AccessKey|AccountKey|secretKey"
_OTHER = _any_case("secret", "token", "credential", "credentials", "cookie")
_AUTHORIZATION = _any_case("authorization")
_SEPARATOR = r"""[\\"']{0,2}\s{0,2}[=:]>?\s{0,2}[\\"']{0,2}"""
_OPTION = r"--[\w-]{0,30}"
_GAP = r""" {1,2}["']?"""
_QUOTED = r"""(?<=")[^"\n]{1,500}(?=")|(?<=')[^'\n]{1,500}(?=')"""
# What is masked already, `<pad>`, and `$HOME` or `${HOME}` are no secrets.
_UNLESS = r"""(?!\[masked-|<|\$\{?[A-Z_][A-Z0-9_]{0,60}\}?(?:[\s"',;)]|\Z))"""

_END = r"""[\\"'=: ]"""
_HINTS = tuple(
    re.compile(hint)
    for hint in (
        rf"k(?:en|ie|ey){_END}",
        rf"K(?:EN|IE|EY|ey|en){_END}",
        rf"ass(?:word|wd|phrase){_END}",
        rf"ASS(?:WORD|WD|PHRASE){_END}",
        rf"ecret{_END}",
        rf"ECRET{_END}",
        rf"redentials?{_END}",
        rf"REDENTIALS?{_END}",
        rf"uthorization{_END}",
        rf"UTHORIZATION{_END}",
        "Bearer ",
    )
)
_PASSWORDS = re.compile(
    rf"(?P<front>(?:{_PASSWORD}){_SEPARATOR}|{_OPTION}(?:password|passwd|passphrase){_GAP}){_UNLESS}"
    rf"""(?P<value>{_QUOTED}|[^\s"',;)\\][^\s"'\\]{{0,499}})"""
)
_VALUE = rf"""{_QUOTED}|[^\s"'\\,;&(){{}}\[\]][^\s"'\\&,;]{{0,499}}"""
_OTHERS = re.compile(
    rf"(?P<front>(?:{_KEY}|{_CAMEL}|{_OTHER}){_SEPARATOR}|{_OPTION}(?:token|secret|api[-_]key|access[-_]key){_GAP}|password )"
    rf"{_UNLESS}(?P<value>{_VALUE})"
)
_SCHEME = "(?:Bearer|Basic|Digest|Token|token) "
_HEADER = re.compile(
    rf"(?P<front>(?:{_AUTHORIZATION}){_SEPARATOR}(?P<scheme>{_SCHEME})?)(?!{_SCHEME}){_UNLESS}(?P<value>{_VALUE})"
)
_BEARER = re.compile(r"(?<=Bearer )[A-Za-z0-9._~+/=-]{16,2000}")
_TOKEN = re.compile(r"[\w+/=.~%:@!#-]+")
"""Without brackets: those are code."""
_NO_SECRETS = frozenset({"None", "null", "true", "false", "True", "False", "str", "bytes", "bool", "int"})


def redact_keyed(text: str, names: Names) -> str:
    def password(match: re.Match[str]) -> str:
        shown = match["value"] in _NO_SECRETS or not match["value"].strip("*")
        return match[0] if shown else match["front"] + names.mask("value")

    def other(match: re.Match[str]) -> str:
        return match["front"] + names.mask("value") if _looks_made(match["value"]) else match[0]

    def header(match: re.Match[str]) -> str:
        secret = match["scheme"] or _looks_made(match["value"])
        return match["front"] + names.mask("authorization") if secret else match[0]

    def in_line(line: str) -> str:
        line = _BEARER.sub(lambda _: names.mask("authorization"), _HEADER.sub(header, line))
        return _OTHERS.sub(other, _PASSWORDS.sub(password, line))

    for hint in _HINTS:
        text = on_lines(hint, text, in_line)
    return text


def _looks_made(value: str) -> bool:
    own = PSEUDONYM.sub("", value)
    if not _TOKEN.fullmatch(own) or own.isdecimal():
        return False
    return (len(own) >= 8 and any(c.isdigit() for c in own)) or (len(own) >= 20 and own.isalnum())
