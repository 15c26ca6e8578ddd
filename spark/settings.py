"""The names of the data source's options, and the handling of the Java client's ``kafka.*`` settings."""

from __future__ import annotations

READ_OPTIONS = (
    "kafka.bootstrap.servers",
    "assign",
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "includeHeaders",
    "minPartitions",
    "maxRecordsPerPartition",
    "kafkaConsumer.pollTimeoutMs",
)

# Accepted without effect: reads do not join a group, and the client has its own retries.
UNUSED_OPTIONS = ("groupIdPrefix", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs")

BATCH_OPTIONS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")

STREAM_OPTIONS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "publishOffsetsToGroup")

WRITE_OPTIONS = ("topic", "deliveryGuarantee", "transactionalIdPrefix", "jobId")

# Settings of Kafka's consumer that this client also has.
MAPPED_CLIENT_SETTINGS = (
    "kafka.check.crcs",
    "kafka.client.id",
    "kafka.client.rack",
    "kafka.default.api.timeout.ms",
    "kafka.fetch.max.bytes",
    "kafka.fetch.max.wait.ms",
    "kafka.fetch.min.bytes",
    "kafka.isolation.level",
    "kafka.max.partition.fetch.bytes",
    "kafka.request.timeout.ms",
    "kafka.retry.backoff.max.ms",
    "kafka.retry.backoff.ms",
    "kafka.security.protocol",
)

# Settings that tune parts this client does not have; ignoring them changes no result.
IGNORED_CLIENT_SETTINGS = (
    "kafka.allow.auto.create.topics",
    "kafka.client.dns.lookup",
    "kafka.connections.max.idle.ms",
    "kafka.enable.metrics.push",
    "kafka.exclude.internal.topics",
    "kafka.group.id",
    "kafka.group.instance.id",
    "kafka.group.protocol",
    "kafka.heartbeat.interval.ms",
    "kafka.max.poll.interval.ms",
    "kafka.max.poll.records",
    "kafka.metadata.max.age.ms",
    "kafka.partition.assignment.strategy",
    "kafka.receive.buffer.bytes",
    "kafka.reconnect.backoff.max.ms",
    "kafka.reconnect.backoff.ms",
    "kafka.send.buffer.bytes",
    "kafka.session.timeout.ms",
    "kafka.socket.connection.setup.timeout.max.ms",
    "kafka.socket.connection.setup.timeout.ms",
)

# Settings of Kafka's producer that this client also has.
MAPPED_PRODUCER_SETTINGS = (
    "kafka.acks",
    "kafka.batch.size",
    "kafka.bootstrap.servers",
    "kafka.buffer.memory",
    "kafka.client.id",
    "kafka.compression.type",
    "kafka.default.api.timeout.ms",
    "kafka.delivery.timeout.ms",
    "kafka.linger.ms",
    "kafka.max.block.ms",
    "kafka.max.request.size",
    "kafka.request.timeout.ms",
    "kafka.retry.backoff.max.ms",
    "kafka.retry.backoff.ms",
    "kafka.security.protocol",
    "kafka.transaction.timeout.ms",
)

# Settings that tune parts this client does not have; ignoring them changes no result.
IGNORED_PRODUCER_SETTINGS = (
    "kafka.client.dns.lookup",
    "kafka.connections.max.idle.ms",
    "kafka.enable.metrics.push",
    "kafka.metadata.max.age.ms",
    "kafka.metadata.max.idle.ms",
    "kafka.receive.buffer.bytes",
    "kafka.reconnect.backoff.max.ms",
    "kafka.reconnect.backoff.ms",
    "kafka.retries",
    "kafka.send.buffer.bytes",
    "kafka.socket.connection.setup.timeout.max.ms",
    "kafka.socket.connection.setup.timeout.ms",
)

REFUSED_CLIENT_SETTINGS = {
    "kafka.auto.offset.reset": "say where to start with 'startingOffsets'",
    "kafka.enable.auto.commit": "Spark tracks the offsets itself and commits none",
    "kafka.auto.commit.interval.ms": "Spark tracks the offsets itself and commits none",
    "kafka.interceptor.classes": "interceptors are Java classes",
    "kafka.metric.reporters": "reporters are Java classes",
    "kafka.key.deserializer": "keys are always bytes; convert the column in the query",
    "kafka.value.deserializer": "values are always bytes; convert the column in the query",
    "kafka.key.serializer": "keys are always bytes; convert the column in the query",
    "kafka.value.serializer": "values are always bytes; convert the column in the query",
}

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

# Never ignored: who asks for them expects a connection that nobody else can read or use.
SECURITY_PREFIXES = ("kafka.sasl.", "kafka.security.providers", "kafka.ssl.")
