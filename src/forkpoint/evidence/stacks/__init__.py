"""Where ranks were while the job hung: live stacks in all common formats.

`read` reads them from files and logs, with one module per format; after that the format does not matter. `shapes` says what
blocks a thread, `threads` which of a rank's threads counts, and which ranks are at the same place.
"""
