"""Knowledge as data: causes, Xids, NCCL errors, variables and log lines, each with its source; and what to set for a job."""
