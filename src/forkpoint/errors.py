"""Every exception of forkpoint.

ForkpointError                 something the user can act on; the message names the file and the next step
├── UsageError                 the command line asks for something that cannot be
├── Unsafe                     what was made must not be handed out; nothing was written
├── NoRoom                     a copy of evidence cannot be written where it was asked for; the others are
├── StoreError                 the store of incidents cannot be used; a verdict stands without it
└── InputError                 an input cannot be used; the rest goes on without it
    ├── UnreadableInput        it cannot be opened, or is no format we know
    └── HostileInput           it asks for more than data may: code, or resources past the budget
"""

from collections.abc import Iterable


class ForkpointError(Exception):
    def __init__(self, text: str, lines: Iterable[str] = ()) -> None:
        """`lines`: what it consists of, one on each line where there is room for lines."""
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
