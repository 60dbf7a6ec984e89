"""The report in a browser while evidence still arrives: loopback only, one reader with a token, read-only.

`watch` finds the incident folders and has each diagnosed in a child process, `pages` answers requests that have the token,
`history` shows a store, `server` runs it all. Needs the extra `serve`.
"""
