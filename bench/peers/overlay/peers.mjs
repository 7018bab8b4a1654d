// The harness's own peers (others.mjs), lorogo beside them, and each with a client that looks at its texts.
import { PEERS as OTHERS } from './others.mjs'

const server = [process.env.LOROGO_PYTHON, `${process.env.LOROGO_PEERS}/server.py`]
// settleMs: what is ACKed is on disk, and the streams of NATS never rest, as leases are renewed in them
const gateway = { client: 'lorogo-gateway', cmd: server, path: '/ws', ackFirst: true, settleMs: 1 }
const native = { client: 'lorogo-native', cmd: server, ackFirst: true, settleMs: 1 }
const ours = {
  'lorogo-gateway': { ...gateway, env: { ENTRY: 'gateway', DURABILITY: 'journal' } },
  'lorogo-gateway-stream': { ...gateway, env: { ENTRY: 'gateway', DURABILITY: 'stream' } },
  'lorogo-native': { ...native, env: { ENTRY: 'nats', DURABILITY: 'journal' } },
  'lorogo-native-stream': { ...native, env: { ENTRY: 'nats', DURABILITY: 'stream' } }
}

export const PEERS = Object.fromEntries(
  Object.entries({ ...OTHERS, ...ours }).map(([name, peer]) => [name, { ...peer, client: 'checked', checks: peer.client }])
)
