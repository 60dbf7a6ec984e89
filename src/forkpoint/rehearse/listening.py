"""The listener: called for everything rank-local that a program does, and may change the answer. The calm run takes notes
(`inside/notes.py`), a perturbation changes one thing (`perturbation.py`). Runs inside the ranks, but does not import torch: it gets
it as an argument.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from forkpoint.rehearse.model import CodeSite, RunOrder


@dataclass(frozen=True, slots=True)
class LoaderFacts:
    """Facts about one DataLoader."""

    number: int
    """In the order in which loaders were first iterated in this process."""
    batches: int
    """Its `len`; 0 if it has none."""
    iterable: bool
    """An IterableDataset: what it yields is known only while reading."""
    shared_out: bool
    """A sampler shares one data set evenly between all ranks."""
    own_collate: bool
    """The user's own function makes batches of samples."""
    drops: bool
    """Its collate function can drop samples."""
    workers: int
    samples: Any
    """The data set, if samples can be read by index; else None."""
    batch_size: int
    """0: a batch sampler decides."""
    collate: Callable[[list[Any]], Any]


@dataclass(frozen=True, slots=True)
class GeneratorFacts:
    name: str
    by_data: bool
    """A test in its loop decides how many items it yields."""

    @property
    def what(self) -> str:
        return f"generator {self.name}"


@dataclass(frozen=True, slots=True)
class InsideRank:
    """What a perturbation can reach in its rank."""

    torch: Any
    order: RunOrder
    rank: Callable[[], int | None]
    """None: unknown yet."""
    steps: Callable[[], int]
    mark: Callable[[], None]
    """Marks in the path of this rank where the perturbation takes effect."""
    here: Callable[[], CodeSite | None] = lambda: None
    """The innermost line of the user's code on the stack."""


class Listener:
    """Listens to everything and changes nothing."""

    def __init__(self, inside: InsideRank) -> None:
        self.inside = inside

    def begin(self) -> None:
        """The process group was just created."""

    def batches(self, site: CodeSite | None, facts: LoaderFacts, batches: Iterator[Any]) -> Iterator[Any]:
        """A loader is iterated."""
        del site, facts
        return batches

    def workers(self, site: CodeSite | None, facts: LoaderFacts, processes: Sequence[Any]) -> None:
        """The worker processes of a loader that was just started."""

    def read(self, site: CodeSite, how: str, value: Any) -> Any:
        """The user's code reads a tensor's value."""
        del site, how
        return value

    def selecting(self, site: CodeSite, mask: Any) -> Any:
        """The user's code selects the elements of a tensor where a mask is true. Returns the mask to use."""
        del site
        return mask

    def taken(self, site: CodeSite, items: list[Any]) -> list[Any]:
        """A part of a list, `x[a:b]`: it may be a batch of samples. Returns the list to use."""
        del site
        return items

    def clock(self, site: CodeSite, name: str, value: float) -> float:
        del site, name
        return value

    def drew(self, site: CodeSite, name: str, value: Any) -> None:
        """A number was drawn from a random stream that the whole process shares."""

    def exists(self, site: CodeSite, path: str, there: bool) -> bool:
        del site, path
        return there

    def listing(self, site: CodeSite, path: str, names: list[Any]) -> list[Any]:
        del site, path
        return names

    def writing(self, site: CodeSite | None, path: str) -> None:
        """A file is about to be opened for writing, or saved to."""

    def saving(self, site: CodeSite | None, path: str) -> None:
        """Torch is about to save to a file."""
        self.writing(site, path)

    def loading(self, site: CodeSite | None, path: str) -> str:
        """A checkpoint is about to be read. Returns the path to read."""
        del site
        return path

    def guarded(self, site: CodeSite, call: str, catches: tuple[type[BaseException], ...]) -> None:
        """A call inside `try` is about to be made."""

    def forward(self, site: CodeSite | None) -> None:
        """The outermost module is about to be called, with gradients recorded."""

    def output(self, site: CodeSite | None, output: Any) -> Any:
        """What the outermost module returned."""
        del site
        return output

    def backward(self, site: CodeSite | None) -> None:
        """`loss.backward()` is about to run."""

    def stepped(self, number: int) -> None:
        """The optimizer has made its step `number`."""

    def polled(self, site: CodeSite, what: str) -> bool:
        """The program polls for something that another thread or rank has done. Returns what the program is told."""
        del site, what
        return True

    def begins(self, site: CodeSite, what: str) -> None:
        """Called in the thread that is about to start work which was handed to it at `site`."""

    def message(self, site: CodeSite, key: str) -> None:
        """Something is about to be put into the store."""

    def kept(self, site: CodeSite, values: list[Any]) -> list[Any]:
        """What a filter leaves of a list."""
        del site
        return values

    def generated(self, site: CodeSite, facts: GeneratorFacts, items: Iterator[Any]) -> Iterator[Any]:
        """The items of a user's generator."""
        del site, facts
        return items

    def room(self, site: CodeSite, name: str, told: Any, full: Callable[[Any], Any]) -> Any:
        """The answer to a question how much of a disk or memory is left. `full`: what it would be if nothing were."""
        del site, name, full
        return told

    def each(self, site: CodeSite, values: Iterator[Any]) -> Iterator[Any]:
        """The items of a loop whose body starts with `if ...: continue`."""
        del site
        return values


class Passed(Iterator[Any]):
    """Yields other items; everything else is passed on to the original iterator."""

    def __init__(self, original: Iterator[Any], items: Iterator[Any]) -> None:
        self._rehearsed = (original, items)

    def __next__(self) -> Any:
        return next(self._rehearsed[1])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rehearsed[0], name)


class Watched(Iterator[Any]):
    """Tells of every item, and of the end. Everything else (`send`, `close`, ...) is passed on to the original iterator, which may go
    on after an error.
    """

    def __init__(
        self, original: Iterator[Any], each: Callable[[Any], None], at_end: Callable[[], None] = lambda: None
    ) -> None:
        self._rehearsed = (original, each, at_end)

    def __next__(self) -> Any:
        original, each, at_end = self._rehearsed
        try:
            item = next(original)
        except StopIteration:
            at_end()
            raise
        each(item)
        return item

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rehearsed[0], name)
