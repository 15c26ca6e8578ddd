"""The messages: one module for each API, named after it in snake case, with nested structs before the
message.

``api_keys.request_class`` and ``response_class`` find them by key and import them on first use, so a new API
only needs a new module here. Two structs of one module that would share a name are prefixed with the name of
their message.
"""
