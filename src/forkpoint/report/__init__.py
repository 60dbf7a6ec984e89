"""Verdict -> text, JSON, Markdown, SARIF, a page: one file per output. Reports use only the verdict."""
