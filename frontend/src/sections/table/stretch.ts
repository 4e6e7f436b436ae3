// When a row was: its stretch of the timeline, the link there, and a small timeline of it.
import type { Link, TableSection, TimelineSection } from "../../api/types";
import { cell } from "./model";

/** ns around a stretch of the timeline, at least, and as parts of it. */
const LEAST_AROUND = 2_000;
const AROUND = 1.5;
/** px of a small timeline below a row. */
const HEIGHT = 190;

interface Stretch {
  start: number;
  end: number;
  /** with room around it */
  from: number;
  to: number;
}

/** The time of a row, ns after the begin of the timeline; null where its table says none. */
export function stretchOf(s: TableSection, index: number): Stretch | null {
  const on = s.timeline;
  const [start, duration] = on ? [cell(s, on.start, index), cell(s, on.duration, index)] : [null, null];
  if (!on || typeof start !== "number" || typeof duration !== "number") return null;
  const from = Math.round(start + (on.offset_ns ?? 0));
  const to = Math.round(start + (on.offset_ns ?? 0) + Math.max(duration, 1));
  const room = Math.max((to - from) * AROUND, LEAST_AROUND);
  return { start: from, end: to, from: Math.max(0, Math.round(from - room)), to: Math.round(to + room) };
}

/** The way to the timeline from a row: of a row that sums many calls, to the one that stands for it. */
export function timelineLink(s: TableSection, index: number): Link | undefined {
  const at = stretchOf(s, index);
  return at ? { analysis: "timeline", query: { t: `${at.from}-${at.to}`, area: `${at.start}-${at.end}` }, label: s.timeline!.what ? `Show ${s.timeline!.what} in the timeline` : "Show in timeline" } : undefined;
}

/** A small timeline of a row. */
export function timelineOf(s: TableSection, index: number): TimelineSection | null {
  const at = stretchOf(s, index);
  return at && { kind: "timeline", id: `${s.id}-stretch`, title: "", start_ns: at.from, end_ns: at.to, highlight: [[at.start, at.end, s.timeline!.what ?? ""]], height: HEIGHT };
}
