"""What each rank had before reduction, kept for the last steps and written down when something goes wrong. See docs/forensics.md."""

from forkpoint.replicas.forensics.recorder import Recorder, record

__all__ = ["Recorder", "record"]
