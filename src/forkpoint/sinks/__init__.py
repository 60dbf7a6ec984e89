"""Verdicts and decisions for other programs: one file per receiver. What would change a node is only ever printed."""
