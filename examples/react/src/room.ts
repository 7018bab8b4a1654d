/** A document as a React hook: `useRoom(url, id)` renders again after every edit. */

import { LoroAdaptor } from "loro-adaptors/loro";
import { LoroDoc } from "loro-crdt";
import { LoroWebsocketClient } from "loro-websocket";
import { useEffect, useState } from "react";

/**
 * `live`: connected, and edits are sent. It does not mean "saved": the npm client reports refused edits only. A page with
 * a saved indicator also needs the Acks: see web/src/demo/link.ts and saved.ts of lorogo.
 */
export type State = "connecting" | "live" | "offline" | "problem";

export interface Room {
  readonly doc: LoroDoc;
  readonly state: State;
  readonly problem: string;
}

const STATES: Readonly<Record<string, State>> = {
  joined: "live",
  connecting: "connecting",
  reconnecting: "offline",
  disconnected: "offline",
  error: "problem",
};

/**
 * The npm client ignores the promise of its first connection. A component that unmounts before that connection is open,
 * as in StrictMode, would leave an uncaught "Destroyed".
 */
class Client extends LoroWebsocketClient {
  override connect(options?: { resetBackoff?: boolean }): Promise<void> {
    const connected = super.connect(options);
    connected.catch(() => undefined);
    return connected;
  }
}

export function useRoom(url: string, id: string): Room {
  const [room, setRoom] = useState<Room>(() => ({ doc: new LoroDoc(), state: "connecting", problem: "" }));

  useEffect(() => {
    const doc = new LoroDoc(); // a new one per mount: edits of another document must not leak
    let mounted = true;
    const tell = (change: Partial<Room>): void => {
      if (mounted) setRoom((now) => ({ ...now, ...change, doc }));
    };
    const stopListening = doc.subscribe(() => tell({}));
    const client = new Client({ url });
    const adaptor = new LoroAdaptor(doc, {
      onUpdateError: (_updates, code) => tell({ state: "problem", problem: `an edit was refused (${code})` }),
    });
    client
      .join({ roomId: id, crdtAdaptor: adaptor, onStatusChange: (status) => tell({ state: STATES[status] ?? "problem" }) })
      .catch((error: unknown) => tell({ state: "problem", problem: String(error) }));
    tell({ state: "connecting", problem: "" });
    return () => {
      mounted = false;
      stopListening();
      client.destroy();
    };
  }, [url, id]);

  return room;
}
