"""The report in a browser while evidence still arrives: loopback only, one reader with a token, nothing is changed.

`folders` says what lies on disk, `watch` when to look again, `diagnosis` has each folder diagnosed in a process of its
own (`worker`), `app` answers requests that `guard` lets in, `server` holds it together. Needs the extra `serve`.
"""
