"""The nouns: frozen, no I/O, importing nothing else of forkpoint."""
