// Out of ERROR, in two steps: a button, then the question whether that is meant.

import { button, h } from "../common/dom";
import { documentPath, post, Refusal } from "./api";
import { resetOf } from "./model";
import { put, say } from "./page";

/** `done` is told what the gateway did; what went wrong is said here. */
export function resetControl(id: string, done: (words: string) => void): HTMLElement {
  const first = button({ "data-testid": "reset", "aria-label": `Reset ${id}` }, "Reset…");
  const yes = button({ class: "button danger", "data-testid": "reset-confirm" }, "Reset it");
  const no = button({ class: "button quiet", "data-testid": "reset-cancel" }, "Cancel");
  const question = h("span", { class: "question", role: "group", hidden: true, "aria-label": `Reset ${id}?` },
    h("span", {}, "Is the cause gone? The next edit starts it again."), yes, no);
  const result = h("span", { class: "result", role: "status", "data-testid": "reset-result" });

  const ask = (asking: boolean): void => {
    question.hidden = !asking;
    first.hidden = asking;
    (asking ? no : first).focus();
  };
  first.addEventListener("click", () => {
    say(result, "");
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
        const again = error instanceof Refusal ? "" : "; whether it was done is not known, look at its state";
        tell(`not reset: ${error instanceof Error ? error.message : String(error)}${again}`, "bad");
      },
    ).finally(() => {
      first.disabled = false;
    });
  });
  const tell = (text: string, tone: string): void => {
    say(result, text);
    put(result, "data-tone", tone);
  };
  return h("div", { class: "reset" }, first, question, result);
}
