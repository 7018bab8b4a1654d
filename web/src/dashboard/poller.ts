// Polls while the page is visible; slower after failures.

import { Refusal } from "./api";
import { answered, failed, POLL_MS, SILENCE, waitMs, type Hearing } from "./rhythm";

export interface Poll<T> {
  load(signal: AbortSignal): Promise<T>;
  show(answer: T): void;
  refused?(problem: Refusal): void; // an error response: the gateway is reachable
  updated?(hearing: Hearing, again: number): void; // after every try, with the time of the next
  everyMs?: number;
}

export class Poller<T> {
  private hearing: Hearing = SILENCE;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private asking: AbortController | null = null;
  private closed = false;

  constructor(private readonly poll: Poll<T>) {
    document.addEventListener("visibilitychange", this.onVisible);
    this.now();
  }

  /** Poll at once; a running request is dropped. */
  now(): void {
    clearTimeout(this.timer);
    this.asking?.abort();
    this.asking = null;
    if (!this.closed && !document.hidden) void this.once();
  }

  close(): void {
    this.closed = true;
    document.removeEventListener("visibilitychange", this.onVisible);
    clearTimeout(this.timer);
    this.asking?.abort();
  }

  private readonly onVisible = (): void => this.now();

  private async once(): Promise<void> {
    const asking = new AbortController();
    this.asking = asking;
    try {
      const answer = await this.poll.load(asking.signal);
      if (asking.signal.aborted) return;
      this.hearing = answered(Date.now());
      this.poll.show(answer);
    } catch (error) {
      if (asking.signal.aborted) return;
      if (error instanceof Refusal && this.poll.refused && error.status < 500) {
        this.hearing = answered(Date.now());
        this.poll.refused(error);
      } else {
        this.hearing = failed(this.hearing, error instanceof Error ? error.message : String(error));
      }
    }
    if (this.closed) return;
    const wait = waitMs(this.hearing.failures, this.poll.everyMs ?? POLL_MS, Math.random());
    this.poll.updated?.(this.hearing, Date.now() + wait);
    this.timer = setTimeout(() => this.now(), wait);
  }
}
