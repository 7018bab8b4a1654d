import type { LoroDoc } from "loro-crdt";
import type { AddressInfo } from "node:net";

export class Rooms {
  constructor(options: object);
  server: { once(event: string, run: (value: unknown) => void): void; address(): AddressInfo; close(): void };
  sockets: Map<{ terminate(): void }, unknown>;
  holding: boolean;
  held: (() => void)[];
  updated: string[];
  refuse: number | null;
  refuseJoin: string | null;
  permission: "read" | "write";
  cutJoins: number;
  document(id: string): LoroDoc;
  release(): void;
  suggestRejoin(id: string): void;
  evict(id: string): void;
  drop(code?: number, reason?: string): void;
}
