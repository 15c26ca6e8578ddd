"""The kinds of faults, one module for each thing that breaks."""
