// Reset of ERROR in two steps: a button and a confirmation.

import { button, h } from "../common/dom";
import { documentPath, post, Refusal } from "./api";
import { resetOf } from "./model";
import { put, setText } from "./page";

/** `done` gets the gateway's result; errors are shown here. */
export function resetControl(id: string, done: (words: string) => void): HTMLElement {
  const first = button({ "data-testid": "reset", "aria-label": `Reset ${id}` }, "Reset…");
  const yes = button({ class: "button danger", "data-testid": "reset-confirm" }, "Reset it");
  const no = button({ class: "button quiet", "data-testid": "reset-cancel" }, "Cancel");
  const question = h("span", { class: "question", role: "group", hidden: true, "aria-label": `Reset ${id}?` },
    h("span", {}, "Is the cause fixed? The next edit loads it again."), yes, no);
  const result = h("span", { class: "result", role: "status", "data-testid": "reset-result" });

  const ask = (asking: boolean): void => {
    question.hidden = !asking;
    first.hidden = asking;
    (asking ? no : first).focus();
  };
  first.addEventListener("click", () => {
    setText(result, "");
    ask(true);
  });
  no.addEventListener("click", () => ask(false));
  question.addEventListener("keydown", (event) => {
    if (event.key === "Escape") ask(false);
  });
  yes.addEventListener("click", () => {
    ask(false);
    first.disabled = true;
    tell("resetting…", "quiet");
    post(documentPath(id, "reset"), new AbortController().signal).then(
      (body) => {
        tell("", "ok");
        done(resetOf(id, body));
      },
      (error: unknown) => {
        const again = error instanceof Refusal ? "" : "; the result is unknown, check its state";
        tell(`not reset: ${error instanceof Error ? error.message : String(error)}${again}`, "bad");
      },
    ).finally(() => {
      first.disabled = false;
    });
  });
  const tell = (text: string, tone: string): void => {
    setText(result, text);
    put(result, "data-tone", tone);
  };
  return h("div", { class: "reset" }, first, question, result);
}
