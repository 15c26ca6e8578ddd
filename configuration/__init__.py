"""Every configuration key once: name, type, default, allowed values, meaning, and when it may change.

The tables are the only lists of keys. What a file may say, what may be changed while nodes run, what
DescribeConfigs answers, the typed settings of each part (:mod:`.settings`) and docs/configuration.md are
derived from them.
"""
