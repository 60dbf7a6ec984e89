"""What every remedy needs besides its fork, and how edits become a patch."""

import ast
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from forkpoint.model.incident import Divergence
from forkpoint.remedies.edit import TextEdit, edited, normal_text, unified
from forkpoint.source.analysis import Analysis
from forkpoint.source.code import Module

_DEFAULT = frozenset({"default_pg", "0"})


@dataclass(frozen=True, slots=True)
class Scene:
    divergence: Divergence | None
    analysis: Analysis
    roots: tuple[str, ...]
    """The folders or files that were given as source."""

    def name(self, module: Module) -> str:
        """The path below the source root."""
        for root in self.roots:
            base = Path(root) if Path(root).is_dir() else Path(root).parent
            relative = os.path.relpath(module.path, base)
            if not relative.startswith(os.pardir):
                return relative.replace(os.sep, "/")
        return module.path

    def where(self, module: Module, node: ast.stmt | ast.expr | ast.excepthandler) -> str:
        return f"{self.name(module)}:{node.lineno}"

    def patch(self, module: Module, edits: Sequence[TextEdit]) -> str | None:
        """None if the file has changed, is not UTF-8, or would no longer parse."""
        try:
            before = Path(module.path).read_bytes()
            if normal_text(before) != module.text.encode():
                return None
            after = edited(before, edits)
            ast.parse(after)
            return unified(self.name(module), before, after).decode()
        except (OSError, SyntaxError, UnicodeError, ValueError):
            return None

    @property
    def in_default_group(self) -> bool:
        group = self.divergence.group if self.divergence else None
        return group is None or group.desc in _DEFAULT or group.name in _DEFAULT

    @property
    def members(self) -> str | None:
        """The argument that limits a probe to the group that diverged; None if its members are not known."""
        if self.in_default_group or self.divergence is None:
            return ""
        group = self.divergence.group
        return f", ranks={_written(tuple(sorted(group.ranks)))}" if group.declared else None


def _written(ranks: tuple[int, ...]) -> str:
    """`range(8, 16)`, `range(1, 512, 8)`, or a tuple."""
    if len(ranks) < 3:
        return str(ranks)
    regular = range(ranks[0], ranks[-1] + 1, ranks[1] - ranks[0])
    return str(regular if tuple(regular) == ranks else ranks)
