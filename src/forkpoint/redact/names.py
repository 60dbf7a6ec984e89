"""Gives hosts, addresses and people pseudonyms, always the same for the same name."""

import re
from collections.abc import Iterable
from enum import Enum, auto
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from forkpoint.redact.secrets import Names, on_lines

# ---------------------------------------------------------------------------------------------------------------------
# Network addresses: IPv4, IPv6, MAC, InfiniBand GUIDs. Loopback and `0.0.0.0` reveal nothing about a site and stay.
#
# Versions with four numbers (`cuDNN 9.10.2.21`), times, PCI bus ids and C++ names (`c10d::`) look like addresses, but are
# not.

_HEX4 = "[0-9a-fA-F]{4}"
_HEX2 = "[0-9a-fA-F]{2}"
_IPV4_HINT = re.compile(r"\.\d{1,3}\.\d{1,3}\.\d")
_IPV4 = re.compile(r"(?<![A-Za-z0-9.])\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?![A-Za-z0-9]|\.\d)")
_COLONS_HINT = re.compile(
    rf":(?:(?<=[23fF][0-9a-fA-F]{{3}}:)[0-9a-fA-F]{{0,4}}:|{_HEX2}:{_HEX2}:{_HEX2}:{_HEX2}:|{_HEX4}:{_HEX4}:{_HEX4}|(?:[0-9a-fA-F]{{1,4}}:){{6}})"
)
_MAC = re.compile(rf"(?<![\w:.-]){_HEX2}(?::{_HEX2}){{5}}(?![\w:-])")
# A date with a time has no letters.
_MAC_WITH_DASHES = re.compile(rf"(?<![\w:.-])(?=[0-9-]{{0,16}}[a-fA-F]){_HEX2}(?:-{_HEX2}){{5}}(?![\w:-])")
_MAC_WITH_DOTS = re.compile(rf"(?<![\w:.-])(?=[0-9.]{{0,13}}[a-fA-F]){_HEX4}\.{_HEX4}\.{_HEX4}(?![\w:.-])")
"""As switches write it: `3cec.ef5a.bbc2`."""
_DOTS_HINT = re.compile(rf"\.{_HEX4}\.{_HEX4}(?!\w)")
_DASHES_HINT = re.compile(rf"-{_HEX2}-{_HEX2}-{_HEX2}-{_HEX2}-{_HEX2}")
_GUID = re.compile(rf"(?<![\w:.-]){_HEX4}(?::{_HEX4}){{3}}(?![\w:])")
# Only routed and link-local addresses: `c10d::` and `a::b` are C++ names. NCCL puts the interface before it:
# `eth0:fe80::1%eth0<0>`.
_IPV6 = re.compile(
    r"(?:(?<![\w:.])|(?<=[A-Za-z0-9]:)(?<!::)(?<![0-9a-fA-F]{4}:))(?:[23][0-9a-fA-F]{3}|[fF][cdeCDE][0-9a-fA-F]{2}):[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){1,6}(?![\w:]|\.\d)"
)
_IPV6_IN_FULL = re.compile(
    r"(?:(?<![\w:.])|(?<=\d:)(?<![0-9a-fA-F]{4}:))[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{1,4}){7}(?![\w:]|\.\d)"
)
_GUID_HINT = re.compile(r"0x[0-9a-fA-F]{16}")
_GUID_SAID = re.compile(r"(?<=[gG][uU][iI][dD])(\W{1,4})0x([0-9a-fA-F]{16})\b")
_VERSION = re.compile(r"(?i:version|release|cudnn|cuda|nccl|driver|torch|==)[^,;\s]{0,12}\s?[^,;\s]{0,4}\Z")


def redact_addresses(text: str, names: Names) -> str:
    def with_colons(line: str) -> str:
        line = _IPV6.sub(lambda m: _ipv6(m, names), _IPV6_IN_FULL.sub(lambda m: _ipv6(m, names), line))
        line = _MAC.sub(lambda m: names.pseudonym("mac", m[0].lower()), line)
        return _GUID.sub(lambda m: names.pseudonym("guid", m[0].lower().replace(":", "")), line)

    text = on_lines(_IPV4_HINT, text, lambda line: _IPV4.sub(lambda m: _ipv4(m, names), line))
    text = on_lines(_COLONS_HINT, text, with_colons)
    text = on_lines(_DASHES_HINT, text, lambda line: _MAC_WITH_DASHES.sub(lambda m: _mac(m, names), line))
    text = on_lines(_DOTS_HINT, text, lambda line: _MAC_WITH_DOTS.sub(lambda m: _mac(m, names), line))
    return on_lines(
        _GUID_HINT, text, lambda line: _GUID_SAID.sub(lambda m: m[1] + names.pseudonym("guid", m[2].lower()), line)
    )


def _mac(match: re.Match[str], names: Names) -> str:
    digits = re.sub("[-.]", "", match[0].lower())
    return names.pseudonym("mac", ":".join(digits[at : at + 2] for at in range(0, len(digits), 2)))


def _ipv4(match: re.Match[str], names: Names) -> str:
    reach = _reach(match[0])
    if reach is _Reach.NOWHERE or (reach is _Reach.GLOBAL and _follows_version(match)):
        return match[0]
    return names.pseudonym("ip", match[0])


class _Reach(Enum):
    NOWHERE = auto()
    """Not an address, or one that is the same on every machine."""
    PRIVATE = auto()
    GLOBAL = auto()


@lru_cache(maxsize=4096)
def _reach(text: str) -> _Reach:
    """Cached, since a log repeats the same few addresses."""
    try:
        address = IPv4Address(text)
    except AddressValueError:
        return _Reach.NOWHERE
    if address.is_loopback or address.packed[0] in (0, 255):
        return _Reach.NOWHERE
    return _Reach.GLOBAL if address.is_global else _Reach.PRIVATE


def _follows_version(match: re.Match[str]) -> bool:
    """Whether the text before it shows that it is a version number."""
    return _VERSION.search(match.string, max(0, match.start() - 32), match.start()) is not None


def _ipv6(match: re.Match[str], names: Names) -> str:
    try:
        return names.pseudonym("ip", str(IPv6Address(match[0])))
    except AddressValueError:
        return match[0]


# ---------------------------------------------------------------------------------------------------------------------
# Host names: those the capture knows, words that look like one, and words in places where only a host can be.
#
# A capture takes its hosts from untrusted logs, so forkpoint's own words (operations, groups, `rank0`) are never taken for
# hosts. Dotted Python names (`torch.distributed`, `threading.local`, `google.protobuf.internal`) stay, and so do public
# sites that error messages point to.

_LABEL = "[A-Za-z0-9][A-Za-z0-9-]{0,62}"
_SURE = ("com", "org", "edu", "gov", "corp", "lan", "localdomain")
_WITH_DIGITS = ("local", "internal", "svc")
_WITH_HYPHEN = ("net", "io", "ai", "co", "cloud", "dev", "eu", "de", "fr", "ch", "it", "nl", "se", "fi", "es", "pl", "uk", "us",
    "ca", "cn", "jp", "kr", "in", "sg", "au", "tw")  # fmt: skip
"""Top-level domains that are also Python names (`self.net`, `torchvision.io`), which have no hyphens."""
_TOPS = "|".join((*_SURE, *_WITH_DIGITS, *_WITH_HYPHEN))
_DOTTED_HINT = re.compile(rf"\.(?:{_TOPS})(?![A-Za-z0-9-])")
_DOTTED = re.compile(rf"(?<![\w.-])(?P<host>(?:{_LABEL}\.){{1,8}}(?P<top>{_TOPS}))(?![A-Za-z0-9-]|\.\w)(?P<goes_on>_)?")
_AMAZON = re.compile(r"ip-(?<![\w.-]ip-)\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3}(?![\w-]|\.\w)")
_URL = re.compile(
    rf"(?P<front>(?:tcp|https?|ssh|git|wss?|grpc|ray|redis)://(?:\[masked-credentials\]@)?)(?P<host>{_LABEL}(?:\.{_LABEL}){{0,8}})"
)
_URL_HINT = re.compile("://")
_SOCKET_HINTS = tuple(
    re.compile(hint)
    for hint in (r"""ddr[=:"']""", r"""ndpoint[=:"']""", r"onnect(?:ed)? to \[", r"HOSTID set by environment")
)
# In brackets, any word is a host; elsewhere, code has arguments with such names.
_SOCKET = re.compile(
    rf"(?P<front>(?:(?:addr|remote)=|connect(?:ed)? to )\[|NCCL_HOSTID set by environment to |"
    rf"(?P<said>(?:master_addr|endpoint)[\"']?(?:=|: ?)[\"']?))(?P<host>{_LABEL}(?:\.{_LABEL}){{0,8}})(?![\w(-]|\.\w)"
)
_HOST_VARIABLE_HINT = re.compile(
    r"=(?:(?<=ODELIST=)|(?<=odelist=)|(?<=odeList=)|(?<=_ADDR=)|(?<=HOST=)|(?<=HOSTNAME=)|(?<=NODENAME=)|(?<=NODE_NAME=))"
)
_HOST_VARIABLE = re.compile(
    r"(?P<front>(?:NODELIST|nodelist|NodeList|MASTER_ADDR|HOST|HOSTNAME|NODENAME|NODE_NAME)=)(?P<host>[A-Za-z][\w.,\[\]-]{0,4000})"
)
# Where Slurm, ssh and JSON lines name a host. A word without a digit or hyphen may be prose.
_SAID_HINTS = tuple(
    re.compile(hint)
    for hint in (
        r":\d{1,6}\]:",
        "srun: ",
        " CANCELLED ",
        "to host ",
        r"ost(?:name)?[\"']: ?[\"']",
        r"ost \S{1,80} (?:is|was|did|has|not) ",
    )
)
_SAID = re.compile(
    rf"(?P<front>^\[(?=[^\]\n]{{1,80}}:\d{{1,6}}\]: ?)|srun: (?:error: |warning: )?|\b(?:[sS]tep|STEP) \d[\d.]{{0,20}} ON |[tT]o host |"
    rf"\b[hH]ost |[\"'](?:host|hostname|node|nodename)[\"']: ?[\"'])(?P<host>{_LABEL}(?:\.{_LABEL}){{0,8}})"
    r"(?=:\d{1,6}\]|: |[\"']| CANCELLED| port |:? (?:is|was|did|has|not) |:?\s*$)"
)
_SPEAKER_HINT = re.compile(r"\] NCCL ")
# All of NCCL's lines begin like this; a capture knows only the hosts of the lines that it keeps.
_SPEAKER = re.compile(
    r"(?<![\w.-])(?P<front>)(?P<host>[A-Za-z0-9][\w.-]{0,252}+)(?=:\d{1,9}:\d{1,9} \[-?\d{1,4}\] NCCL )"
)
# Only well-known names of public sites: their other hosts may be internal.
_PUBLIC = re.compile(
    r"(?:(?:api|blog|cloud|dev-discuss|developer|discuss|docs|download|files|forums|gist|hub|raw|rocm|www)\.){0,2}"
    r"(?:pytorch|python|pypi|github|githubusercontent|gitlab|nvidia|amd|huggingface|wandb|readthedocs|arxiv|wikipedia|"
    r"stackoverflow|anaconda|kernel|docker|openai|anthropic)\.(?:org|com|co|io|ai)"
)
_IS_HOST = re.compile(r"(?=.{0,254}[A-Za-z])[A-Za-z0-9][A-Za-z0-9._-]{0,253}")
_OURS = re.compile(
    r"(?i:localhost|rank_?\d*|local_?rank\d*|default_?pg|default\d*|none|null|true|false|nccl|gloo|(?:host|ip|user|mail)-\d{1,9})"
)
_PREFIXES_AT_MOST = 48
"""Up to this many host prefixes are searched one by one; with more, one pattern checks every word."""


class Hosts:
    def __init__(self, known: Iterable[str] = (), never: Iterable[str] = ()) -> None:
        """`never`: words that are not hosts, even if a log uses them like one."""
        kept = frozenset(never)
        self._never = kept
        self._known = frozenset(host for host in known if host not in kept and is_host(host))
        self._words = _patterns(self._known)

    def redact(self, text: str, names: Names) -> str:
        text = self._standing_for_a_host(text, names)
        text = on_lines(_DOTTED_HINT, text, lambda line: _DOTTED.sub(lambda m: self._dotted(m, names), line))
        text = _AMAZON.sub(lambda m: self._named(m[0], names), text)
        for needle, pattern in self._words:
            if needle in text:
                text = pattern.sub(lambda m: self._known_one(m, names), text)
        return text

    def _standing_for_a_host(self, text: str, names: Names) -> str:
        def named(match: re.Match[str]) -> str:
            host = match["host"]
            if host in self._never or not is_host(host) or _PUBLIC.fullmatch(host):
                return match[0]
            return match["front"] + self._named(host, names)

        def said(match: re.Match[str]) -> str:
            return named(match) if re.search(r"[0-9-]", match["host"]) else match[0]

        def of_socket(match: re.Match[str]) -> str:
            return match[0] if match["said"] and not re.search(r"[\d-]", match["host"]) else named(match)

        def of_variable(match: re.Match[str]) -> str:
            """A Slurm node list gets a single pseudonym."""
            host = match["host"].rstrip(",.")
            kept = match["host"][len(host) :]
            if is_host(host):
                return match["front"] + self._named(host, names) + kept
            return match["front"] + names.pseudonym("host", host) + kept if "[" in host or "," in host else match[0]

        for hint in _SAID_HINTS:
            text = on_lines(hint, text, lambda line: _SAID.sub(said, line))
        text = on_lines(_URL_HINT, text, lambda line: _URL.sub(named, line))
        text = on_lines(_SPEAKER_HINT, text, lambda line: _SPEAKER.sub(named, line))
        for hint in _SOCKET_HINTS:
            text = on_lines(hint, text, lambda line: _SOCKET.sub(of_socket, line))
        return on_lines(_HOST_VARIABLE_HINT, text, lambda line: _HOST_VARIABLE.sub(of_variable, line))

    def _dotted(self, match: re.Match[str], names: Names) -> str:
        return self._named(match["host"], names) + (match["goes_on"] or "") if _is_dotted_host(match) else match[0]

    def _known_one(self, match: re.Match[str], names: Names) -> str:
        word = match[0].rstrip(".-")
        return self._named(word, names) + match[0][len(word) :] if word in self._known else match[0]

    def _named(self, host: str, names: Names) -> str:
        """A host's full name gets the same pseudonym as its short name."""
        short = host.partition(".")[0]
        return names.pseudonym("host", short if short in self._known else host)


def is_host(word: str) -> bool:
    """Whether it may be a host name: not an address, and not one of forkpoint's own words."""
    return _IS_HOST.fullmatch(word) is not None and _OURS.fullmatch(word) is None


def _is_dotted_host(match: re.Match[str]) -> bool:
    host, top = match["host"], match["top"]
    if _PUBLIC.fullmatch(host) or (match["goes_on"] and not re.search(r"[0-9-]", host)):  # `x.com_hook` is code
        return False
    if top in _WITH_HYPHEN:
        return "-" in host
    if top in _WITH_DIGITS:
        sure = host.endswith((".cluster.local", ".compute.internal", ".ec2.internal"))
        return sure or "-" in host or any(c.isdigit() for c in host)
    return True


def _patterns(known: frozenset[str]) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """(prefix, pattern). Hosts of a cluster share a prefix: one search for `gpu-node-` finds ten thousand of them."""
    beginnings = {re.split(r"\d", host, maxsplit=1)[0] for host in known}
    if "" in beginnings or len(beginnings) > _PREFIXES_AT_MOST:
        beginnings = {""} if known else set()
    return tuple((start, _word_from(start)) for start in sorted(beginnings))


def _word_from(start: str) -> re.Pattern[str]:
    rest = r"[\w.-]{0,253}" if start else r"[\w.-]{1,253}"
    return re.compile(rf"{re.escape(start)}(?<![\w.-]{re.escape(start)}){rest}")


# ---------------------------------------------------------------------------------------------------------------------
# People: mail addresses, home directories, `USER=`. The rest of a path stays, since it says which code ran.
#
# `/root` identifies nobody. A user who is known from a home directory is also removed from other paths.

_AT = re.compile("@")
_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,6}[A-Za-z]{2,24}(?![\w@-]|\.\w)")
_MAIL_IN_NAME = re.compile(
    r"(?<![\w.+-])[\w.+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,6}[A-Za-z]{2,24}(?=_|\.(?:log|txt|json|out|err)\b)"
)
_AT_HOST = re.compile(r"(?<![\w.+\]-])([A-Za-z_][\w.+-]{0,63})(?=@(?:host|ip)-[1-9])")
_HOME = re.compile(r"(?P<front>/home/)(?P<user>[A-Za-z_][\w.@-]{0,40})(?![\w.@-])")
_HOME_OF_USER = re.compile(r"(?P<front>(?:/|\\{1,2})Users(?:/|\\{1,2}))(?P<user>[A-Za-z_][\w.@-]{0,40})(?![\w.@-])")
_USERS_FOLDER = re.compile(r"(?P<front>/users/(?<![\w.-]/users/))(?P<user>[A-Za-z_][\w.@-]{0,40})(?=/)")
_USER_VARIABLE = re.compile(
    r"(?P<front>(?:USER|LOGNAME|USERNAME|UserId|[uU]ser|[uU]sername)=)(?P<user>[A-Za-z_][\w.-]{0,31})(?![\w.-])"
)
_USER_SAID = re.compile(
    r"""(?P<front>["'](?:user|username|user_name|login|owner)["']: ?["']|(?:session (?:opened|closed)|password) for (?:invalid )?user )(?P<user>[A-Za-z_][\w.-]{0,31})(?=["' ]|$)"""
)
_USER_SAID_HINT = re.compile(r"""(?:ser|ser_?name|login|owner)["']: ?["']|(?:ed|ord) for (?:invalid )?user """)
_PROMPT = re.compile(
    r"^(?P<front>(?:\[[^\]\n]{0,60}\]:? )?)(?P<user>[A-Za-z_][\w.-]{0,31})(?=@[\w.-]{1,100}:[~/][^\n$#]{0,200}[$#] )"
)
_PROMPT_HINT = re.compile(r":[~/]\S{0,200}[$#] ")
_USER_VARIABLE_HINT = re.compile(r"=(?:(?<=ser=)|(?<=SER=)|(?<=NAME=)|(?<=name=)|(?<=erId=))")
_ID = re.compile(r"(?P<front>id=(?<=\b[ug]id=)\d{1,10}\()(?P<user>[A-Za-z_][\w.-]{0,31})(?=\))")
_FILE = re.compile(r"\.(?:py|pyc|log|txt|json|yaml|yml|toml|sh|md|out|err|csv|pkl|pt|zip)\Z")
_NOBODY = frozenset({"root", "nobody", "None", "null"})
_ANYBODY = frozenset({"admin", "data", "dev", "runner", "train", "trainer", "ubuntu", "user", "work"})
"""User names that are also common folder names: only a home directory shows that one is a user."""
_USERS_AT_MOST = 16
"""Limit of users that are searched for in paths: each costs a search."""


class Users:
    def __init__(self, known: Iterable[str] = ()) -> None:
        """`known`: users whose names are removed from all paths."""
        looked_for = sorted(user for user in known if len(user) >= 3 and user not in _ANYBODY)[:_USERS_AT_MOST]
        self._known = tuple((user, re.compile(rf"/{re.escape(user)}(?=/)")) for user in looked_for)

    def redact(self, text: str, names: Names) -> str:
        def named(match: re.Match[str]) -> str:
            user = match["user"]
            if user in _NOBODY or _FILE.search(user):
                return match[0]
            return match["front"] + names.pseudonym("user", user)

        text = on_lines(_AT, text, lambda line: self._before_at(line, names))
        text = _HOME_OF_USER.sub(named, _HOME.sub(named, text))
        text = _USERS_FOLDER.sub(named, text)
        for user, folder in self._known:
            text = folder.sub(lambda _, user=user: f"/{names.pseudonym('user', user)}", text)
        text = on_lines(_USER_VARIABLE_HINT, text, lambda line: _USER_VARIABLE.sub(named, line))
        text = on_lines(_USER_SAID_HINT, text, lambda line: _USER_SAID.sub(named, line))
        text = on_lines(_PROMPT_HINT, text, lambda line: _PROMPT.sub(named, line))
        return _ID.sub(named, text)

    def _before_at(self, line: str, names: Names) -> str:
        def mail(match: re.Match[str]) -> str:
            return match[0] if _FILE.search(match[0]) else names.pseudonym("mail", match[0].lower())

        line = _MAIL_IN_NAME.sub(mail, _MAIL.sub(mail, line))
        return _AT_HOST.sub(lambda m: names.pseudonym("user", m[1]), line)
