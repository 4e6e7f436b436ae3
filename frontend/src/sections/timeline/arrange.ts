// Which rows of a timeline are shown: pinned, hidden, opened, filtered, and in which layout.
import { computed, signal, type ReadonlySignal } from "@preact/signals";
import type { Track } from "../../api/timeline";
import { joinList } from "../../state/lists";
import type { How } from "../../state/view";
import { toggled, trackOf } from "./place";
import { type Arrangement, chainOf, isGroup, openAtFirst, type Row, rowsOf, workersOf } from "./rows";

const NOTHING: Arrangement = { pinned: [], hidden: [], toggled: [], find: "", layout: "" };
/** Streams that stay in sight in a small timeline. */
const MOST_PINNED = 2;

export class RowsModel {
  readonly arrangement = signal<Arrangement>(NOTHING);
  readonly shown = computed(() => rowsOf(this.tracks.value, this.arrangement.value));

  /** write: into the address, where there is one. */
  constructor(private readonly tracks: ReadonlySignal<readonly Track[]>, private readonly write: (part: Record<string, string>, how: How) => void) {}

  private change(part: Partial<Arrangement>): void {
    const next = { ...this.arrangement.peek(), ...part };
    this.arrangement.value = next;
    this.write({ pin: joinList(next.pinned), hide: joinList(next.hidden), open: joinList(next.toggled), lay: next.layout }, "quiet");
  }

  /** What the address says; what was typed to filter the rows stays. */
  read(next: Arrangement): void {
    this.arrangement.value = { ...next, find: this.arrangement.peek().find };
  }

  /** Of a small timeline: these rows alone and what leads to them; without any, all but counters, the fullest streams always in sight. */
  only(paths: readonly string[]): void {
    const tracks = this.tracks.peek();
    const keep = new Set<number>();
    for (const path of paths) {
      const found = trackOf(tracks, path);
      if (found) for (const t of chainOf(found, tracks)) keep.add(t.track);
    }
    if (!keep.size) {
      const streams = tracks.filter((t) => t.kind === "stream").sort((a, b) => b.events - a.events).slice(0, MOST_PINNED).sort((a, b) => a.track - b.track);
      this.arrangement.value = { ...NOTHING, pinned: streams.map((t) => t.path), hidden: tracks.filter((t) => t.kind === "counter").map((t) => t.path) };
      return;
    }
    const workers = workersOf(tracks);
    const opened = tracks.filter((t) => keep.has(t.track) && !openAtFirst(t, workers)).map((t) => t.path);
    this.arrangement.value = { ...NOTHING, hidden: tracks.filter((t) => !keep.has(t.track)).map((t) => t.path), toggled: opened };
  }

  toggle(track: Track): void {
    this.change({ toggled: toggled(this.arrangement.peek().toggled, track.path) });
  }

  pin(track: Track): void {
    this.change({ pinned: toggled(this.arrangement.peek().pinned, track.path) });
  }

  unpin(): void {
    this.change({ pinned: [] });
  }

  hide(track: Track): void {
    this.change({ hidden: toggled(this.arrangement.peek().hidden, track.path) });
  }

  showHidden(): void {
    this.change({ hidden: [] });
  }

  /** Opens all rows; where all are open, as they were at first. */
  expandAll(): void {
    const tracks = this.tracks.peek();
    const workers = workersOf(tracks);
    const closed = tracks.filter((t) => !openAtFirst(t, workers)).map((t) => t.path);
    const now = this.arrangement.peek().toggled;
    this.change({ toggled: closed.length && closed.every((p) => now.includes(p)) ? [] : closed });
  }

  layout(layout: Arrangement["layout"]): void {
    this.change({ layout });
  }

  filter(text: string): void {
    this.arrangement.value = { ...this.arrangement.peek(), find: text };
  }

  /** Opens and unhides what a track is in. */
  reveal(track: Track): void {
    const tracks = this.tracks.peek();
    const how = this.arrangement.peek();
    const workers = workersOf(tracks);
    const chain = chainOf(track, tracks);
    const closed = chain.filter((t) => openAtFirst(t, workers) === how.toggled.includes(t.path));
    const hidden = chain.some((t) => how.hidden.includes(t.path));
    if (!closed.length && !hidden) return;
    let next = how.toggled;
    for (const t of closed) next = toggled(next, t.path);
    this.change({ toggled: next, hidden: how.hidden.filter((p) => !chain.some((t) => t.path === p)) });
  }

  rowOf(track: number): Row | null {
    const { pinned, rows } = this.shown.peek();
    return pinned.find((r) => r.track.track === track) ?? rows.find((r) => r.track.track === track) ?? null;
  }

  /** Workers, processes and devices that hold events. */
  groups(): Track[] {
    return this.tracks.peek().filter((t) => isGroup(t) && t.events > 0);
  }
}
