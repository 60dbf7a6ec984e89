"""Gathers the evidence of a job, and packs it for a ticket.

`collect` visits all places (`this_machine`, `remote`) and asks live ranks, `folder` is where copies and their manifest go,
`cluster` has nodes summarise their own dumps, `attach/` looks at a job that hangs now, and `bundle` makes one archive
that may leave the site.
"""
