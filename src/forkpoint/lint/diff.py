"""Changes -> a unified diff that `git apply` takes."""

import os

from forkpoint.lint.edits import Change
from forkpoint.remedies.patch import unified


def render_diff(change: Change) -> bytes:
    """Names are relative to the current folder: apply it there."""
    return unified(os.path.relpath(change.file).replace(os.sep, "/"), change.before, change.after)
