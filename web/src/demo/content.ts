/**
 * The document in Loro (`doc`: a map of nodeName, attributes, children).
 *
 * Reading never writes and never throws on an unexpected shape. The binding
 * creates missing containers while it reads, which must not happen to earlier
 * versions or to documents of other programs.
 */

import { LoroDoc, LoroList, LoroMap, LoroText, VersionVector, type ContainerID, type PeerID } from "loro-crdt";
import { Fragment, Mark, Node, type NodeType, type Schema } from "prosemirror-model";

const ROOT = "doc";
/** Names of authors by peer, for the history after they have left. */
export const AUTHORS = "people";

/**
 * An empty paragraph, created by the same operations of the same peer everywhere.
 * Two users who start a document concurrently, even offline, thus share its
 * containers, and their texts merge; separate containers would not.
 * These operations must never change.
 */
const SEED_PEER: PeerID = "5113970442817366021";
const SEED_OPERATIONS = 8;

export function seed(): Uint8Array {
  const doc = new LoroDoc();
  doc.setPeerId(SEED_PEER);
  const root = doc.getMap(ROOT);
  root.set("nodeName", "doc");
  root.setContainer("attributes", new LoroMap());
  const paragraph = root.setContainer("children", new LoroList()).insertContainer(0, new LoroMap());
  paragraph.set("nodeName", "paragraph");
  paragraph.setContainer("attributes", new LoroMap());
  paragraph.setContainer("children", new LoroList()).insertContainer(0, new LoroText());
  doc.commit();
  return doc.export({ mode: "update" });
}

export function isSeedPeer(peer: string): boolean {
  return peer === SEED_PEER;
}

export function hasSeed(doc: LoroDoc): boolean {
  return (doc.version().get(SEED_PEER) ?? 0) > 0;
}

/** True if the document has a text that does not build on the seed, from another program. */
export function begunElsewhere(doc: LoroDoc): boolean {
  const others = new LoroDoc();
  others.import(doc.export({ mode: "update", from: new VersionVector(new Map([[SEED_PEER, SEED_OPERATIONS]])) }));
  return hasContent(others);
}

/** True if an editor has started this document. */
export function hasContent(doc: LoroDoc): boolean {
  return doc.getMap(ROOT).get("nodeName") !== undefined;
}

/** Roots of other programs, which the editor does not show. */
export function otherRoots(doc: LoroDoc): string[] {
  return Object.keys(doc.getShallowValue()).filter((name) => name !== ROOT && name !== AUTHORS).sort();
}

/** The document's nodes; nodes that do not fit the schema are omitted. */
export function read(schema: Schema, doc: LoroDoc): Node {
  const type = schema.topNodeType;
  return type.createAndFill(null, fitting(type, childrenOf(schema, doc.getMap(ROOT)))) ?? (type.createAndFill() as Node);
}

/** Plain text, with an empty line between blocks. */
export function plainText(node: Node): string {
  return node.textBetween(0, node.content.size, "\n\n", "\n").trim();
}

/** The children that the schema allows there, with required ones before them. */
function fitting(type: NodeType, children: readonly Node[]): Node[] {
  const result: Node[] = [];
  let match = type.contentMatch;
  for (const child of children) {
    const before = match.fillBefore(Fragment.from(child));
    const found = before && match.matchFragment(before)?.matchType(child.type);
    if (!found || !type.allowsMarks(child.marks)) continue;
    result.push(...before.content, child);
    match = found;
  }
  return result;
}

/**
 * An empty block gets its (empty) text at once. The binding creates a text with
 * the first letter; two users who start in the same empty block would create
 * two, and its repair duplicates what they wrote.
 */
export function makeRoom(doc: LoroDoc, block: ContainerID): boolean {
  const map = doc.getContainerById(block);
  const list = map instanceof LoroMap ? map.get("children") : undefined;
  if (!(list instanceof LoroList) || list.length > 0) return false;
  list.insertContainer(0, new LoroText());
  return true;
}

function childrenOf(schema: Schema, map: LoroMap): Node[] {
  const list = map.get("children");
  if (!(list instanceof LoroList)) return [];
  return list.toArray().flatMap((child) => {
    if (child instanceof LoroText) return textOf(schema, child);
    if (child instanceof LoroMap) return nodeOf(schema, child);
    return [];
  });
}

function nodeOf(schema: Schema, map: LoroMap): Node[] {
  const name = map.get("nodeName");
  const type = typeof name === "string" ? schema.nodes[name] : undefined;
  if (!type || type.isText) return [];
  const attributes = map.get("attributes");
  const children = childrenOf(schema, map);
  const values = attributes instanceof LoroMap ? (attributes.toJSON() as Record<string, unknown>) : {};
  try {
    const node = type.createAndFill(values, fitting(type, children));
    return node ? [node] : [];
  } catch {
    return [];
  }
}

function textOf(schema: Schema, text: LoroText): Node[] {
  return text.toDelta().flatMap((part) => {
    if (!part.insert) return [];
    const marks: Mark[] = Object.keys(part.attributes ?? {}).flatMap((name) => {
      const type = schema.marks[name];
      return type && part.attributes?.[name] ? [type.create()] : [];
    });
    return [schema.text(part.insert, Mark.setFrom(marks))];
  });
}
