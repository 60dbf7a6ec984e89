"""Reports and rules -> text, JSON, SARIF, GitHub annotations and Markdown: one file per output."""
