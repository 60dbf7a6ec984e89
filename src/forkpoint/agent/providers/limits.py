"""What one request may cost, whoever answers."""

from typing import Final

RETRIES: Final = 1
"""By the provider's client, after a lost connection, a 429 or a 5xx. The time limit covers both tries."""
OUTPUT_TOKENS: Final = 16_000
"""Thinking included."""
NO_KEY: Final = "none"
"""Clients insist on a key. `connection` takes it out again."""
