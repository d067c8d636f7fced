"""cascade: a streaming privacy filter for speech."""
