"""The data types of a diagnosis. This package imports nothing else from forkpoint."""
