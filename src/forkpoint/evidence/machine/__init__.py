"""What machines say beside the training log: the kernel, NCCL's RAS network, and NCCL's lines about who runs where.

Import from the modules: their tables are compiled only where such a file is met.
"""
