/** The editor: ProseMirror bound to a LoroDoc, with the cursors of others. */

import type { ContainerID, LoroDoc } from "loro-crdt";
import {
  LoroEphemeralCursorPlugin, LoroSyncPlugin, LoroUndoPlugin, loroSyncPluginKey, loroUndoPluginKey, type LoroDocType,
} from "loro-prosemirror";
import { baseKeymap } from "prosemirror-commands";
import { keymap } from "prosemirror-keymap";
import { Slice, type Node } from "prosemirror-model";
import { EditorState, TextSelection, type Plugin, type Selection, type Transaction } from "prosemirror-state";
import { DecorationSet, EditorView } from "prosemirror-view";
import { h } from "../common/dom";
import { keys, rules } from "./commands";
import { read } from "./content";
import type { Presence } from "./presence";
import { schema } from "./schema";

const FROM_OTHERS = "non-local-updates";
const CARETS_MAX = 500;

export interface EditorOptions {
  readonly place: HTMLElement;
  readonly doc: LoroDoc;
  readonly presence: Presence;
  readonly editable: () => boolean;
  /** After every change of text or selection; `own` is true for the reader's edits. */
  readonly changed: (view: EditorView, own: boolean) => void;
  /** The reader's edit left these blocks empty. */
  readonly emptied: (blocks: ContainerID[]) => void;
}

export function createEditor({ place, doc, presence, editable, changed, emptied }: EditorOptions): EditorView {
  let lost = false; // the selection was inside a range that others replaced, and was not set since
  let recovering = false;
  /** The document is authoritative: show it, and let the binding map it again. */
  const recover = (): void => {
    recovering = true;
    queueMicrotask(() => {
      if (!view.isDestroyed) {
        loroSyncPluginKey.getState(view.state)?.mapping.clear();
        view.dispatch(become(view.state, read(schema, doc)).setMeta(loroSyncPluginKey, { type: FROM_OTHERS }));
      }
      recovering = false;
    });
  };
  const view: EditorView = new EditorView(place, {
    // The text is visible at once; the binding takes over in the next turn.
    state: EditorState.create({
      doc: read(schema, doc),
      plugins: [
        rules(),
        keymap(keys()),
        keymap(baseKeymap),
        sync(doc as LoroDocType, () => lost),
        LoroUndoPlugin({ doc }),
        cursors(presence),
      ],
    }),
    editable,
    attributes: {
      id: "editor", "data-testid": "editor", class: "prose", role: "textbox",
      "aria-multiline": "true", "aria-label": "Document text", spellcheck: "true",
    },
    dispatchTransaction(transaction) {
      const small = fromOthers(transaction) && !isUndoing(view.state) ? smallest(view.state, transaction) : transaction;
      if (small !== transaction) lost = selectionLost(view.state, small);
      else if (transaction.docChanged || transaction.selectionSet) lost = false;
      // While state is computed the binding may "repair" a cursor into our entry: presence.ts
      let state: EditorState;
      try {
        state = presence.hold(() => view.state.apply(small));
      } catch (error) {
        console.error("the edit could not be bound to the document; showing the document", error);
        if (!recovering) recover();
        return;
      }
      view.updateState(state);
      const own = small.docChanged && !isSync(small);
      if (own) emptied(emptyBlocks(small, state));
      changed(view, own);
    },
  });
  return view;
}

/**
 * The binding with one change: after a remote edit it restores the selection with a timer. Keys typed before
 * that have moved it, and the next key would land before them: words come out backwards when two users type
 * at one place. `smallest` keeps the selection, so the timer counts only where that failed.
 */
function sync(doc: LoroDocType, lost: () => boolean): Plugin {
  const plugin = LoroSyncPlugin({ doc });
  const begin = plugin.spec.view;
  plugin.spec.view = (view) => begin?.call(plugin, Object.create(view, {
    dispatch: {
      value: (transaction: Transaction) => {
        const ofSelection = !transaction.docChanged && !transaction.getMeta(loroSyncPluginKey);
        if (!ofSelection || lost()) view.dispatch(transaction);
      },
    },
  }) as EditorView) ?? {};
  return plugin;
}

/**
 * The cursors of others; in code blocks, none at the user's own position. Chromium types in front of a newline
 * before a non-editable element, which would swap lines.
 */
function cursors(presence: Presence): Plugin {
  const plugin = LoroEphemeralCursorPlugin(presence, {
    getSelection: (state) => inText(state.selection),
    createCursor: (peer) => caret(presence, peer),
    createSelection: (peer) => ({ class: "their-selection", style: `--who: ${presence.person(peer).color}` }),
  });
  plugin.props.decorations = (state) => {
    const all = plugin.getState(state) as DecorationSet;
    const { empty, head, $head } = state.selection;
    if (!empty || !$head.parent.type.spec.code) return all;
    return all.remove(all.find(head, head).filter(({ from, to }) => from === to));
  };
  return plugin;
}

/**
 * The selection with both ends in text. A Loro cursor needs a text: a selection of the whole document or of a rule
 * ends between blocks, and other users would see neither selection nor caret.
 */
export function inText(selection: Selection): Selection {
  const { $anchor, $head } = selection;
  return $anchor.parent.inlineContent && $head.parent.inlineContent ? selection : TextSelection.between($anchor, $head);
}

export function isEmpty(node: Node): boolean {
  const only = node.childCount === 1 ? node.firstChild : null;
  return node.childCount === 0 || (only?.type === schema.nodes.paragraph && only.content.size === 0);
}

/**
 * The binding replaces the whole document for every remote edit, which moves
 * the user's selection to its end until a timer restores it. Only the part
 * that differs is replaced here, so the selection stays.
 */
function smallest(state: EditorState, transaction: Transaction): Transaction {
  const result = become(state, transaction.doc);
  const { selection } = state;
  // Remote inserts at our caret go behind it; otherwise the letters of two users would mix.
  if (result.docChanged && selection instanceof TextSelection && selection.empty) {
    const at = result.doc.resolve(result.mapping.map(selection.head, -1));
    if (at.parent.inlineContent) result.setSelection(new TextSelection(at));
  }
  return result.setMeta(loroSyncPluginKey, transaction.getMeta(loroSyncPluginKey) as unknown);
}

function selectionLost(state: EditorState, transaction: Transaction): boolean {
  const { anchor, head } = state.selection;
  return [anchor, head].some((at) => transaction.mapping.mapResult(at).deletedAcross);
}

/** The document becomes `after`, by replacing only the part that differs. */
export function become(state: EditorState, after: Node): Transaction {
  const before = state.doc;
  const result = state.tr;
  const start = before.content.findDiffStart(after.content);
  const ends = before.content.findDiffEnd(after.content as never);
  if (start === null || !ends) return result;
  const overlap = Math.max(0, start - Math.min(ends.a, ends.b));
  try {
    result.replace(start, ends.a + overlap, after.slice(start, ends.b + overlap));
    if (result.doc.eq(after)) return result;
  } catch {
    // the cut does not fit: the whole document, below
  }
  return state.tr.replace(0, before.content.size, new Slice(after.content, 0, 0));
}

function emptyBlocks(transaction: Transaction, state: EditorState): ContainerID[] {
  const blocks = new Set<Node>();
  const size = state.doc.content.size;
  transaction.mapping.maps.forEach((map, index) => map.forEach((_from, _to, start, end) => {
    const later = transaction.mapping.slice(index + 1);
    const from = Math.max(0, later.map(start, -1) - 2);
    const to = Math.min(size, later.map(end) + 2);
    state.doc.nodesBetween(from, to, (node) => {
      if (node.isTextblock && node.content.size === 0) blocks.add(node);
    });
  }));
  if (blocks.size === 0) return [];
  const known = loroSyncPluginKey.getState(state)?.mapping ?? new Map<ContainerID, Node | Node[]>();
  return [...known].flatMap(([id, node]) => (blocks.has(node as Node) ? [id] : []));
}

function isSync(transaction: Transaction): boolean {
  return transaction.getMeta(loroSyncPluginKey) !== undefined;
}

function fromOthers(transaction: Transaction): boolean {
  const meta = transaction.getMeta(loroSyncPluginKey) as { type?: unknown } | undefined;
  return meta?.type === FROM_OTHERS;
}

/** While undoing, the binding needs its own nodes in the document, and sets the selection itself. */
function isUndoing(state: EditorState): boolean {
  return loroUndoPluginKey.getState(state)?.isUndoing.current === true;
}

/** Carets are redrawn for many reasons; only one that moved shows its name again. */
const stillSince = new Map<string, { readonly at: string; readonly time: number }>();

function caret(presence: Presence, peer: string): HTMLElement {
  const { name, color } = presence.person(peer);
  const at = `${name} ${presence.position(peer)}`;
  const now = performance.now();
  const known = stillSince.get(peer);
  const time = known?.at === at ? known.time : now;
  if (stillSince.size > CARETS_MAX) stillSince.clear();
  stillSince.set(peer, { at, time });
  return h(
    "span", { class: "their-caret", style: `--who: ${color}; --age: ${Math.round(time - now)}ms`, "data-testid": "their-caret", "data-name": name },
    "\u2060", h("span", { class: "their-name" }, name), "\u2060",
  );
}
