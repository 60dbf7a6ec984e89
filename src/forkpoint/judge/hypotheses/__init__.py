"""Every reading of the evidence that an expert would still consider, by what it rests on, and the repair that replay tries for it."""
