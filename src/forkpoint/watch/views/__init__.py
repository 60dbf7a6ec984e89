"""A `Sight` for eyes and for programs. Nothing is looked at or judged here."""
