"""`forkpoint run`: a job with recording on, diagnosed when it fails, with a decision whether to try again.

`start` says how it is started, `job` runs it and leaves no process behind, `attempt` waits for its evidence, has it
judged and says whether it is tried again.
"""
