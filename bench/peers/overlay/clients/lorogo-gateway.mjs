// The same loro-websocket client as the peer loro-websocket has (loro.mjs). The gateway takes 64 rooms on one
// connection, so who opens more has more connections.
import * as loro from './loro.mjs'

const ROOMS_MAX = 64

export const hasAck = loro.hasAck
export const multiplexes = loro.multiplexes

export class Group {
  constructor (url) {
    this.url = url
    this.connections = [{ group: new loro.Group(url), rooms: 0 }]
  }

  async open (name) {
    let last = this.connections.at(-1)
    if (last.rooms === ROOMS_MAX) this.connections.push(last = { group: new loro.Group(this.url), rooms: 0 })
    last.rooms++
    return last.group.open(name)
  }

  create (name) { return this.open(name) }
  close () { for (const { group } of this.connections) group.close() }
}
