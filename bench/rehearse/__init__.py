"""What `forkpoint rehearse` finds: latent bugs, their repaired versions, and healthy programs."""
