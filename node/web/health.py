"""Whether a node lives, and whether it serves."""

from __future__ import annotations

from pykraft.node.node import Node


def why_not_ready(node: Node, now_ms: int) -> str | None:
    """Why clients and other nodes are not served, or not fully; None if they are. ``now_ms`` is monotonic."""
    quorum = getattr(node, "quorum", None)
    if quorum is None:
        return "the node is starting"
    broker = node.broker
    if broker is None:
        return None if quorum.leader.leader_id is not None else "the quorum has no leader"
    if broker.lifecycle.is_fenced:
        return "the broker is fenced, or not registered yet"
    if not broker.lifecycle.lease_valid(now_ms):
        return "the broker has lost contact with the active controller"
    if not broker.data.replicas.is_reconciled:
        return "the broker is opening its logs"
    return None
