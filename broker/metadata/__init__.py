"""The newest metadata image: look-ups in it, and the answers about topics encoded from it."""
