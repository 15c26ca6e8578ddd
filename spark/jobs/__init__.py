"""Spark jobs to run as they are.

Each is a module with a command line of its own.
"""
