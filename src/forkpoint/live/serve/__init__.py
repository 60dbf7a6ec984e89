"""The report in a browser while evidence still arrives: loopback only, one reader with a token, read-only.

`folders` says what lies on disk, `watch` when to look again, `diagnosis` has each folder diagnosed in a child process,
`app` answers requests that `guard` lets in, `server` holds it together. Needs the extra `serve`.
"""
