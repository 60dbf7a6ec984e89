"""Looks at a running job again and again from outside, and says when it has gone wrong.

`sources/` fetch evidence into a spool folder, `rule` says which ranks moved since the look before and when that is an
alarm, `look` makes one look after the other and renders what it saw; `live/metrics` and `live/children` pass it on.
"""
