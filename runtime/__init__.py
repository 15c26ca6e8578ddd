"""Ports (clock, disk, remote calls) and the few adapters that do input and output."""
