"""A model walks the workflow, the engine stays in control: the verdict is made first and without a model, and nothing here can change it."""
