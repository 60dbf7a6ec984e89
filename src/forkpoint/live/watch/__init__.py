"""Looks at a running job again and again from outside, and says when it has gone wrong.

`sources/` fetch evidence into the `spool`, `progress` says which ranks moved since the look before, `rule` when that is
an alarm, `look` holds one look together, `loop` repeats it. `views/` shows a `Sight`, `live/metrics` and `live/notifying` pass it on.
"""
