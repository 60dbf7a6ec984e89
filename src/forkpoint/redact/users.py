"""People: mail addresses, home directories, `USER=`. The rest of a path stays, since it says which code ran.

`/root` names nobody. A user that the capture shows by a home directory is also taken out of other paths.
"""

import re
from collections.abc import Iterable

from forkpoint.redact.lines import on_lines
from forkpoint.redact.names import Names

_AT = re.compile("@")
_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,6}[A-Za-z]{2,24}(?![\w@-]|\.\w)")
_AT_HOST = re.compile(r"(?<![\w.+\]-])([A-Za-z_][\w.-]{0,31})(?=@(?:host|ip)-[1-9])")
_HOME = re.compile(r"(?P<front>/home/)(?P<user>[A-Za-z_][\w.@-]{0,40})(?![\w.@-])")
_HOME_OF_USER = re.compile(r"(?P<front>/Users/)(?P<user>[A-Za-z_][\w.@-]{0,40})(?![\w.@-])")
_USERS_FOLDER = re.compile(r"(?P<front>/users/(?<![\w.-]/users/))(?P<user>[A-Za-z_][\w.@-]{0,40})(?=/)")
_VARIABLE = re.compile(
    r"(?P<front>(?:USER|LOGNAME|USERNAME|UserId|[uU]ser|[uU]sername)=)(?P<user>[A-Za-z_][\w.-]{0,31})(?![\w.-])"
)
_VARIABLE_HINT = re.compile(r"=(?:(?<=ser=)|(?<=SER=)|(?<=NAME=)|(?<=name=)|(?<=erId=))")
_ID = re.compile(r"(?P<front>id=(?<=\b[ug]id=)\d{1,10}\()(?P<user>[A-Za-z_][\w.-]{0,31})(?=\))")
_FILE = re.compile(r"\.(?:py|pyc|log|txt|json|yaml|yml|toml|sh|md|out|err|csv|pkl|pt|zip)\Z")
_NOBODY = frozenset({"root", "nobody", "None", "null"})
_ANYBODY = frozenset({"admin", "data", "dev", "runner", "train", "trainer", "ubuntu", "user", "work"})
"""Users that are as likely folders of a program: only a home directory tells."""
_AT_MOST = 16
"""Users that are looked for in paths: each costs a search."""


class Users:
    def __init__(self, known: Iterable[str] = ()) -> None:
        """`known`: whose names are taken out of any path."""
        looked_for = sorted(user for user in known if len(user) >= 3 and user not in _ANYBODY)[:_AT_MOST]
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
        text = on_lines(_VARIABLE_HINT, text, lambda line: _VARIABLE.sub(named, line))
        return _ID.sub(named, text)

    def _before_at(self, line: str, names: Names) -> str:
        line = _MAIL.sub(lambda m: m[0] if _FILE.search(m[0]) else names.pseudonym("mail", m[0].lower()), line)
        return _AT_HOST.sub(lambda m: names.pseudonym("user", m[1]), line)
