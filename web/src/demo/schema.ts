/** The schema: the basic blocks and marks of ProseMirror, without links and images. */

import { Schema } from "prosemirror-model";
import { marks, nodes } from "prosemirror-schema-basic";
import { bulletList, listItem, orderedList } from "prosemirror-schema-list";

export const schema = new Schema({
  nodes: {
    doc: nodes.doc,
    paragraph: nodes.paragraph,
    heading: nodes.heading,
    blockquote: nodes.blockquote,
    // No <code> inside: browsers type outside of an inline element that begins with a foreign caret, where the text is lost.
    code_block: { ...nodes.code_block, toDOM: () => ["pre", 0] },
    ordered_list: { ...orderedList, content: "list_item+", group: "block" },
    bullet_list: { ...bulletList, content: "list_item+", group: "block" },
    list_item: { ...listItem, content: "paragraph block*" },
    horizontal_rule: nodes.horizontal_rule,
    text: nodes.text,
    hard_break: nodes.hard_break,
  },
  marks: { strong: marks.strong, em: marks.em, code: { ...marks.code, inclusive: false } },
});
