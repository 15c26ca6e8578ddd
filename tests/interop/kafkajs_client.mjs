// kafkajs against a running cluster: node kafkajs_client.mjs BOOTSTRAP TOPIC GROUP
// Prints one JSON object with its results; exits 1 on any error.
import kafkajs from 'kafkajs'

const { CompressionTypes, Kafka, logLevel } = kafkajs
const [bootstrap, topic, groupId] = process.argv.slice(2)
const RECORDS = 60
const kafka = new Kafka({ clientId: 'kafkajs', brokers: bootstrap.split(','), logLevel: logLevel.ERROR })
const seen = {}

async function main () {
  const admin = kafka.admin()
  await admin.connect()
  seen.brokers = (await admin.describeCluster()).brokers.map(broker => broker.nodeId).sort()
  seen.created = await admin.createTopics({
    waitForLeaders: true,
    topics: [{ topic, numPartitions: 4, replicationFactor: 3 }]
  })

  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  for (const [start, compression] of [[0, CompressionTypes.None], [RECORDS / 2, CompressionTypes.GZIP]]) {
    const messages = Array.from({ length: RECORDS / 2 }, (_, n) => ({
      key: `k${start + n}`, value: `v${start + n}`, headers: { n: `${start + n}` }
    }))
    await producer.send({ topic, acks: -1, compression, messages })
  }
  await producer.disconnect()

  const values = new Set()
  const assigned = new Map()
  const consumers = ['a', 'b'].map(() => kafka.consumer({
    groupId, sessionTimeout: 6000, heartbeatInterval: 300, maxWaitTimeInMs: 100
  }))
  const balanced = new Promise(resolve => {
    consumers.forEach((consumer, index) => consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      assigned.set(index, (payload.memberAssignment[topic] ?? []).length)
      if (assigned.size === 2 && [...assigned.values()].every(count => count === 2)) resolve()
    }))
  })
  let all
  const consumed = new Promise(resolve => { all = resolve })
  await Promise.all(consumers.map(async consumer => {
    await consumer.connect()
    await consumer.subscribe({ topic, fromBeginning: true })
    await consumer.run({
      eachMessage: async ({ message }) => {
        if (message.headers.n.toString() === message.value.toString().slice(1)) values.add(message.value.toString())
        if (values.size === RECORDS) all()
      }
    })
  }))
  await Promise.all([balanced, consumed])
  seen.values = values.size
  seen.members = (await admin.describeGroups([groupId])).groups[0].members.length
  // Disconnecting commits what was processed.
  for (const consumer of consumers) await consumer.disconnect()
  const offsets = await admin.fetchOffsets({ groupId, topics: [topic] })
  seen.committed = offsets[0].partitions.reduce((sum, item) => sum + Math.max(0, Number(item.offset)), 0)
  await admin.deleteGroups([groupId])
  seen.latest = (await admin.fetchTopicOffsets(topic)).reduce((sum, item) => sum + Number(item.offset), 0)
  await admin.deleteTopics({ topics: [topic] })
  await admin.disconnect()
  console.log(JSON.stringify(seen))
}

main().then(() => process.exit(0), error => {
  console.error(JSON.stringify(seen), error)
  process.exit(1)
})
