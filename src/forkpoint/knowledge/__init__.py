"""Knowledge as data: causes, Xids, NCCL errors, variables and log lines, with sources; and what to set for a job."""
