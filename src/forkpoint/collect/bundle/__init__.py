"""One archive for a ticket: evidence, verdict, report and doctors, without what must not leave the site.

`evidence` opens the files, `redacting` takes out what must not leave, `tar` packs and writes the rest; on its way there it
is read for the verdict (`passing`), so that nothing was judged that is not in the archive. The map of pseudonyms stays here.

`make.make_bundle` is the way in.
"""
