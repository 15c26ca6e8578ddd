"""Requests of all APIs and versions, drawn from the message tables, against a whole node.

``python -m pykraft.jepsen_like.simulation.fuzz``. Nothing that a client sends may hold the event loop, take
memory without a bound, go without an answer, or end the node.
"""
