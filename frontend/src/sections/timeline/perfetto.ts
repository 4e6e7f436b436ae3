// Hands a trace over to Perfetto's page in another tab: it is asked until it answers, then gets the bytes. The trace stays in the browser.
import type { Span } from "./viewport";

export const PERFETTO = "https://ui.perfetto.dev";
const EVERY = 100;
const LONGEST = 30_000;

export interface Tab {
  postMessage: (message: unknown, origin: string) => void;
  readonly closed: boolean;
}

export interface Handover {
  buffer: ArrayBuffer;
  title: string;
  fileName: string;
  /** ns after the trace's begin */
  view: Span | null;
}

/** What became of it: the page took the trace, never answered, or was closed. */
export type Outcome = "taken" | "silent" | "closed";

interface Timing {
  every?: number;
  longest?: number;
}

/** Sends `PING` until `PONG` comes from that tab and origin, then the trace, then the window in seconds. */
export function handOver(tab: Tab, trace: Handover, origin = PERFETTO, { every = EVERY, longest = LONGEST }: Timing = {}): Promise<Outcome> {
  return new Promise((done) => {
    const began = performance.now();
    const end = (outcome: Outcome): void => {
      window.clearInterval(timer);
      window.removeEventListener("message", heard);
      done(outcome);
    };
    const heard = (event: MessageEvent): void => {
      if (event.origin !== origin || event.source !== (tab as unknown) || event.data !== "PONG") return;
      tab.postMessage({ perfetto: { buffer: trace.buffer, title: trace.title, fileName: trace.fileName, localOnly: true, keepApiOpen: true } }, origin);
      if (trace.view) tab.postMessage({ perfetto: { timeStart: trace.view.start / 1e9, timeEnd: trace.view.end / 1e9, viewPercentage: 0.9 } }, origin);
      end("taken");
    };
    window.addEventListener("message", heard);
    const timer = window.setInterval(() => {
      if (tab.closed) return end("closed");
      if (performance.now() - began > longest) return end("silent");
      tab.postMessage("PING", origin);
    }, every);
  });
}
