"""Names of server properties that Kafka knows and pykraft does not use.

A file written for Kafka starts here too: each of these earns one warning and has no effect.
"""

from __future__ import annotations

UNUSED_KAFKA_KEYS = frozenset(
    """
alter.config.policy.class.name alter.log.dirs.replication.quota.window.num
alter.log.dirs.replication.quota.window.size.seconds authorizer.class.name auto.include.jmx.reporter
background.threads broker.id client.quota.callback.class config.providers
connection.failed.authentication.delay.ms connections.max.reauth.ms controlled.shutdown.max.retries
controlled.shutdown.retry.backoff.ms controller.performance.always.log.threshold.ms
controller.performance.sample.period.ms controller.quorum.append.linger.ms controller.quota.window.num
controller.quota.window.size.seconds controller.socket.timeout.ms cordoned.log.dirs
create.topic.policy.class.name delegation.token.expiry.check.interval.ms delegation.token.expiry.time.ms
delegation.token.max.lifetime.ms delegation.token.secret.key
delete.records.purgatory.purge.interval.requests delete.topic.enable dir.failure.timeout.ms
early.start.listeners eligible.leader.replicas.enable fetch.purgatory.purge.interval.requests
follower.replication.throttled.rate group.consumer.max.heartbeat.interval.ms
group.consumer.max.session.timeout.ms group.consumer.migration.policy
group.consumer.min.heartbeat.interval.ms group.consumer.min.session.timeout.ms
group.consumer.regex.refresh.interval.ms group.coordinator.append.linger.ms group.coordinator.threads
group.share.delivery.count.limit group.share.enable group.share.heartbeat.interval.ms
group.share.max.groups group.share.max.heartbeat.interval.ms group.share.max.record.lock.duration.ms
group.share.max.session.timeout.ms group.share.max.size group.share.min.heartbeat.interval.ms
group.share.min.record.lock.duration.ms group.share.min.session.timeout.ms
group.share.partition.max.record.locks group.share.record.lock.duration.ms
group.share.session.timeout.ms kafka.metrics.polling.interval.secs kafka.metrics.reporters
leader.replication.throttled.rate log.cleaner.backoff.ms log.cleaner.dedupe.buffer.size
log.cleaner.enable log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size
log.cleaner.io.max.bytes.per.second log.cleaner.threads log.dir.failure.timeout.ms
log.flush.scheduler.interval.ms log.flush.start.offset.checkpoint.interval.ms log.initial.task.delay.ms
max.connection.creation.rate max.connections.per.ip max.connections.per.ip.overrides
max.incremental.fetch.session.cache.slots max.request.partition.size.limit
metadata.log.segment.min.bytes metric.reporters metrics.num.samples
metrics.recording.level metrics.sample.window.ms num.io.threads num.network.threads
num.recovery.threads.per.data.dir num.replica.alter.log.dirs.threads num.replica.fetchers
offsets.load.buffer.size offsets.topic.compression.codec principal.builder.class
producer.id.expiration.check.interval.ms producer.purgatory.purge.interval.requests
queued.max.request.bytes queued.max.requests quota.window.num quota.window.size.seconds
remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms remote.log.copy.disable
remote.log.delete.on.disable remote.log.index.file.cache.total.size.bytes
remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second
remote.log.manager.copy.quota.window.num remote.log.manager.copy.quota.window.size.seconds
remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second
remote.log.manager.fetch.quota.window.num remote.log.manager.fetch.quota.window.size.seconds
remote.log.manager.task.interval.ms remote.log.manager.task.retry.backoff.max.ms
remote.log.manager.task.retry.backoff.ms remote.log.manager.task.retry.jitter
remote.log.manager.thread.pool.size remote.log.metadata.consume.wait.ms
remote.log.metadata.custom.metadata.max.bytes remote.log.metadata.initialization.retry.interval.ms
remote.log.metadata.initialization.retry.max.timeout.ms remote.log.metadata.manager.class.name
remote.log.metadata.manager.class.path remote.log.metadata.manager.listener.name
remote.log.metadata.topic.num.partitions remote.log.metadata.topic.replication.factor
remote.log.metadata.topic.retention.ms remote.log.reader.max.pending.tasks remote.log.reader.threads
remote.log.storage.manager.class.name remote.log.storage.manager.class.path
remote.log.storage.system.enable replica.alter.log.dirs.io.max.bytes.per.second replica.selector.class
replica.socket.receive.buffer.bytes replication.quota.window.num replication.quota.window.size.seconds
reserved.broker.max.id sasl.client.callback.handler.class sasl.enabled.mechanisms sasl.jaas.config
sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.principal.to.local.rules
sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
sasl.login.callback.handler.class sasl.login.class sasl.login.connect.timeout.ms
sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
sasl.login.refresh.window.factor sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms
sasl.login.retry.backoff.ms sasl.mechanism sasl.mechanism.controller.protocol
sasl.mechanism.inter.broker.protocol sasl.oauthbearer.clock.skew.seconds
sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer sasl.oauthbearer.header.urlencode
sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url
sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url
sasl.server.callback.handler.class sasl.server.max.receive.size security.inter.broker.protocol
security.providers server.max.startup.time.ms share.coordinator.append.linger.ms
share.coordinator.load.buffer.size share.coordinator.snapshot.update.records.per.snapshot
share.coordinator.state.topic.compression.codec share.coordinator.state.topic.min.isr
share.coordinator.state.topic.num.partitions share.coordinator.state.topic.replication.factor
share.coordinator.state.topic.segment.bytes share.coordinator.threads share.coordinator.write.timeout.ms
share.fetch.max.fetch.records share.fetch.purgatory.purge.interval.requests socket.listen.backlog.size
socket.receive.buffer.bytes socket.send.buffer.bytes ssl.allow.dn.changes ssl.allow.san.changes
ssl.cipher.suites ssl.client.auth ssl.enabled.protocols ssl.endpoint.identification.algorithm
ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm ssl.keystore.certificate.chain
ssl.keystore.key ssl.keystore.location ssl.keystore.password ssl.keystore.type
ssl.principal.mapping.rules ssl.protocol ssl.provider ssl.secure.random.implementation
ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location ssl.truststore.password
ssl.truststore.type super.users telemetry.max.bytes
transaction.abort.timed.out.transaction.cleanup.interval.ms transaction.max.timeout.ms
transaction.partition.verification.enable transaction.remove.expired.transaction.cleanup.interval.ms
transaction.state.log.load.buffer.size transaction.state.log.min.isr
transaction.state.log.num.partitions transaction.state.log.replication.factor
transaction.state.log.segment.bytes transaction.two.phase.commit.enable transactional.id.expiration.ms
unclean.leader.election.interval.ms unstable.api.versions.enable unstable.feature.versions.enable
""".split()
)
