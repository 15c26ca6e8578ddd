"""AddOffsetsToTxn: the offsets of a group become part of a transaction (KIP-98).

They are one more partition that it writes to, of ``__consumer_offsets``. Only clients of TV_0 send this; for
others the group's coordinator adds its partition itself.
"""

from __future__ import annotations

from pykraft.coordinator.partitioning import OFFSETS_TOPIC
from pykraft.kafka_protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnTransaction,
)
from pykraft.transaction_coordinator.call import Call
from pykraft.transaction_coordinator.requests.add_partitions import add_partitions, current_transaction
from pykraft.transaction_coordinator.result import CoordinatorResult
from pykraft.transaction_coordinator.state import ShardState
from pykraft.transaction_coordinator.transaction import TransactionVersion


def handle_add_offsets(state: ShardState, request: AddOffsetsToTxnRequest, call: Call) -> CoordinatorResult:
    assert call.offsets_partition >= 0, "which partition holds the group?"
    producer = AddPartitionsToTxnTransaction(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
    )
    records = add_partitions(
        current_transaction(state, producer, call, AddOffsetsToTxnRequest.API_KEY),
        frozenset({(OFFSETS_TOPIC, call.offsets_partition)}),
        TransactionVersion.TV_0,
        call,
    )
    return CoordinatorResult(AddOffsetsToTxnResponse(), records)
