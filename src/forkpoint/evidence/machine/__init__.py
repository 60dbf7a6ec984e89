"""Evidence from machines, besides the training log: kernel messages, NCCL's RAS network, and which rank runs where.

Import from the modules, not from here: their patterns are then compiled only if such a file is read.
"""
