"""`forkpoint run`: a job with recording on, diagnosed when it fails, with a decision whether to try again.

`launcher`, `recording` and `folders` say how it is started, `job` runs it, `processes` leaves nothing behind, `stillness`
waits for its evidence, `live/diagnosing` has it judged, `retries` says whether it is tried again.
"""
