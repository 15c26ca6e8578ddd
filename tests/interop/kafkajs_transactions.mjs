// Transactions of kafkajs on a running cluster: node kafkajs_transactions.mjs BOOTSTRAP SOURCE SINK
// Both topics have one partition. Prints one JSON object with its results; exits 1 on any error.
import kafkajs from 'kafkajs'

const { Kafka, logLevel } = kafkajs
const [bootstrap, source, sink] = process.argv.slice(2)
const kafka = new Kafka({ clientId: 'kafkajs', brokers: bootstrap.split(','), logLevel: logLevel.NOTHING })
const seen = {}

async function makeProducer (transactionalId) {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1, transactionalId })
  await producer.connect()
  return producer
}

const one = (topic, value) => ({ topic, messages: [{ partition: 0, value }] })

// All values of a topic up to the one that was written last.
async function read (topic, last, readUncommitted) {
  const consumer = kafka.consumer({ groupId: `${topic}-${last}-${readUncommitted}`, readUncommitted, maxWaitTimeInMs: 100 })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const values = []
  await new Promise(resolve => consumer.run({
    eachMessage: async ({ message }) => {
      values.push(message.value.toString())
      if (message.value.toString() === last) resolve()
    }
  }))
  await consumer.disconnect()
  return values
}

async function commitsAndAborts () {
  const producer = await makeProducer(source)
  for (let number = 0; number < 5; number++) {
    const transaction = await producer.transaction()
    await transaction.send(one(source, `${number}`))
    await (number % 2 ? transaction.abort() : transaction.commit())
  }
  await producer.disconnect()
  seen.committed = await read(source, '4', false)
  seen.everything = await read(source, '4', true)
}

async function readsProcessesAndWrites () {
  const groupId = `${sink}-group`
  const admin = kafka.admin()
  await admin.connect()
  const producer = await makeProducer(groupId)
  const consumer = kafka.consumer({ groupId, maxWaitTimeInMs: 100 })
  await consumer.connect()
  await consumer.subscribe({ topic: source, fromBeginning: true })
  const position = Promise.withResolvers()
  const values = []
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ message }) => {
      values.push(message.value.toString())
      if (values.at(-1) === '4') position.resolve(Number(message.offset) + 1)
    }
  })
  const end = await position.promise
  seen.offsets = []
  for (const commits of [false, true]) {
    const transaction = await producer.transaction()
    for (const value of values) await transaction.send(one(sink, `${value} ${commits}`))
    await transaction.sendOffsets({
      consumerGroupId: groupId, topics: [{ topic: source, partitions: [{ partition: 0, offset: `${end}` }] }]
    })
    await (commits ? transaction.commit() : transaction.abort())
    // A new transaction begins when the markers of the one before are written.
    const next = await producer.transaction()
    await next.send(one(sink, `after ${commits}`))
    await next.commit()
    const [{ partitions }] = await admin.fetchOffsets({ groupId, topics: [source] })
    seen.offsets.push(Number(partitions[0].offset) === end)
  }
  await consumer.disconnect()
  await producer.disconnect()
  await admin.disconnect()
  seen.processed = await read(sink, 'after true', false)
}

async function fences () {
  const [old, young] = [await makeProducer('fenced'), await makeProducer('fenced')]
  const left = await old.transaction()
  await left.send(one(sink, 'old'))
  const transaction = await young.transaction()
  await transaction.send(one(sink, 'new'))
  await transaction.commit()
  seen.fenced = await left.commit().then(() => 'it committed', error => error.type)
  await Promise.all([old.disconnect(), young.disconnect()])
  seen.left = (await read(sink, 'new', false)).slice(-2)
}

async function main () {
  await commitsAndAborts()
  await readsProcessesAndWrites()
  await fences()
  console.log(JSON.stringify(seen))
}

main().then(() => process.exit(0), error => {
  console.error(JSON.stringify(seen), error)
  process.exit(1)
})
