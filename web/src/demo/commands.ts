/** Editor commands: one table for the toolbar, the keys and their labels. */

import { chainCommands, exitCode, lift, setBlockType, toggleMark, wrapIn } from "prosemirror-commands";
import {
  InputRule, inputRules, textblockTypeInputRule, wrappingInputRule,
} from "prosemirror-inputrules";
import type { Attrs, MarkType, NodeType } from "prosemirror-model";
import { liftListItem, sinkListItem, splitListItem, wrapInList } from "prosemirror-schema-list";
import type { Command, EditorState, Plugin } from "prosemirror-state";
import { loroSyncPluginKey, loroUndoPluginKey } from "loro-prosemirror";
import type { IconName } from "../common/dom";
import { schema } from "./schema";

export interface Action {
  readonly id: string;
  readonly label: string;
  readonly icon?: IconName;
  readonly text?: string;
  readonly keys: readonly string[];
  readonly command: Command;
  readonly active?: (state: EditorState) => boolean;
}

const { nodes, marks } = schema;
const type = (name: string): NodeType => nodes[name] as NodeType;

/**
 * Undo or redo of the reader's own edits. The binding's own command ignores
 * all edits until a timer fires, so that keys typed right after it are
 * lost, and leaves nodes on the page that it cannot map to the document.
 * Loro's events are synchronous, so both can be finished before the next key.
 */
function stepBack(which: "undo" | "redo"): Command {
  return (state, dispatch, view) => {
    const known = loroUndoPluginKey.getState(state);
    if (!known) return false;
    const { undoManager, isUndoing } = known;
    if (!dispatch) return which === "undo" ? undoManager.canUndo() : undoManager.canRedo();
    isUndoing.current = true;
    try {
      return which === "undo" ? undoManager.undo() : undoManager.redo();
    } finally {
      queueMicrotask(() => {
        isUndoing.current = false;
        if (view && !view.isDestroyed) view.dispatch(view.state.tr.setMeta(loroSyncPluginKey, { type: "doc-changed" }));
      });
    }
  };
}

const insertRule: Command = (state, dispatch) => {
  dispatch?.(state.tr.replaceSelectionWith(type("horizontal_rule").create()).scrollIntoView());
  return true;
};

const insertBreak: Command = chainCommands(exitCode, (state, dispatch) => {
  dispatch?.(state.tr.replaceSelectionWith(type("hard_break").create()).scrollIntoView());
  return true;
});

export const GROUPS: readonly (readonly Action[])[] = [
  [
    { id: "undo", label: "Undo", icon: "undo", keys: ["Mod-z"], command: stepBack("undo") },
    { id: "redo", label: "Redo", icon: "redo", keys: ["Mod-Shift-z", "Mod-y"], command: stepBack("redo") },
  ],
  [
    block("paragraph", "Text", "T", ["Mod-Alt-0"], "paragraph"),
    block("heading-1", "Heading 1", "H1", ["Mod-Alt-1"], "heading", { level: 1 }),
    block("heading-2", "Heading 2", "H2", ["Mod-Alt-2"], "heading", { level: 2 }),
    block("heading-3", "Heading 3", "H3", ["Mod-Alt-3"], "heading", { level: 3 }),
  ],
  [
    mark("bold", "Bold", "bold", "Mod-b", "strong"),
    mark("italic", "Italic", "italic", "Mod-i", "em"),
    mark("code", "Code", "code", "Mod-e", "code"),
  ],
  [
    list("bullet-list", "Bulleted list", "bullets", "Mod-Shift-8", "bullet_list"),
    list("ordered-list", "Numbered list", "numbers", "Mod-Shift-7", "ordered_list"),
    wrap("quote", "Quote", "quote", "Mod-Shift-9", "blockquote"),
    {
      ...block("code-block", "Code block", "", ["Mod-Alt-c"], "code_block"),
      text: undefined, icon: "codeBlock",
      command: toggle(setBlockType(type("code_block")), setBlockType(type("paragraph")), (state) => inBlock(state, type("code_block"))),
    } as Action,
    { id: "rule", label: "Divider", icon: "rule", keys: [], command: insertRule },
  ],
];

/** Key bindings of the table, and those without a button. */
export function keys(): Record<string, Command> {
  const bound: Record<string, Command> = {
    Enter: splitListItem(type("list_item")),
    Tab: sinkListItem(type("list_item")),
    "Shift-Tab": liftListItem(type("list_item")),
    "Mod-[": liftListItem(type("list_item")),
    "Mod-]": sinkListItem(type("list_item")),
    "Shift-Enter": insertBreak,
    "Mod-Enter": insertBreak,
  };
  for (const action of GROUPS.flat()) for (const key of action.keys) bound[key] = action.command;
  return bound;
}

/** `# `, `- `, `1. `, `> `, three backticks and `---` at the start of a line. */
export function rules(): Plugin {
  return inputRules({
    rules: [
      textblockTypeInputRule(/^(#{1,3})\s$/, type("heading"), (match) => ({ level: match[1]?.length ?? 1 })),
      wrappingInputRule(/^\s*[-*]\s$/, type("bullet_list")),
      wrappingInputRule(
        /^(\d{1,9})\.\s$/, type("ordered_list"),
        (match) => ({ order: Number(match[1]) }),
        (match, node) => node.childCount + (node.attrs["order"] as number) === Number(match[1]),
      ),
      wrappingInputRule(/^\s*>\s$/, type("blockquote")),
      textblockTypeInputRule(/^```$/, type("code_block")),
      new InputRule(/^---$/, (state, _match, start, end) =>
        state.tr.delete(start, end).replaceSelectionWith(type("horizontal_rule").create())),
    ],
  });
}

/** `Mod-Shift-z` in this platform's notation. */
export function keyName(key: string, mac: boolean): string {
  const names: Record<string, string> = mac
    ? { Mod: "⌘", Alt: "⌥", Shift: "⇧" }
    : { Mod: "Ctrl", Alt: "Alt", Shift: "Shift" };
  const parts = key.split("-").map((part) => names[part] ?? part.toUpperCase());
  return mac ? parts.join("") : parts.join("+");
}

function block(id: string, label: string, text: string, bound: string[], name: string, attrs: Attrs = {}): Action {
  const kind = type(name);
  return { id, label, text, keys: bound, command: setBlockType(kind, attrs), active: (state) => inBlock(state, kind, attrs) };
}

function mark(id: string, label: string, icon: IconName, key: string, name: string): Action {
  const kind = marks[name] as MarkType;
  return {
    id, label, icon, keys: [key],
    command: toggleMark(kind),
    active: ({ selection: { from, to, empty, $from }, storedMarks, doc }) =>
      empty ? !!kind.isInSet(storedMarks ?? $from.marks()) : doc.rangeHasMark(from, to, kind),
  };
}

function list(id: string, label: string, icon: IconName, key: string, name: string): Action {
  const kind = type(name);
  const active = (state: EditorState): boolean => nearestList(state) === kind;
  return { id, label, icon, keys: [key], active, command: toggle(wrapInList(kind), liftListItem(type("list_item")), active) };
}

function wrap(id: string, label: string, icon: IconName, key: string, name: string): Action {
  const kind = type(name);
  const active = (state: EditorState): boolean => isInside(state, kind);
  return { id, label, icon, keys: [key], active, command: toggle(wrapIn(kind), lift, active) };
}

function toggle(on: Command, off: Command, active: (state: EditorState) => boolean): Command {
  return (state, dispatch, view) => (active(state) ? off : on)(state, dispatch, view);
}

function inBlock(state: EditorState, kind: NodeType, attrs: Attrs = {}): boolean {
  const { $from, to } = state.selection;
  const { type: found, attrs: has } = $from.parent;
  return to <= $from.end() && found === kind && Object.keys(attrs).every((key) => has[key] === attrs[key]);
}

function isInside(state: EditorState, kind: NodeType): boolean {
  const { $from } = state.selection;
  for (let depth = $from.depth; depth > 0; depth -= 1) if ($from.node(depth).type === kind) return true;
  return false;
}

function nearestList(state: EditorState): NodeType | null {
  const { $from } = state.selection;
  for (let depth = $from.depth; depth > 0; depth -= 1) {
    const found = $from.node(depth).type;
    if (found === type("bullet_list") || found === type("ordered_list")) return found;
  }
  return null;
}
