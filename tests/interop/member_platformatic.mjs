// Group members of @platformatic/kafka: node member_platformatic.mjs (orders and events: member_program.py)
import { Consumer, stringDeserializers } from '@platformatic/kafka'
import { createInterface } from 'node:readline'

const members = new Map()

function say (member, what) {
  process.stdout.write(JSON.stringify({ member, ...what }) + '\n')
}

async function start (order) {
  const name = order.start
  const consumer = new Consumer({
    clientId: name,
    bootstrapBrokers: order.servers.split(','),
    groupId: order.group,
    groupProtocol: order.protocol,
    ...(order.instance === null ? {} : { groupInstanceId: order.instance }),
    ...(order.protocol === 'classic' ? { sessionTimeout: order.session_ms, heartbeatInterval: 500 } : {}),
    maxWaitTime: 300,
    metadataMaxAge: 1000,
    retries: 2000,
    retryDelay: 100,
    deserializers: stringDeserializers
  })
  members.set(name, consumer)
  let owned = []
  function look (what) {
    const now = (consumer.assignments ?? []).filter(item => item.topic === order.topic)
      .flatMap(item => item.partitions).sort((a, b) => a - b)
    if (what === undefined && now.join() === owned.join()) return
    owned = now
    say(name, { what: what ?? 'assigned', owned })
  }
  // Members of the consumer protocol have no event for their partitions.
  if (order.protocol === 'classic') consumer.on('consumer:group:join', () => look('assigned'))
  else setInterval(look, 50).unref()
  consumer.on('consumer:group:rebalance', () => { owned = []; say(name, { what: 'revoked', owned }) })
  consumer.on('error', error => say(name, { note: String(error) }))
  let waiting = []
  let committing = false
  const committed = new Map()
  // A stream that is opened anew may read again what has been committed since it asked: that moves nothing back.
  async function commit () {
    if (committing || waiting.length === 0) return
    say(name, { got: waiting })
    const ends = new Map()
    for (const [partition, offset] of waiting) {
      if (offset >= Math.max(ends.get(partition) ?? 0, committed.get(partition) ?? 0)) ends.set(partition, offset + 1)
    }
    waiting = []
    if (ends.size === 0) return
    committing = true
    try {
      await consumer.commit({
        offsets: [...ends].map(([partition, end]) => ({ topic: order.topic, partition, offset: BigInt(end), leaderEpoch: 0 }))
      })
      for (const [partition, end] of ends) committed.set(partition, end)
      say(name, { committed: [...ends] })
    } catch (error) {
      say(name, { note: String(error) })
    }
    committing = false
    setImmediate(commit)
  }
  // A stream ends when a leader leaves the metadata. Its application opens another one; the topic stays
  // tracked meanwhile, so that the member neither unsubscribes nor joins again.
  async function read () {
    try {
      const stream = await consumer.consume({
        topics: [order.topic], mode: 'committed', fallbackMode: 'earliest', autocommit: false
      })
      stream.on('error', error => {
        if (members.get(name) !== consumer) return
        say(name, { note: `stream: ${error}` })
        setTimeout(read, 100)
      })
      stream.on('data', message => {
        waiting.push([message.partition, Number(message.offset)])
        setImmediate(commit)
      })
    } catch (error) {
      say(name, { note: `consume: ${error}` })
      setTimeout(read, 100)
    }
  }
  await read()
  consumer.topics.track(order.topic)
}

async function stop (name) {
  const consumer = members.get(name)
  members.delete(name)
  await consumer.close(true)
  say(name, { stopped: true })
}

createInterface({ input: process.stdin }).on('line', line => {
  const order = JSON.parse(line)
  const name = order.stop ?? order.start
  const done = order.stop === undefined
    ? start(order)
    : stop(name)
  done.catch(error => say(name, { error: String(error.stack ?? error) + String(error.errors ?? '') }))
}).on('close', () => process.exit(0))
