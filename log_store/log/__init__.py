"""The log of one partition: :class:`.Log`, by what happens to it."""
