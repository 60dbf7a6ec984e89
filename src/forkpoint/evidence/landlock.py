"""Takes away rights that a process that only reads files does not need: changing files, and the network. Needs Linux 5.13 or
later.

Landlock is three system calls whose numbers are the same on every machine. It cannot be undone, and applies to programs that the
process starts. If the kernel does not have it, nothing happens.
"""

import ctypes
import os
import struct

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_SET_NO_NEW_PRIVS = 38
_ASK_VERSION = 1
_BENEATH_PATH = 1
_WRITE_FILE = 1 << 1
_CHANGE_FOLDERS = sum(1 << bit for bit in range(4, 13))
"""Removing and creating files, folders, links and devices."""
_TRUNCATE = 1 << 14
_TCP = 0b11
"""Binding and connecting."""
_SCOPES = 0b11
"""Abstract sockets and signals of processes outside."""


def give_up_rights(*, network: bool) -> bool:
    """Gives up changing files, and with `network` also TCP. Returns whether the kernel did it."""
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE_RULESET, None, 0, _ASK_VERSION)
    if version < 1:
        return False
    files = _WRITE_FILE | _CHANGE_FOLDERS | (_TRUNCATE if version >= 3 else 0)
    handled = struct.pack("<QQQ", files, _TCP if network else 0, _SCOPES)[
        : 8 if version < 4 else 16 if version < 6 else 24
    ]
    rules = libc.syscall(_CREATE_RULESET, handled, len(handled), 0)
    if rules < 0:
        return False
    null = os.open(os.devnull, os.O_PATH | os.O_CLOEXEC)  # what programs print is discarded there
    libc.syscall(_ADD_RULE, rules, _BENEATH_PATH, struct.pack("<Qi", _WRITE_FILE, null), 0)
    done = libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 and libc.syscall(_RESTRICT_SELF, rules, 0) == 0
    os.close(null)
    os.close(rules)
    return done
