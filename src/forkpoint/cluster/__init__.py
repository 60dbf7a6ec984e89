"""Nodes summarise their own dumps, and one summary comes back: 1 to 2 kB per rank travel, the dumps stay.

`engines` knows the ways to the nodes that a site already has: ssh, Slurm, Ray (`ray`), Monarch (`monarch`). `gather` asks
the nodes and merges, `representatives` fetches the few full dumps that a verdict rests on. A node that does not answer
is a problem in the summary, and the others go on.
"""
