"""A whole node: configuration, formatted directories, the parts made and joined, and the command line.

The only package that may import everything below it and name the adapters.
"""
