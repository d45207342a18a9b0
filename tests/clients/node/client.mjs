// A task submitted as JSON and received with @platformatic/kafka. Arguments: BOOTSTRAP TASKS CALLBACKS GROUP
import {
  compatibilityPartitioner, Consumer, FetchIsolationLevels, MessagesStreamModes, Producer, stringSerializers
} from '@platformatic/kafka'

const [bootstrap, tasks, callbacks, group] = process.argv.slice(2)
const bootstrapBrokers = bootstrap.split(',')

async function submit () {
  // begin snippet submit
  // compatibilityPartitioner: the partitions that Java's producer chooses (this client's default chooses others),
  // so that all commands of a task stay in order.
  const producer = new Producer({
    clientId: 'shop', bootstrapBrokers, serializers: stringSerializers, partitioner: compatibilityPartitioner
  })
  const command = {
    task_id: 'node-1',
    topic: callbacks,
    due_at: Date.now() + 1000, // or new Date(…).toISOString()
    value: JSON.stringify({ order: 4711, note: 'Grüße from Node.js' }),
    headers: { 'content-type': 'application/json' }
  }
  await producer.send({ messages: [{ topic: tasks, key: 'order-4711', value: JSON.stringify(command) }] })
  await producer.close()
  // end snippet
}

async function consume () {
  // begin snippet consume
  const consumer = new Consumer({
    clientId: 'shop', groupId: group, bootstrapBrokers, isolationLevel: FetchIsolationLevels.READ_COMMITTED
  })
  const stream = await consumer.consume({
    topics: [callbacks],
    mode: MessagesStreamModes.COMMITTED,
    fallbackMode: MessagesStreamModes.EARLIEST,
    autocommit: false
  })
  for await (const message of stream) {
    show(message) // your work
    await message.commit() // only when it is done
    break
  }
  await consumer.close(true)
  // end snippet
}

function show ({ partition, key, value, headers }) {
  const base64 = bytes => bytes?.toString('base64') ?? null
  const pairs = [...headers].map(([name, bytes]) => [name.toString(), base64(bytes)])
  console.log(JSON.stringify({ partition, key: base64(key), value: base64(value), headers: pairs }))
}

await submit()
await consume()
