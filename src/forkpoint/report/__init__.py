"""Verdict -> text or JSON, one file per output. Nothing here looks at anything but the verdict."""
