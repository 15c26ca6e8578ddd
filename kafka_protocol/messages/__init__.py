"""The messages: one module for each family of APIs, with nested structs before the message.

A request knows the class of its response. ``api_keys.request_class`` finds it by key and imports it on first
use: a new API has its tables here and its name there. Two structs of one module that would share a name are
prefixed with the name of their message, or named after what they are for.
"""
