"""Small real jobs, broken on purpose: each run leaves a capture as a person would collect it, with the truth beside it."""
