"""What every remedy needs besides its fork, and how edits become the patch of a probe or a fix."""

import ast
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from forkpoint.model.incident import Divergence
from forkpoint.model.verdict import Fix, Probe
from forkpoint.remedies.edit import TextEdit, definitions, edited, normal_text, unified
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

    def probe(
        self,
        title: str,
        module: Module,
        node: ast.stmt | ast.expr | ast.excepthandler,
        edits: Sequence[TextEdit],
        functions: Sequence[str] = (),
    ) -> Probe | None:
        """`functions`: definitions that the edited code calls. None without edits, or if no patch can be made."""
        patch = self._patch_with(module, edits, functions)
        return Probe(title, self.where(module, node), patch) if patch else None

    def fix(self, title: str, module: Module, edits: Sequence[TextEdit], functions: Sequence[str] = ()) -> Fix | None:
        """As `probe`."""
        patch = self._patch_with(module, edits, functions)
        return Fix(title, patch) if patch else None

    def _patch_with(self, module: Module, edits: Sequence[TextEdit], functions: Sequence[str]) -> str | None:
        added = [definitions(module, functions)] if functions else []
        return self.patch(module, [*added, *edits]) if edits else None

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
