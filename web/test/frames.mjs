// Prints frames as the npm package encodes them, as JSON: the vectors of tests/gateway/frames/test_frame.py.
//   node test/frames.mjs > ../tests/gateway/frames.json
import { CrdtType, MessageType, encode } from "loro-protocol";

const bytes = (length, seed = 7) => Uint8Array.from({ length }, (_, i) => (i * 31 + seed) & 255);
const batchId = "0x0123456789abcdef";
const rooms = ["a", "minutes-2026-11", "é中🙂", "x".repeat(128), ""];
const bodies = [
  { type: MessageType.JoinRequest, auth: bytes(0), version: bytes(0) },
  { type: MessageType.JoinRequest, auth: bytes(5), version: bytes(200) },
  { type: MessageType.JoinResponseOk, permission: "write", version: bytes(3) },
  { type: MessageType.JoinResponseOk, permission: "read", version: bytes(0), extra: bytes(130) },
  { type: MessageType.JoinError, code: 0, message: "no" },
  { type: MessageType.JoinError, code: 1, message: "which?", receiverVersion: bytes(9) },
  { type: MessageType.JoinError, code: 1, message: "which?" },
  { type: MessageType.JoinError, code: 2, message: "wer bist du, ö?" },
  { type: MessageType.JoinError, code: 127, message: "gone", appCode: "deleted" },
  { type: MessageType.DocUpdate, updates: [bytes(10)], batchId },
  { type: MessageType.DocUpdate, updates: [bytes(0), bytes(127), bytes(128), bytes(300)], batchId },
  { type: MessageType.DocUpdate, updates: [], batchId },
  { type: MessageType.DocUpdateFragmentHeader, batchId, fragmentCount: 300, totalSizeBytes: 67108864 },
  { type: MessageType.DocUpdateFragmentHeader, batchId, fragmentCount: 1, totalSizeBytes: 4294967295 },
  { type: MessageType.DocUpdateFragment, batchId, index: 0, fragment: bytes(16) },
  { type: MessageType.DocUpdateFragment, batchId, index: 299, fragment: bytes(1000) },
  { type: MessageType.RoomError, code: 1, message: "again, please" },
  { type: MessageType.RoomError, code: 2, message: "" },
  { type: MessageType.RoomError, code: 127, message: "?" },
  { type: MessageType.Leave },
  ...[0, 1, 3, 4, 5, 6, 7, 127].map((status) => ({ type: MessageType.Ack, refId: batchId, status })),
];

const hex = (value) => Buffer.from(value).toString("hex");
const plain = (value) =>
  value instanceof Uint8Array ? { hex: hex(value) } : Array.isArray(value) ? value.map(plain) : value;
const vectors = [];
for (const [i, body] of bodies.entries()) {
  const crdts = i === 0 || i === 9 ? Object.values(CrdtType) : [CrdtType.Loro];
  for (const crdt of crdts) {
    const message = { crdt, roomId: rooms[vectors.length % rooms.length], ...body };
    const fields = Object.fromEntries(Object.entries(message).map(([name, value]) => [name, plain(value)]));
    vectors.push({ message: fields, frame: hex(encode(message)) });
  }
}
console.log(JSON.stringify(vectors));
