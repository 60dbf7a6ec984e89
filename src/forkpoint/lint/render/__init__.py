"""Report -> text, JSON, SARIF or annotations, and rules -> their documentation: one file per output."""
