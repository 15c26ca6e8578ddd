"""A whole node: its configuration, formatted directories, the assembly of its parts, and the command line.

The only package that may import all packages below it and name the adapters.
"""
