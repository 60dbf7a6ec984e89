"""The listener of the calm run: records which rank-local things this rank uses, where and how often."""

import math
import os
import shutil
import signal
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePath
from typing import Any, Final, cast

from forkpoint.rehearse.listening import GeneratorFacts, InsideRank, Listener, LoaderFacts, Watched
from forkpoint.rehearse.model import NOTED_STEPS, OLDER, CodeSite, RankUses, Use, UseKind, write_value
from forkpoint.rehearse.perturbations.samples import SLICE, differ_in_size, is_batch

_VALUES: Final = 64
"""Kept per place, for comparison between ranks."""
_FILTERED: Final = 8
"""Runs of a filter that are compared between ranks."""
_LOOKED_AT: Final = 64
"""Elements that are compared between ranks."""
_DEEP: Final = 4
_LONG: Final = 200
_MAX_PLACES: Final = 500
_EVERY_S: Final = 1.0
_SIGNALS: Final = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT)
_IN_WORKERS: Final = frozenset({UseKind.GUARDED, UseKind.EXISTS, UseKind.LISTING})
_LIBRARY: Final = CodeSite("", 0, "")
"""Used if no frame of the user's code is on the stack."""


@dataclass(slots=True)
class _Note:
    site: CodeSite
    what: str
    count: int = 0
    values: list[float] = field(default_factory=list[float])
    facts: dict[str, str] = field(default_factory=dict[str, str])


class Notes(Listener):
    """Written to a file once a second, and at the end."""

    def __init__(self, inside: InsideRank) -> None:
        super().__init__(inside)
        self._notes: dict[tuple[UseKind, CodeSite, str], _Note] = {}
        self._batches = 0
        self._steps = 0
        self._last = time.monotonic()
        self._pause_s = 0.0
        self._world, self._groups = 0, tuple[tuple[int, ...], ...]()
        self._pid = os.getpid()
        self._worker = ""
        """The end of the name of this process' notes, if it is a worker of a loader."""
        self.after_first_steps: Any = None
        """Called after the first steps, when calls of modules need no longer be recorded."""

    def begin(self) -> None:
        self._last = time.monotonic()
        threading.Thread(target=self._write_often, daemon=True, name="forkpoint-notes").start()

    # --------------------------------------------------------------------------------------------------------- hearing

    def batches(self, site: CodeSite | None, facts: LoaderFacts, batches: Iterator[Any]) -> Iterator[Any]:
        note = self._note(UseKind.LOADER, site, f"loader {facts.number}")
        if note is None:
            return batches
        note.facts |= {
            "batches": str(facts.batches),
            "iterable": str(int(facts.iterable)),
            "shared_out": str(int(facts.shared_out)),
            "own_collate": str(int(facts.own_collate)),
            "drops": str(int(facts.drops)),
            "numbered": str(int(facts.samples is not None and facts.batch_size > 0)),
            "workers": str(facts.workers),
        }
        note.values.append(0.0)
        return Watched(batches, lambda batch: self._take_batch(note, batch), lambda: note.facts.update(ends="1"))

    def _take_batch(self, note: _Note, batch: Any) -> None:
        self._batches += 1
        if "content" not in note.facts:
            note.facts["uneven"] = str(int(self._is_uneven(batch)))
            note.facts["content"] = str(zlib.crc32(repr(self._plainly(batch)).encode(errors="replace")))
        if len(note.values) <= _VALUES:
            note.values[-1] += 1

    def read(self, site: CodeSite, how: str, value: Any) -> Any:
        note = self._add(UseKind.READ, site, how, value)
        if note is not None and _is_many(value):
            evaluates = not self.inside.torch.is_grad_enabled() and note.facts.get("evaluates") != "0"
            note.facts["evaluates"] = str(int(evaluates))
        return value

    def selecting(self, site: CodeSite, mask: Any) -> Any:
        """Notes how many elements it selects."""
        self._add(UseKind.MASK, site, "", int(self.inside.torch.count_nonzero(mask)))
        return mask

    def clock(self, site: CodeSite, name: str, value: float) -> float:
        self._add(UseKind.CLOCK, site, name)
        return value

    def drew(self, site: CodeSite, name: str, value: Any) -> None:
        self._add(UseKind.DRAW, site, name, value)

    def exists(self, site: CodeSite, path: str, there: bool) -> bool:
        self._add(UseKind.EXISTS, site, path, float(there))
        return there

    def listing(self, site: CodeSite, path: str, names: list[Any]) -> list[Any]:
        self._add(UseKind.LISTING, site, path, float(len(names)))
        return names

    def writing(self, site: CodeSite | None, path: str) -> None:
        self._add(UseKind.WRITE, site, path)

    def saving(self, site: CodeSite | None, path: str) -> None:
        """Keeps a copy of the version that is overwritten, for the perturbation with an older checkpoint."""
        if Path(path).is_file():
            older = Path(OLDER)
            older.mkdir(exist_ok=True)
            shutil.copyfile(path, older / Path(path).name)
        self.writing(site, path)

    def loading(self, site: CodeSite | None, path: str) -> str:
        self._add(UseKind.LOAD, site, path)
        return path

    def guarded(self, site: CodeSite, call: str, catches: tuple[type[BaseException], ...]) -> None:
        note = self._add(UseKind.GUARDED, site, call)
        if note is not None and not note.facts:
            note.facts = {"catches": " ".join(kind.__name__ for kind in catches)}

    def forward(self, site: CodeSite | None) -> None:
        self._add(UseKind.FORWARD, site, "")

    def backward(self, site: CodeSite | None) -> None:
        self._add(UseKind.BACKWARD, site, "")

    def stepped(self, number: int) -> None:
        self._steps = number
        now = time.monotonic()
        self._pause_s, self._last = max(self._pause_s, now - self._last), now
        if number in (1, NOTED_STEPS):
            self._look_at_groups()
        if number == NOTED_STEPS and self.after_first_steps is not None:
            self.after_first_steps()

    def polled(self, site: CodeSite, what: str) -> bool:
        self._add(UseKind.POLL, site, what)
        return True

    def begins(self, site: CodeSite, what: str) -> None:
        self._add(UseKind.THREAD, site, what)

    def message(self, site: CodeSite, key: str) -> None:
        del key
        self._add(UseKind.MESSAGE, site, "")

    def kept(self, site: CodeSite, values: list[Any]) -> list[Any]:
        note = self._add(UseKind.FILTER, site, "list")
        if note is not None and note.count <= _FILTERED:
            self._compare(note, values, len(values))
        return values

    def room(self, site: CodeSite, name: str, told: Any, full: Callable[[Any], Any]) -> Any:
        del full
        self._add(UseKind.ROOM, site, name)
        return told

    def generated(self, site: CodeSite, facts: GeneratorFacts, items: Iterator[Any]) -> Iterator[Any]:
        note = self._note(UseKind.GENERATOR, site, facts.what)
        if note is None or note.count > _VALUES:
            return items
        note.facts["by_data"] = str(int(facts.by_data))
        note.values.append(0.0)
        first: list[Any] = []
        return Watched(items, lambda item: self._take_item(note, first, item), lambda: self._end_items(note, first))

    def taken(self, site: CodeSite, items: list[Any]) -> list[Any]:
        """Like the items of a generator that are batches of samples, of which only the first is compared between ranks."""
        if is_batch(items):
            note = self._note(UseKind.GENERATOR, site, SLICE)
            if note is not None:
                note.values = [float(note.count)]
                if note.count == 1:
                    note.facts = {"by_data": "0", "uneven": "1", "content": str(fingerprint([self._plainly(items)]))}
        return items

    def _take_item(self, note: _Note, first: list[Any], item: Any) -> None:
        note.values[-1] += 1
        if "content" not in note.facts and len(first) < _FILTERED:
            first.append(self._plainly(item))
            if differ_in_size(item):
                note.facts["uneven"] = "1"

    def _end_items(self, note: _Note, first: list[Any]) -> None:
        note.facts.setdefault("content", str(fingerprint(first)))
        note.facts["ends"] = str(int(note.facts["content"] != "None"))

    def _is_uneven(self, batch: Any) -> bool:
        """Rows of integers have different numbers of zeros, as padded texts have."""
        if isinstance(batch, (dict, list, tuple)):
            parts = cast("dict[Any, Any]", batch).values() if isinstance(batch, dict) else cast("list[Any]", batch)
            return any(map(self._is_uneven, parts))
        if not isinstance(batch, self.inside.torch.Tensor) or batch.ndim < 2 or batch.is_floating_point():
            return False
        return len(set(batch.flatten(1).count_nonzero(dim=1).tolist())) > 1

    def _plainly(self, item: Any) -> Any:
        """Tensors become their shape and first values. Parameters, and pairs of a name and a tensor, are not data and stay as they are."""
        torch = self.inside.torch
        if isinstance(item, torch.nn.Parameter):
            return item
        if isinstance(item, torch.Tensor):
            return (tuple(item.shape), item.detach().flatten()[:_FILTERED].tolist())
        if isinstance(item, dict):
            return [self._plainly(value) for value in cast("dict[Any, Any]", item).values()]
        if isinstance(item, (list, tuple)):
            parts = cast("list[Any]", item)
            named = len(parts) == 2 and isinstance(parts[0], str) and isinstance(parts[1], torch.Tensor)
            return item if named else [self._plainly(part) for part in parts[:_FILTERED]]
        return item

    def each(self, site: CodeSite, values: Iterator[Any]) -> Iterator[Any]:
        note = self._add(UseKind.FILTER, site, "loop")
        return values if note is None or note.count > _FILTERED else self._followed(note, values)

    def _followed(self, note: _Note, values: Iterator[Any]) -> Iterator[Any]:
        first: list[Any] = []
        count = 0
        for count, value in enumerate(values, 1):
            if count <= _VALUES:
                first.append(value)
            yield value
        self._compare(note, first, count)

    def _compare(self, note: _Note, values: list[Any], count: int) -> None:
        """Records a fingerprint, to compare the data of ranks later."""
        found = fingerprint(values)
        note.values.append(found or 0.0)
        plain = found is not None and note.facts.get("plain", "1") == "1"
        note.facts = {"plain": str(int(plain)), "least": str(min(count, int(note.facts.get("least", count))))}

    def _add(self, kind: UseKind, site: CodeSite | None, what: str, value: Any = None) -> _Note | None:
        note = self._note(kind, site, what)
        if note is not None and value is not None and len(note.values) < _VALUES:
            number = _as_number(value)
            if number is not None:
                note.values.append(number)
        return note

    def _note(self, kind: UseKind, site: CodeSite | None, what: str) -> _Note | None:
        if os.getpid() != self._pid and not self._is_worker(kind):
            return None
        key = (kind, site or _LIBRARY, what)
        note = self._notes.get(key)
        if note is None:
            if len(self._notes) >= _MAX_PLACES:
                return None
            note = self._notes[key] = _Note(key[1], what)
        note.count += 1
        if self._worker and note.count & (note.count - 1) == 0:  # it may be killed without a word: at 1, 2, 4, 8, ...
            self.write()
        return note

    def _is_worker(self, kind: UseKind) -> bool:
        """This process is a worker of a loader. It reads the rank's files; its clock and its random numbers decide nothing."""
        if not self._worker and self.inside.torch.utils.data.get_worker_info() is not None:
            self._worker = f"_worker_{os.getpid()}"
            self._notes = {}
        return bool(self._worker) and kind in _IN_WORKERS

    # --------------------------------------------------------------------------------------------------------- telling

    def _write_often(self) -> None:
        while True:
            time.sleep(_EVERY_S)
            self.write()

    def write(self) -> None:
        rank = self.inside.rank()
        if rank is None or (os.getpid() != self._pid and not self._worker):
            return
        self._look_at_groups()
        told = RankUses(
            rank=rank,
            world=self._world,
            steps=self._steps,
            batches=self._batches,
            uses=tuple(self._uses()) if self._worker else (*self._uses(), *_handled_signals()),
            groups=self._groups,
            longest_pause_s=self._pause_s,
            cpu_s=time.process_time(),
        )
        write_value(Path(self.inside.order.folder) / f"uses_rank_{rank}{self._worker}.json", told)

    def _look_at_groups(self) -> None:
        """Those of before are kept: at its end, a program has destroyed its groups."""
        torch = self.inside.torch
        if _is_joined(torch):
            self._world, self._groups = torch.distributed.get_world_size(), _groups(torch)

    def _uses(self) -> Iterator[Use]:
        for (kind, site, what), note in list(self._notes.items()):
            yield Use(kind, site, what, note.count, tuple(note.values), dict(note.facts))


def fingerprint(values: Iterable[Any]) -> float | None:
    """Equal for equal data on any rank; None if it is not plain data. Integers alone do not count: they may be ranks, layers or
    experts, none of which can be missing.
    """
    looked_at = list(islice(values, _LOOKED_AT))
    if not all(map(_is_plain, looked_at)) or all(isinstance(value, int) for value in looked_at):
        return None
    return float(zlib.crc32("\n".join(repr(value)[:_LONG] for value in looked_at).encode(errors="replace")))


def _is_plain(value: Any, depth: int = 0) -> bool:
    if isinstance(value, dict):
        value = [*cast("dict[Any, Any]", value).keys(), *cast("dict[Any, Any]", value).values()]
    if isinstance(value, (list, tuple)):
        return depth < _DEEP and all(_is_plain(part, depth + 1) for part in cast("list[Any]", value)[:_LOOKED_AT])
    return value is None or isinstance(value, str | bytes | int | float | PurePath)


def _is_many(value: Any) -> bool:
    """A list or an array with more than one element."""
    return (isinstance(value, list) or getattr(value, "ndim", 0) > 0) and len(value) > 1


def _as_number(value: Any) -> float | None:
    if _is_many(value):
        return float(zlib.crc32(repr(value[:_VALUES]).encode()))
    if isinstance(value, bool | int | float):
        number = float(value)
        return number if math.isfinite(number) else 0.0
    return None


def _handled_signals() -> Iterator[Use]:
    for number in _SIGNALS:
        handler = signal.getsignal(number)
        if callable(handler) and handler is not signal.default_int_handler:
            code = getattr(handler, "__code__", None)
            site = CodeSite(Path(code.co_filename).name, code.co_firstlineno, code.co_name) if code else _LIBRARY
            yield Use(UseKind.SIGNAL, site, signal.Signals(number).name, 1)


def _is_joined(torch: Any) -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _groups(torch: Any) -> tuple[tuple[int, ...], ...]:
    if not _is_joined(torch):
        return ()
    world = torch.distributed.distributed_c10d._world  # noqa: SLF001 the only list of groups there is
    found = {tuple(ranks) for ranks in map(list, world.pg_group_ranks.values())}
    own = torch.distributed.get_rank()
    return tuple(sorted(ranks for ranks in found if own in ranks))  # a mesh lists those of others, too
