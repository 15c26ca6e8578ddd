"""Every configuration key, defined once: name, type, default, allowed values, meaning, when it may change.

The tables are the only lists of keys. The keys allowed in a properties file, those that may change while
nodes run, the responses of DescribeConfigs, the typed settings of each part (:mod:`.settings`) and
docs/configuration.md are derived from them.
"""
