"""The command line: one module for each command of ``pykraft``, imported when it is used.

Reads options and prints; what a command does is done by the packages below.
"""
