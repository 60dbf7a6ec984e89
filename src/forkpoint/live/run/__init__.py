"""`forkpoint run`: a job with recording on, diagnosed when it fails, with a decision whether to try again.

`start` plans its folders, command line and variables, `job` runs it and ends all its processes, `attempt` waits for its
evidence, has it diagnosed (`live/children`) and decides on a retry.
"""
