"""Changes -> a unified diff that `git apply` takes."""

import os

from forkpoint.lint.edits import FileChange
from forkpoint.remedies.patch import unified


def render_diff(change: FileChange) -> bytes:
    """File names are relative to the current folder: apply the diff there."""
    return unified(os.path.relpath(change.file).replace(os.sep, "/"), change.before, change.after)
