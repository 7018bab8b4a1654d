// lorogo_client, which is Python: native_client.py, one process for all groups of this driver, as the other clients
// are all in the driver. Lines of JSON go both ways; what the driver asks without waiting (length, acked) is kept here.
import { spawn } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'

export const hasAck = true
export const multiplexes = true

const ANSWER_MS = 20000
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'lorogo-native-'))
const child = spawn(process.env.LOROGO_PYTHON, [`${process.env.LOROGO_PEERS}/native_client.py`], { stdio: ['pipe', 'pipe', 'inherit'] })
process.on('exit', () => fs.rmSync(folder, { recursive: true, force: true })) // and its stdin ends, so it does, too

// ---------- what we say: at once when the driver's turn ends, and whole, as a full pipe is waited for
const nap = new Int32Array(new SharedArrayBuffer(4))
const wait = ms => Atomics.wait(nap, 0, 0, ms)
const stdin = child.stdin._handle.fd
let words = []
let saidBytes = 0
let doneBytes = 0
function say (...message) {
  if (words.length === 0) queueMicrotask(flush)
  words.push(JSON.stringify(message) + '\n')
}
function flush () {
  let left = Buffer.from(words.join(''))
  words = []
  saidBytes += left.length
  while (left.length > 0) {
    try {
      left = left.subarray(fs.writeSync(stdin, left))
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error
      wait(0.2)
    }
  }
}
let questions = 0
function ask (...message) { // and wait for the answer, which comes as a file
  const file = path.join(folder, String(++questions))
  say(...message, file)
  flush()
  const end = performance.now() + ANSWER_MS
  while (!fs.existsSync(file)) {
    if (performance.now() > end) throw new Error(`no answer to ${message[0]}`)
    wait(0.2)
  }
  const answer = fs.readFileSync(file, 'utf8')
  fs.unlinkSync(file)
  return answer
}

// ---------- what we hear
const documents = []
let started
const ready = new Promise((resolve, reject) => {
  started = resolve
  child.on('exit', code => reject(new Error(`native_client.py ended with ${code}`)))
})
const hears = {
  ready: () => started(),
  done: bytes => { doneBytes = bytes },
  opened: (id, length) => { documents[id].known = length; documents[id].opened() },
  failed: (id, why) => documents[id].failed(new Error(why)),
  length: (id, length) => {
    const document = documents[id]
    document.known = length
    if (document.cb) document.cb(document)
  },
  acked: (id, count) => { documents[id].ackedN = count }
}
let rest = ''
child.stdout.setEncoding('utf8')
child.stdout.on('data', data => {
  const lines = (rest + data).split('\n')
  rest = lines.pop()
  for (const line of lines) { const [kind, ...facts] = JSON.parse(line); hears[kind](...facts) }
})
await ready

// ---------- the client's CPU is the driver's, as it is with the other clients
const own = process.cpuUsage.bind(process)
process.cpuUsage = before => {
  const { user, system } = own()
  let ticks = ['0', '0']
  try { ticks = fs.readFileSync(`/proc/${child.pid}/stat`, 'utf8').split(') ')[1].split(' ').slice(11, 13) } catch {}
  return {
    user: user + ticks[0] * 1e4 - (before?.user ?? 0),
    system: system + ticks[1] * 1e4 - (before?.system ?? 0)
  }
}

let groups = 0
export class Group {
  constructor (url) {
    this.id = groups++
    say('connect', this.id, url.replace('ws://', 'nats://'))
  }

  async open (name) {
    const document = new DocClient(name)
    await new Promise((resolve, reject) => {
      document.opened = resolve
      document.failed = reject
      say('open', this.id, document.id, name)
    })
    return document
  }

  create (name) { return this.open(name) }
  close () { say('close', this.id); flush() }
}

class DocClient {
  constructor (name) {
    this.name = name
    this.id = documents.push(this) - 1
    this.known = 0 // characters, as far as we were told
    this.sent = 0
    this.ackedN = 0
    this.tracked = false
    this.cb = null
  }

  append (s) { this.known += s.length; this.sent++; say('append', this.id, s) }
  batch (edits) {
    for (const [, deleted, inserted] of edits) this.known += inserted.length - deleted
    this.sent++
    say('batch', this.id, edits)
  }

  length () { return this.known }
  string () { return ask('text', this.id) }
  set trackAck (_) { this.track() }
  acked () { this.track(); return this.ackedN }
  track () {
    if (!this.tracked) say('track', this.id)
    this.tracked = true
  }

  buffered () { return saidBytes - doneBytes }
}

// What the client itself measured, without the way between the driver and it.
export function tell (peer, workload) {
  console.log(JSON.stringify({ peer, workload: 'inside', of: workload, ...JSON.parse(ask('times')) }))
}
