"""What a broker serves: one module for each API or family, with its version range beside its handler.

``table`` is the one list of them; ApiVersions is computed from it.
"""
