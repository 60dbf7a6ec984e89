"""Knowledge as data: what causes, Xids, NCCL errors, variables and log lines mean, each with its source."""
