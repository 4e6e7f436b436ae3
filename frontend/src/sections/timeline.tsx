// A window of time as facts: its begin, its end, its source.
import type { JSX } from "preact";
import type { TimelineSection } from "../api/types";
import { Facts } from "./facts";

export function Timeline({ s }: { s: TimelineSection }): JSX.Element {
  const [start, end] = s.window_ns ?? [0, 0];
  return (
    <Facts
      s={{
        kind: "facts", id: s.id, title: s.title,
        values: { start, end, length: end - start, source: s.source || null },
        units: { start: "ns", end: "ns", length: "ns" },
        labels: { start: "Window begins at", end: "Window ends at", length: "Window length", source: "Read from" },
      }}
    />
  );
}
