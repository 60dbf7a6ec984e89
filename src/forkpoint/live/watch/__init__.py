"""`forkpoint watch`: looks at a running job again and again from outside, and says when it has gone wrong.

`sources/` fetch evidence into a spool folder, `rule` says which ranks moved and when that is an alarm, `look` holds one
look together and repeats it, `views` show the result, `alerts` pass it on.
"""
