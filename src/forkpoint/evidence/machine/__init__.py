"""What machines say beside the training log: the kernel, NCCL's RAS network, and NCCL's lines about who runs where."""
