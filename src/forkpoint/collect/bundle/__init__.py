"""One archive for a ticket: evidence, verdict, report and doctors, without what must not leave the site.

`evidence` opens the files, `crew` hands their `pieces` to workers, `tar` writes what comes back; the verdict is then read
from the archive itself, so that nothing in it was ever seen before it was redacted. The map of pseudonyms stays here.

`make.make_bundle` is the way in. It is not imported here: workers load this package, and must start at once.
"""
