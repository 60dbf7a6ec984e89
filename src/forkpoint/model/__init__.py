"""The nouns of a diagnosis. They import nothing else of forkpoint."""
