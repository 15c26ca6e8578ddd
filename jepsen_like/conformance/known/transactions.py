"""The differences of transactions from Apache Kafka 4.3 that are meant, each with its reason."""

from pykraft.jepsen_like.conformance.known.groups import Known
from pykraft.jepsen_like.conformance.known.producers import (
    all_partitions,
    beside_the_offset,
    beside_the_records,
    deleted_beginning,
    later_sequence,
    named_twice,
    negative_marker,
    part_of_a_producer,
    retry_of_a_former_producer,
    stuck_transaction,
    trace_of_an_abort,
)

KNOWN_TRANSACTIONS: tuple[Known, ...] = (
    Known(
        "EndTxn v5 at the epoch before a transaction that ended by the rules of version 0",
        "PRODUCER_FENCED; Kafka takes it for a retry, and may answer with the epoch of somebody else",
        retry_of_a_former_producer,
        ends_script=True,
    ),
    Known(
        "a batch that names a part of its producer",
        "INVALID_RECORD for one of a transaction without a producer id, or for an id without an epoch; Kafka"
        " appends them, if the partition does not know the id, and no marker can end such a transaction",
        part_of_a_producer,
        ends_script=True,
    ),
    Known(
        "the first batch of a producer that a partition does not know, at a sequence above 0",
        "OUT_OF_ORDER_SEQUENCE_NUMBER, unless what the partition knew may have been deleted or expired; Kafka"
        " appends it, except for producers by the rules of version 2",
        later_sequence,
        ends_script=True,
    ),
    Known(
        "the log start offset beside an error of Produce, and the time of a batch that is repeated",
        "-1; Kafka tells the former beside some errors, and as log append time that of the batch",
        beside_the_offset,
    ),
    Known(
        "what Fetch tells beside the records",
        "aborted transactions, of which those that begin after the records may be left out; Kafka may tell"
        " more of these, or null if there are no records. The valid offsets, if one is not valid; Kafka: -1",
        beside_the_records,
    ),
    Known(
        "an open transaction whose first records are deleted",
        "the last stable offset is the log start offset, or above; Kafka may name a deleted offset",
        deleted_beginning,
    ),
    Known(
        "a marker with a negative producer id or epoch",
        "INVALID_REQUEST, and the other markers of the request are written; Kafka writes none of them and"
        " answers UNKNOWN_SERVER_ERROR",
        negative_marker,
        ends_script=True,
    ),
    Known(
        "a request of a stranger, or for the other result, while markers cannot be written",
        "is refused for what it is; Kafka answers CONCURRENT_TRANSACTIONS to all requests until then",
        stuck_transaction,
    ),
    Known(
        "the partitions of a transaction of which not all markers are written",
        "DescribeTransactions names all; Kafka those that are left",
        all_partitions,
    ),
    Known(
        "a group that began with offsets of a transaction that was aborted",
        "ends with them; Kafka keeps it, without anything in it, until a restart",
        trace_of_an_abort,
    ),
    Known(
        "a partition that AddPartitionsToTxn names twice",
        "is answered once; Kafka answers twice if it refuses all",
        named_twice,
    ),
)
