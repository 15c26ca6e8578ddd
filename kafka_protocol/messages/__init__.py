"""The messages: one module per API, named after it in snake case, with nested structs before the message.

``api_keys.request_class`` and ``response_class`` find them by key and import them on first use, so a new API
is a new module here and nothing else. Two structs of one module that would share a name carry the name of
their message in front.
"""
