"""One script of raw requests, played against two systems, whose answers are compared field by field.

``script`` says what a script is, ``generate`` and ``moves`` draw one from a seed, ``player`` plays it against
an address, ``masks`` hides what may differ, ``compare`` finds the first answer that differs, and ``known``
lists the differences that are meant.
"""
