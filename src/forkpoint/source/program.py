"""Paths -> Program: all modules that could be read, and notes about those that could not."""

import os
import re
import tokenize
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path, PurePath

from forkpoint.source.code import Class, Function, Module, parse_module

MAX_BYTES = 4_000_000
"""Per file. Larger files are data or generated."""
MAX_FILES = 50_000
NOTEBOOK = ".ipynb"
_SKIPPED = frozenset({".git", ".hg", ".tox", ".nox", ".venv", "venv", "node_modules", "__pycache__", "build", "dist"})

_WORD = re.compile(rb"\w+")
_FILES_AT_LEAST = 3
"""A file that takes more than this share of the words that may be read is left out: Python's parser needs a kilobyte
for each.
"""
_LINES_NAMED = 3
"""How many of a file's left-out statements a note lists."""
_TESTS = frozenset({"tests", "test", "testing", "unit_tests", "integration_tests", "functional_tests"})
_COPIED = frozenset({"third_party", "thirdparty", "vendor", "_vendor"})


@dataclass(frozen=True, slots=True)
class SourceNote:
    file: str
    text: str


@dataclass(slots=True, eq=False)
class Program:
    modules: dict[str, Module] = field(default_factory=dict)
    """By path, as given."""
    notes: list[SourceNote] = field(default_factory=list)
    lines: int = 0
    tests: set[str] = field(default_factory=set)
    """Files with tests or with code of other projects, judging by their path below a given folder."""
    by_name: dict[str, Module] = field(default_factory=dict)
    by_tail: dict[str, list[Module]] = field(default_factory=lambda: defaultdict(list))
    """By the last part of the dotted name, for packages whose root is not known."""
    methods: dict[str, list[Function]] = field(default_factory=lambda: defaultdict(list))
    """Methods of all classes by their short name."""

    @property
    def files(self) -> int:
        return len(self.modules)

    def text(self, file: str) -> str:
        return self.modules[file].text

    def functions(self) -> Iterator[Function]:
        for module in self.modules.values():
            yield from module.functions.values()

    def module_named(self, dotted: str) -> Module | None:
        found = self.by_name.get(dotted)
        if found is not None or not dotted:
            return found
        # The root of the package may be above the given folder: `pkg.a.b` is then known as `a.b`, or vice versa.
        tails = [m for m in self.by_tail.get(dotted.rpartition(".")[2], ()) if _same_end(m.name, dotted)]
        return tails[0] if len(tails) == 1 else None

    def module_at(self, filename: str) -> Module | None:
        """The module whose path has the longest common end with `filename`, because the job ran in another folder."""
        parts = PurePath(filename.replace("\\", "/")).parts
        best: tuple[int, list[Module]] = (0, [])
        for module in self.by_tail.get(_stem(parts), ()):
            shared = _shared_end(PurePath(module.path).parts, parts)
            if shared > best[0]:
                best = (shared, [module])
            elif shared == best[0]:
                best[1].append(module)
        return best[1][0] if len(best[1]) == 1 else None

    def lookup(self, dotted: str, depth: int = 3) -> Function | Class | None:
        """The function or class with a dotted name, also through re-exports."""
        for _ in range(5):
            owner, _, last = dotted.rpartition(".")
            module = self.module_named(owner)
            if module is None:
                return self._member(owner, last) if owner else None
            found = module.functions.get(last) or module.classes.get(last)
            if found is not None:
                return found
            if last not in module.imports:
                return self._starred(module, last, depth)
            dotted = module.imports[last]
        return None

    def _member(self, owner: str, last: str) -> Function | None:
        """`pkg.mod.Class.method`."""
        above, _, name = owner.rpartition(".")
        module = self.module_named(above)
        cls = module.classes.get(name) if module else None
        return cls.methods.get(last) if cls else None

    def _starred(self, module: Module, name: str, depth: int) -> Function | Class | None:
        """Through `from .utils import *`, also where `utils` has it from elsewhere."""
        for star in module.stars:
            other = self.module_named(star)
            if other is not None and other is not module and depth:
                found = other.functions.get(name) or other.classes.get(name) or self._starred(other, name, depth - 1)
                imported = other.imports.get(name)
                if found is None and imported is not None and imported != f"{star}.{name}":
                    found = self.lookup(imported, depth - 1)
                if found is not None:
                    return found
        return None


def read_program(
    paths: Sequence[str],
    progress: Callable[[str], None] | None = None,
    *,
    most: int | None = None,
    first: Container[str] = (),
) -> Program:
    """`most`: words to read in total. If the files have more, those with a name in `first` are read before the others."""
    program = Program()
    for path, file in _within(most, [*_find(paths, program)], first, program):
        if progress is not None:
            progress(file)
        _add(file, program)
        if _is_test(PurePath(file).relative_to(path)):
            program.tests.add(file)
    return program


def _within(
    most: int | None, files: Sequence[tuple[str, str]], first: Container[str], program: Program
) -> Iterable[tuple[str, str]]:
    if most is None:
        return files
    words = {file: _words(file) for _, file in files}
    if sum(words.values()) <= most and max(words.values(), default=0) <= most // _FILES_AT_LEAST:
        return files
    fitting = [found for found in files if words[found[1]] <= most // _FILES_AT_LEAST]
    ordered = sorted(fitting, key=lambda found: PurePath(found[1]).name not in first)
    ends = accumulate(words[file] for _, file in ordered)
    read = [found for found, end in zip(ordered, ends, strict=True) if end <= most]
    left = f"{len(files) - len(read)} of {len(files)} files were not read: together they have more than {most:,} words"
    program.notes.append(SourceNote(files[0][0], f"{left}. Give a smaller folder"))
    return read


def _words(file: str) -> int:
    """Names and numbers: they predict the memory of a parsed file much better than its size."""
    path = Path(file)
    try:
        return len(_WORD.findall(path.read_bytes())) if path.is_file() and path.stat().st_size <= MAX_BYTES else 0
    except OSError:
        return 0


def _is_test(inside: PurePath) -> bool:
    """Judging by its path below the given folder; a file that was given itself always counts as source."""
    *folders, name = inside.parts or ("",)
    stem = name.removesuffix(".py")
    in_tests = any(folder in _TESTS or folder in _COPIED for folder in folders)
    return in_tests or (
        bool(inside.parts) and (stem.startswith("test_") or stem.endswith("_test") or stem == "conftest")
    )


def _find(paths: Sequence[str], program: Program) -> Iterator[tuple[str, str]]:
    """Each file, with the path below which it was found."""
    count = 0
    for path in paths:
        for file in find_files(path):
            count += 1
            if count > MAX_FILES:
                program.notes.append(SourceNote(path, f"more than {MAX_FILES} Python files: the rest was not read"))
                return
            yield path, file


def find_files(path: str) -> Iterable[str]:
    """The Python files and notebooks below a folder, sorted; for a file, the file."""
    if not Path(path).is_dir():
        yield path
        return
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(f for f in folders if f not in _SKIPPED and not f.endswith(".egg-info"))
        yield from (str(Path(folder) / file) for file in sorted(files) if file.endswith((".py", NOTEBOOK)))


def _add(file: str, program: Program) -> None:
    if file in program.modules:
        return
    if file.endswith(NOTEBOOK):
        program.notes.append(SourceNote(file, "notebooks are not read; convert it with: jupyter nbconvert --to script"))
        return
    try:
        size = Path(file).stat().st_size
        if not Path(file).is_file():
            program.notes.append(SourceNote(file, "not a file, not read"))
            return
        if size > MAX_BYTES:
            program.notes.append(SourceNote(file, f"{size:,} bytes: too large to be hand-written, not read"))
            return
        text = _text(file)
        module = parse_module(file, _dotted(file), text)
    except (OSError, SyntaxError, UnicodeError, ValueError, RecursionError, MemoryError) as error:
        program.notes.append(SourceNote(file, _explain(error)))
        return
    if module.left_out:
        lines = ", ".join(map(str, module.left_out[:_LINES_NAMED])) + (
            ", ..." if len(module.left_out) > _LINES_NAMED else ""
        )
        program.notes.append(
            SourceNote(file, f"not parsed as a whole: left out at line {lines} ({module.why_left_out})")
        )
    program.modules[file] = module
    program.lines += text.count("\n") + 1
    program.by_name.setdefault(module.name, module)
    program.by_tail[module.name.rpartition(".")[2]].append(module)
    for cls in module.classes.values():
        for name, method in cls.methods.items():
            program.methods[name].append(method)


def _text(file: str) -> str:
    try:
        with tokenize.open(file) as stream:
            return stream.read()
    except LookupError as error:  # a codec that Python has, but not of text
        raise UnicodeError(str(error)) from error


def _explain(error: Exception) -> str:
    if isinstance(error, SyntaxError):
        python2 = "Missing parentheses in call" in str(error) or "multiple exception types" in str(error)
        hint = " (Python 2: convert or exclude it)" if python2 else ""
        where = f"line {error.lineno}: " if error.lineno else ""
        return f"not parsed: {where}{error.msg}{hint}"
    if isinstance(error, UnicodeError):
        return f"not text in its declared encoding: {error.reason if isinstance(error, UnicodeDecodeError) else error}"
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror or error}"
    return f"not parsed: {error}"


def _dotted(file: str) -> str:
    path = Path(file).absolute()
    parts = [] if path.stem == "__init__" else [path.stem]
    folder = path.parent
    while (folder / "__init__.py").exists():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts) or path.parent.name


def _stem(parts: tuple[str, ...]) -> str:
    if not parts:
        return ""
    stem = parts[-1].removesuffix(".py")
    return parts[-2] if stem == "__init__" and len(parts) > 1 else stem


def _shared_end(one: tuple[str, ...], two: tuple[str, ...]) -> int:
    count = 0
    for a, b in zip(reversed(one), reversed(two), strict=False):
        if a != b:
            break
        count += 1
    return count


def _same_end(one: str, two: str) -> bool:
    return one == two or one.endswith(f".{two}") or two.endswith(f".{one}")
