import { afterEach, describe, expect, test, vi } from "vitest";
import { handOver, type Handover } from "../../src/sections/timeline/perfetto";

const ORIGIN = "https://viewer.example";
const trace: Handover = { buffer: new ArrayBuffer(3), title: "run rank 0", fileName: "a.json.gz", view: { start: 2e9, end: 3.5e9 } };

/** A stand-in for a window with messages, and a tab that answers from the `answers`-th ping on. */
function stage(answers: number, from = ORIGIN): { sent: [unknown, string][]; tab: { closed: boolean; postMessage: (m: unknown, o: string) => void } } {
  const listeners = new Set<(event: unknown) => void>();
  vi.stubGlobal("window", { addEventListener: (_: string, l: (e: unknown) => void) => listeners.add(l), removeEventListener: (_: string, l: (e: unknown) => void) => listeners.delete(l), setInterval, clearInterval });
  const sent: [unknown, string][] = [];
  const tab = {
    closed: false,
    postMessage(message: unknown, origin: string): void {
      sent.push([message, origin]);
      if (message === "PING" && sent.length >= answers) for (const l of [...listeners]) l({ origin: from, source: tab, data: "PONG" });
    },
  };
  return { sent, tab };
}

afterEach(() => vi.unstubAllGlobals());

describe("handing a trace to Perfetto", () => {
  test("GIVEN a page that answers the third ping WHEN handed over THEN pings, the trace for that origin alone, then the window in seconds", async () => {
    const { sent, tab } = stage(3);
    expect(await handOver(tab, trace, ORIGIN, { every: 1 })).toBe("taken");
    expect(sent.map(([m]) => (typeof m === "string" ? m : Object.keys((m as { perfetto: object }).perfetto)[0]))).toEqual(["PING", "PING", "PING", "buffer", "timeStart"]);
    expect(sent.every(([, origin]) => origin === ORIGIN)).toBe(true);
    expect(sent[3]![0]).toEqual({ perfetto: { buffer: trace.buffer, title: "run rank 0", fileName: "a.json.gz", localOnly: true, keepApiOpen: true } });
    expect(sent[4]![0]).toEqual({ perfetto: { timeStart: 2, timeEnd: 3.5, viewPercentage: 0.9 } });
  });

  test("GIVEN an answer of another origin, or none, or a closed tab WHEN handed over THEN nothing of the trace is sent and it is said", async () => {
    const other = stage(1, "https://evil.example");
    expect(await handOver(other.tab, trace, ORIGIN, { every: 1, longest: 30 })).toBe("silent");
    expect(other.sent.every(([m]) => m === "PING")).toBe(true);
    const closed = stage(1000);
    closed.tab.closed = true;
    expect(await handOver(closed.tab, trace, ORIGIN, { every: 1 })).toBe("closed");
    expect(closed.sent).toEqual([]);
  });
});
