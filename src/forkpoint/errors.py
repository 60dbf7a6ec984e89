"""Every exception of forkpoint.

ForkpointError                 something the user can act on; the message names the file and the next step
├── UsageError                 the command line asks for something impossible
├── Unsafe                     the output must not be shared; nothing was written
├── NoRoom                     a copy of evidence could not be written; the other copies were
├── StoreError                 the incident store cannot be used; the verdict does not need it
└── InputError                 an input cannot be used; the diagnosis continues without it
    ├── UnreadableInput        it cannot be opened, or its format is unknown
    └── HostileInput           it tries to run code, or needs more resources than allowed
"""

from collections.abc import Iterable


class ForkpointError(Exception):
    def __init__(self, text: str, lines: Iterable[str] = ()) -> None:
        """`lines`: the details, printed one per line where the output has lines."""
        self.text, self.lines = text, tuple(lines)
        super().__init__(" ".join([text, "; ".join(self.lines)]) if self.lines else text)


class UsageError(ForkpointError):
    pass


class Unsafe(ForkpointError):
    pass


class NoRoom(ForkpointError):
    pass


class StoreError(ForkpointError):
    pass


class InputError(ForkpointError):
    pass


class UnreadableInput(InputError):
    pass


class HostileInput(InputError):
    pass
