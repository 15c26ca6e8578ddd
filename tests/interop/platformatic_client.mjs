// @platformatic/kafka against a running cluster: node platformatic_client.mjs BOOTSTRAP TOPIC GROUP PROTOCOL
// Prints one JSON object with its results; exits 1 on any error.
import { Admin, Consumer, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'

const [bootstrap, topic, groupId, groupProtocol] = process.argv.slice(2)
const RECORDS = 60
const base = { clientId: 'platformatic', bootstrapBrokers: bootstrap.split(','), retries: 5, retryDelay: 100 }
const seen = {}

async function main () {
  const admin = new Admin(base)
  seen.created = (await admin.createTopics({ topics: [topic], partitions: 4, replicas: 3 }))[0].name
  const metadata = await admin.metadata({ topics: [topic] })
  seen.brokers = [...metadata.brokers.keys()].sort()
  seen.partitions = metadata.topics.get(topic).partitions.length

  const producer = new Producer({ ...base, idempotent: true, serializers: stringSerializers })
  for (const compression of ['none', 'gzip']) {
    const start = compression === 'none' ? 0 : RECORDS / 2
    const messages = Array.from({ length: RECORDS / 2 }, (_, n) => ({
      topic, key: `k${start + n}`, value: `v${start + n}`, headers: { n: `${start + n}` }
    }))
    await producer.send({ messages, acks: -1, compression })
  }
  await producer.close()

  const consumer = new Consumer({
    ...base,
    groupId,
    groupProtocol,
    maxWaitTime: 100,
    deserializers: stringDeserializers,
    ...(groupProtocol === 'classic' ? { sessionTimeout: 6000, heartbeatInterval: 300 } : {})
  })
  const stream = await consumer.consume({ topics: [topic], mode: 'earliest', autocommit: false })
  const values = new Set()
  const ends = [0n, 0n, 0n, 0n]
  for await (const message of stream) {
    if (message.headers.get('n') === message.value.slice(1)) values.add(message.value)
    ends[message.partition] = message.offset + 1n
    if (values.size === RECORDS) break
  }
  seen.values = values.size
  await consumer.commit({
    offsets: ends.map((offset, partition) => ({ topic, partition, offset, leaderEpoch: 0 }))
  })
  const committed = await consumer.listCommittedOffsets({ topics: [{ topic, partitions: [0, 1, 2, 3] }] })
  seen.committed = Number(committed.get(topic).reduce((sum, offset) => sum + offset, 0n))
  const latest = await consumer.listOffsets({ topics: [topic], timestamp: -1n })
  seen.latest = Number(latest.get(topic).reduce((sum, offset) => sum + offset, 0n))
  seen.listed = (await admin.listGroups({ types: [groupProtocol] })).has(groupId)
  await consumer.close(true)
  await admin.deleteTopics({ topics: [topic] })
  await admin.close()
  console.log(JSON.stringify(seen))
}

main().then(() => process.exit(0), error => {
  console.error(JSON.stringify(seen), error, error.errors)
  process.exit(1)
})
