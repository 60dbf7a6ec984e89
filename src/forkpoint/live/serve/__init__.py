"""`forkpoint serve`: the report in a browser while evidence still arrives. Loopback only, one reader with a token, read-only.

`watch` looks at the folders and has them diagnosed, `pages` answers requests, `server` holds it together. Needs the extra
`serve`.
"""
