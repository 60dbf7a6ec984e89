"""Gathers the evidence of a job, and packs it for a ticket.

`places` says where to look, `gather` copies what is found there, `ask` has live ranks write more of it, `manifest` tells
what each file is. `bundle/` makes one archive of it that may leave the site.
"""
