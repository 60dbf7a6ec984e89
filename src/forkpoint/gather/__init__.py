"""Gathers the evidence of a job, and packs it for a ticket.

`collect` copies evidence from many places into one folder, `cluster` has nodes summarise their dumps where they are, `redact`
removes secrets and names, and `bundle` makes one archive that may leave the site.

"""
