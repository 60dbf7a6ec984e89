"""What a command is."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import NamedTuple


class Command(NamedTuple):
    name: str
    help: str
    """One line for the list of commands."""
    description: str
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], int]
    """Does the work and returns the exit code. Engines are imported inside: `--help` must not pay for them."""
