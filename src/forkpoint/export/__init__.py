"""Evidence -> files for other tools. Unlike a report, an export shows all that was recorded, not what was concluded."""
