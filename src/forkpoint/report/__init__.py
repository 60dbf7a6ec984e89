"""Verdict -> text, JSON, Markdown, SARIF, a page: one file per output. Reports look at nothing but the verdict."""
