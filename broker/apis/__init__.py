"""The APIs that a broker serves: one module for each API or family of APIs.

``table`` is the one list of them; ApiVersions is computed from it.
"""
