// The client of a peer, which also looks whether all who have a document have the same text: once, when the
// first of them leaves, which is after the measurement. Says it in a line of its own, workload "check".
import { PEERS } from '../peers.mjs'

const [peer, workload] = process.argv.slice(2)
const real = await import(`./${PEERS[peer].checks}.mjs`)
const settles = ['w1', 'w2', 'w3', 'w4', 'w4k'].includes(workload) // the others end with some who are behind
const held = new Map() // document -> its name
let looked = !settles

export const hasAck = real.hasAck
export const multiplexes = real.multiplexes
export const createsNames = real.createsNames

export class Group extends real.Group {
  async create (name) { return keep(await super.create(name), name) }
  async open (name) { return keep(await super.open(name), name) }
  close () { look(); super.close() }
}

function keep (document, name) {
  held.set(document, document.name ?? name)
  return document
}

function look () {
  if (looked) return
  looked = true
  const texts = new Map() // name -> text -> how many have it
  for (const [document, name] of held) {
    const found = texts.get(name) ?? texts.set(name, new Map()).get(name)
    const text = document.string()
    found.set(text, (found.get(text) ?? 0) + 1)
  }
  const differ = [...texts.values()].filter(found => found.size > 1).length
  const characters = [...texts.values()].reduce((sum, found) => sum + [...found.keys()][0].length, 0)
  console.log(JSON.stringify({ peer, workload: 'check', of: workload, documents: texts.size, copies: held.size, differ, characters }))
  real.tell?.(peer, workload)
}
