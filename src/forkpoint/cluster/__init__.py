"""Sends `summarise` to where the dumps lie and brings one summary back: 1 to 2 kB per rank travel, the dumps stay.

One file per engine (`ssh`, `slurm`, `ray`, `monarch`), each a way to the nodes that a site already has. `gather` asks
the nodes and merges, `representatives` fetches the few full dumps that a verdict rests on. A node that does not answer
is a problem in the summary, and the others go on.
"""
