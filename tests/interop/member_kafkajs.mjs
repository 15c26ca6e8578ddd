// Group members of kafkajs: node member_kafkajs.mjs (orders and events: member_program.py)
import kafkajs from 'kafkajs'
import { createInterface } from 'node:readline'

const { Kafka, logLevel } = kafkajs
const members = new Map()

function say (member, what) {
  process.stdout.write(JSON.stringify({ member, ...what }) + '\n')
}

async function start (order) {
  const name = order.start
  const kafka = new Kafka({
    clientId: name,
    brokers: order.servers.split(','),
    logLevel: logLevel.NOTHING,
    // A commit goes to the coordinator of the latest join, however often: only a new join finds the new one.
    retry: { initialRetryTime: 100, maxRetryTime: 1000, retries: 5, restartOnFailure: async () => true }
  })
  const consumer = kafka.consumer({
    groupId: order.group, sessionTimeout: order.session_ms, heartbeatInterval: 500, maxWaitTimeInMs: 300
  })
  members.set(name, consumer)
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    say(name, { what: 'assigned', owned: [...(payload.memberAssignment[order.topic] ?? [])].sort((a, b) => a - b) })
  })
  consumer.on(consumer.events.REBALANCING, () => say(name, { what: 'revoked', owned: [] }))
  consumer.on(consumer.events.CRASH, ({ payload }) => say(name, { note: `crash: ${payload.error}` }))
  await consumer.connect()
  await consumer.subscribe({ topic: order.topic, fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch, isStale, isRunning }) => {
      if (isStale() || !isRunning()) return
      say(name, { got: batch.messages.map(message => [batch.partition, Number(message.offset)]) })
      const end = Number(batch.lastOffset()) + 1
      try {
        await consumer.commitOffsets([{ topic: order.topic, partition: batch.partition, offset: `${end}` }])
        say(name, { committed: [[batch.partition, end]] })
      } catch (error) {
        say(name, { note: `commit: ${error}` })
        throw error // so that it joins again
      }
    }
  })
}

createInterface({ input: process.stdin }).on('line', line => {
  const order = JSON.parse(line)
  const name = order.stop ?? order.start
  const done = order.stop === undefined
    ? start(order)
    : members.get(name).disconnect().then(() => say(name, { stopped: true }))
  done.catch(error => say(name, { error: String(error.stack ?? error) }))
}).on('close', () => process.exit(0))
