"""Takes out of text what must not leave the machine, so that what is left still tells the story.

Secrets are masked: nobody needs them again. Hosts, addresses, users become pseudonyms, the same one each time, so that
a reader still sees which ranks share a node. Ranks, seqs, groups, operations, file names and line numbers stay.

    Redactor.of(capture).redact(text)

One family of things per file: `secrets.py`, `keyed.py`, `addresses.py`, `hosts.py`, `users.py`, run in this order by
`redactor.py`; `environment.py` says which variables may be shown at all.
"""

from forkpoint.redact.redactor import Redactor

__all__ = ["Redactor"]
