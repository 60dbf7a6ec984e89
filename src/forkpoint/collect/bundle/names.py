"""Names of evidence inside a bundle: enough to see the rank and the kind of file, and nothing of the site.

A name is taken apart where letters and digits end. Words and numbers stay; what could be a key is masked, since in a name
nothing stands around it by which `forkpoint.redact` would know.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath

_PARTS = re.compile(r"\[masked-[a-z-]+\]|[A-Za-z0-9]+")
_PLAIN = re.compile(r"[A-Za-z]{0,24}[0-9]{0,14}|[0-9]{1,8}[Tt][0-9]{1,6}Z?|[A-Za-z0-9]{1,6}")
_ODD = re.compile(r"[^\w./=+,@%\[\]-]", re.ASCII)
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,250}")
_BETWEEN = re.compile(r"([.-]+)")
_LONGEST = 120
_SHORTEST = 3
"""Of a name that is looked for inside another."""


class BundleNames:
    def __init__(self, redact: Callable[[str], str], known: Mapping[str, str]) -> None:
        """`known`: pseudonyms by original. In names they are also found between underscores."""
        self._redact = redact
        self._known = known
        self._taken: set[str] = set()

    def name(self, path: str) -> str:
        """A relative path that no other evidence has."""
        parts = [part for part in PurePosixPath(self.harmless(path)).parts if part not in ("/", "..")]
        wanted = "/".join(part[-_LONGEST:] for part in parts) or "file"
        name, number = wanted, 1
        while name in self._taken:
            number += 1
            name = f"{number}/{wanted}"
        self._taken.add(name)
        return f"evidence/{name}"

    def harmless(self, path: str) -> str:
        text = _RUN.sub(lambda run: self._without_known(run[0]), self._redact(path))
        text = _PARTS.sub(lambda part: part[0] if part[0][0] == "[" or _PLAIN.fullmatch(part[0]) else "masked", text)
        return _ODD.sub("_", text)

    def _without_known(self, run: str) -> str:
        """Longest first: `gpu-1.dc` before `gpu-1`."""
        parts = _BETWEEN.split(run)  # words at even places, separators at odd ones
        for length in range(len(parts), 0, -2):
            for start in range(0, len(parts) - length + 1, 2):
                word = "".join(parts[start : start + length])
                if len(word) >= _SHORTEST and word in self._known:
                    rest = "".join(parts[:start]), "".join(parts[start + length :])
                    return self._without_known(rest[0]) + self._known[word] + self._without_known(rest[1])
        return run
