"""Where forkpoint's compiled reader lies. forkpoint loads it by ctypes (forkpoint.ingest.flight_recorder.native)."""

from pathlib import Path

_FOLDER = Path(__file__).parent / "_lib"


def library() -> Path:
    """The shared library. Its interface is described in native/src/ffi.rs."""
    return next(path for path in sorted(_FOLDER.iterdir()) if path.suffix in {".so", ".dylib"})
