"""Host names: those the capture knows, those that look like one, and those that stand where only a host can stand.

A capture names its hosts in logs that anyone may have written, so what forkpoint itself says (operations, groups, `rank0`)
is never taken for a host. Dotted names of Python (`torch.distributed`, `threading.local`, `google.protobuf.internal`) stay,
and so do the public sites that error messages point to.
"""

import re
from collections.abc import Iterable

from forkpoint.redact.lines import on_lines
from forkpoint.redact.names import Names

_LABEL = "[A-Za-z0-9][A-Za-z0-9-]{0,62}"
_SURE = ("com", "org", "edu", "gov", "corp", "lan", "localdomain")
_WITH_DIGITS = ("local", "internal", "svc")
_WITH_HYPHEN = ("net", "io", "ai", "co", "cloud", "dev", "eu", "de", "fr", "ch", "it", "nl", "se", "fi", "es", "pl", "uk", "us",
    "ca", "cn", "jp", "kr", "in", "sg", "au", "tw")  # fmt: skip
"""Ends that also are names in Python (`self.net`, `torchvision.io`), which have no hyphens."""
_TOPS = "|".join((*_SURE, *_WITH_DIGITS, *_WITH_HYPHEN))
_DOTTED_HINT = re.compile(rf"\.(?:{_TOPS})(?![\w-])")
_DOTTED = re.compile(rf"(?<![\w.-])(?P<host>(?:{_LABEL}\.){{1,8}}(?P<top>{_TOPS}))(?![\w-]|\.\w)")
_AMAZON = re.compile(r"ip-(?<![\w.-]ip-)\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3}(?![\w-]|\.\w)")
_URL = re.compile(
    rf"(?P<front>(?:tcp|https?|ssh|git|wss?|grpc|ray|redis)://(?:\[masked-credentials\]@)?)(?P<host>{_LABEL}(?:\.{_LABEL}){{0,8}})"
)
_URL_HINT = re.compile("://")
_SOCKET_HINTS = tuple(
    re.compile(hint)
    for hint in (r"""ddr[=:"']""", r"""ndpoint[=:"']""", r"onnect(?:ed)? to \[", r"HOSTID set by environment")
)
# In brackets it is a host whatever it is called; elsewhere code names arguments like that.
_SOCKET = re.compile(
    rf"(?P<front>(?:(?:addr|remote)=|connect(?:ed)? to )\[|NCCL_HOSTID set by environment to |"
    rf"(?P<said>(?:master_addr|endpoint)[\"']?(?:=|: ?)[\"']?))(?P<host>{_LABEL}(?:\.{_LABEL}){{0,8}})(?![\w(-]|\.\w)"
)
_VARIABLE_HINT = re.compile(r"=(?:(?<=ODELIST=)|(?<=odelist=)|(?<=odeList=)|(?<=_ADDR=)|(?<=HOST=)|(?<=HOSTNAME=))")
_VARIABLE = re.compile(
    r"(?P<front>(?:NODELIST|nodelist|NodeList|MASTER_ADDR|HOST|HOSTNAME)=)(?P<host>[A-Za-z][\w.,\[\]-]{0,4000})"
)
_SPEAKER_HINT = re.compile(r"\] NCCL ")
# NCCL begins each of its lines so; a capture knows only the hosts of those that it keeps.
_SPEAKER = re.compile(
    r"(?<![\w.-])(?P<front>)(?P<host>[A-Za-z0-9][\w.-]{0,252}+)(?=:\d{1,9}:\d{1,9} \[-?\d{1,4}\] NCCL )"
)
# Only the names under which they are known: what else they call theirs is nobody's business.
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
"""Beginnings that are looked for one by one. Of more, one pattern looks at every word."""


class Hosts:
    def __init__(self, known: Iterable[str] = (), never: Iterable[str] = ()) -> None:
        """`never`: words that are something else, whatever a log calls a host."""
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

        def of_socket(match: re.Match[str]) -> str:
            return match[0] if match["said"] and not re.search(r"[\d-]", match["host"]) else named(match)

        def of_variable(match: re.Match[str]) -> str:
            """A list of nodes in Slurm's own writing is taken as one."""
            host = match["host"].rstrip(",.")
            kept = match["host"][len(host) :]
            if is_host(host):
                return match["front"] + self._named(host, names) + kept
            return match["front"] + names.pseudonym("host", host) + kept if "[" in host or "," in host else match[0]

        text = on_lines(_URL_HINT, text, lambda line: _URL.sub(named, line))
        text = on_lines(_SPEAKER_HINT, text, lambda line: _SPEAKER.sub(named, line))
        for hint in _SOCKET_HINTS:
            text = on_lines(hint, text, lambda line: _SOCKET.sub(of_socket, line))
        return on_lines(_VARIABLE_HINT, text, lambda line: _VARIABLE.sub(of_variable, line))

    def _dotted(self, match: re.Match[str], names: Names) -> str:
        return self._named(match["host"], names) if _is_dotted_host(match) else match[0]

    def _known_one(self, match: re.Match[str], names: Names) -> str:
        word = match[0].rstrip(".-")
        return self._named(word, names) + match[0][len(word) :] if word in self._known else match[0]

    def _named(self, host: str, names: Names) -> str:
        """A host by its full name is the host known by the short one."""
        short = host.partition(".")[0]
        return names.pseudonym("host", short if short in self._known else host)


def is_host(word: str) -> bool:
    """May be the name of one: not an address, and no word of forkpoint's own."""
    return _IS_HOST.fullmatch(word) is not None and _OURS.fullmatch(word) is None


def _is_dotted_host(match: re.Match[str]) -> bool:
    host, top = match["host"], match["top"]
    if _PUBLIC.fullmatch(host):
        return False
    if top in _WITH_HYPHEN:
        return "-" in host
    if top in _WITH_DIGITS:
        sure = host.endswith((".cluster.local", ".compute.internal", ".ec2.internal"))
        return sure or "-" in host or any(c.isdigit() for c in host)
    return True


def _patterns(known: frozenset[str]) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Hosts of a cluster share their beginning: `gpu-node-` finds ten thousand of them in one search."""
    beginnings = {re.split(r"\d", host, maxsplit=1)[0] for host in known}
    if "" in beginnings or len(beginnings) > _PREFIXES_AT_MOST:
        beginnings = {""} if known else set()
    return tuple((start, _word_from(start)) for start in sorted(beginnings))


def _word_from(start: str) -> re.Pattern[str]:
    rest = r"[\w.-]{0,253}" if start else r"[\w.-]{1,253}"
    return re.compile(rf"{re.escape(start)}(?<![\w.-]{re.escape(start)}){rest}")
