"""The command line: a folder for each family of commands, a module for each command, imported when it is used.

Reads options and prints results; the packages below do the work.
"""
