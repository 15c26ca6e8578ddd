"""The requests of a script, by the part of the protocol that they are of."""
