"""The command line: one module for each command of ``pykraft``, imported when it is used.

Reads options and prints results; the packages below do the work.
"""
