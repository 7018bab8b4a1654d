/** A shared to-do list, compatible with `python todo.py groceries ana` (examples/todo). */

import { LoroMap, type LoroDoc } from "loro-crdt";
import { StrictMode, useState, type FormEvent, type JSX } from "react";
import { createRoot } from "react-dom/client";
import { useRoom } from "./room";

const SAME_HOST = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws`;
const GATEWAY: string = import.meta.env.VITE_GATEWAY ?? SAME_HOST;
const DOCUMENT = location.hash.slice(1) || "groceries";

function items(doc: LoroDoc): LoroMap[] {
  return doc.getMovableList("items").toArray().filter((item) => item instanceof LoroMap);
}

function List(): JSX.Element {
  const { doc, state, problem } = useRoom(GATEWAY, DOCUMENT);
  const [text, setText] = useState("");
  const list = doc.getMovableList("items");

  function edit(change: () => void): void {
    change();
    doc.commit(); // sent automatically
  }

  function add(event: FormEvent): void {
    event.preventDefault();
    const words = text.trim();
    if (words === "") return;
    edit(() => {
      const item = list.pushContainer(new LoroMap());
      item.set("text", words);
      item.set("done", false);
    });
    setText("");
  }

  return (
    <main>
      <h1>{DOCUMENT}</h1>
      <p id="state" data-state={state}>{problem || state}</p>
      <ol>
        {items(doc).map((item, place) => (
          <li key={item.id}>
            <label>
              <input
                type="checkbox"
                checked={item.get("done") === true}
                onChange={(event) => edit(() => item.set("done", event.target.checked))}
              />
              {String(item.get("text") ?? "")}
            </label>{" "}
            <button type="button" disabled={place === 0} onClick={() => edit(() => list.move(place, place - 1))}>up</button>{" "}
            <button type="button" onClick={() => edit(() => list.delete(place, 1))}>remove</button>
          </li>
        ))}
      </ol>
      <form onSubmit={add}>
        <input aria-label="What is to be done" value={text} onChange={(event) => setText(event.target.value)} />{" "}
        <button type="submit">add</button>
      </form>
    </main>
  );
}

const root = document.getElementById("root");
if (root === null) throw new Error("the page has no #root");
createRoot(root).render(
  <StrictMode>
    <List />
  </StrictMode>,
);
