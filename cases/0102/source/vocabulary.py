"""Pieces of words, shared by the processes of a node through a file."""
import fcntl
import json
import os
import tempfile
from contextlib import contextmanager


class Vocabulary:
    def __init__(self, rank):
        self.path = os.path.join(tempfile.mkdtemp(prefix=f"pieces_{rank}_"), "pieces.json")
        self._write({f"w{i}": i for i in range(50)})
        self.pieces = self._read()

    def _read(self):
        with open(self.path) as file:
            return json.load(file)

    def _write(self, pieces):
        with open(self.path, "w") as file:
            json.dump(pieces, file)

    @contextmanager
    def exclusive(self):
        with open(self.path + ".lock", "w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(handle, fcntl.LOCK_UN)

    def add(self, word):
        with self.exclusive():
            pieces = self._read()
            pieces.setdefault(word, len(pieces))
            self._write(pieces)
        self.pieces = pieces

    def encode(self, words):
        missing = [w for w in words if w not in self.pieces]
        if missing:
            with self.exclusive():
                for word in missing:
                    self.add(word)
        return [self.pieces[w] for w in words]
