// A timeline while it is shown: its tracks, tiles, window and selection, and what happens when these change. One per section.
import { batch, computed, effect, signal, untracked } from "@preact/signals";
import * as api from "../../api/client";
import { NOT_IN_FILE } from "../../api/file";
import type { EventDetail, Flow, TimelineShape, Track } from "../../api/timeline";
import type { TimelineSection } from "../../api/types";
import { changeTimeline, view as address, type How } from "../../state/view";
import { RowsModel } from "./arrange";
import { TileCache } from "./cache";
import { Finder } from "./find";
import { Loader, type Wanted } from "./loader";
import { NameTable, NO_NAMES } from "./names";
import type { Nesting } from "./nesting";
import { PathModel } from "./path";
import { type Area, areaText, eventText, type EventPlace, readArea, readArrangement, readEvent, readMarks, readSpan, spanText, trackOf } from "./place";
import { around, inside, lengthOf, moved, Places, type Span, topOf, zoomed } from "./viewport";

/** What a counter or a group says at the pointer, in words: of it, at a time. */
export interface Reading {
  track: Track;
  time: number;
  rows: readonly [string, string][];
  x: number;
  y: number;
}

/** What the pointer is over: an item of a lane in the tiles that are here. */
export interface Hover {
  track: Track;
  lane: number;
  event: number;
  name: number;
  category: number;
  start: number;
  end: number;
  count: number;
  busy: number;
  /** of what is around and inside of it, where the tiles say it */
  nesting: Nesting;
  x: number;
  y: number;
}

const RETRY = 300;
/** px of the canvas that an event is given when it is looked at from afar. */
const LOOK = 0.25;

export class TimelineModel {
  readonly shape = signal<TimelineShape | null>(null);
  readonly error = signal<api.ApiError | null>(null);
  readonly names = signal<NameTable>(NO_NAMES);
  readonly window = signal<Span>({ start: 0, end: 1 });
  readonly hover = signal<Hover | null>(null);
  readonly reading = signal<Reading | null>(null);
  readonly detail = signal<EventDetail | null>(null);
  /** all of the event under the pointer, a moment later */
  readonly hovered = signal<EventDetail | null>(null);
  readonly selected = signal<EventPlace | null>(null);
  readonly area = signal<Area | null>(null);
  readonly marks = signal<number[]>([]);
  /** events chosen with Ctrl, the last two of them: the gap between */
  readonly compared = signal<EventPlace[]>([]);
  /** a notice under the tools: what a link asked for and is not here */
  readonly notice = signal("");
  readonly waiting = signal(false);
  readonly tally = signal({ items: 0, events: 0, more: false });
  /** path of the row that keys are at, "" none */
  readonly cursor = signal("");
  /** kinds of work also as stripes and letters */
  readonly patterns = signal(false);
  readonly paneOpen = signal(true);
  readonly scroll = signal(0);
  /** px of the plot */
  readonly width = signal(1000);
  readonly height = signal(400);
  /** grows with every tile that arrives */
  readonly drawn = signal(0);

  readonly tracks = computed<readonly Track[]>(() => this.shape.value?.tracks ?? []);
  readonly all = computed<Span>(() => ({ start: 0, end: Math.max(this.shape.value?.span_ns ?? 1, 1) }));

  /** of the first worker: what stands in the head */
  readonly steps = computed(() => this.shape.value?.steps.filter((s) => s.worker === 0) ?? []);
  readonly phases = computed(() => this.shape.value?.phases.filter((p) => p.worker === 0) ?? []);
  /** last moment of each worker */
  readonly ends = computed(() => {
    const out: number[] = [];
    for (const t of this.tracks.value) out[t.worker] = Math.max(out[t.worker] ?? 0, t.last_ns);
    return out;
  });

  readonly rows = new RowsModel(this.tracks, (part, how) => this.write(part, how));
  readonly finder = new Finder({
    places: () => this.at,
    names: () => this.names.peek(),
    from: () => { const event = this.selected.peek(); return { after: event?.start ?? this.pointer ?? this.window.peek().start, selected: !!event }; },
    end: () => this.all.peek().end,
    go: (event) => this.go(event),
    write: (part, how) => this.write(part, how),
  });

  readonly path = new PathModel({ at: () => this.at, view: () => this.window.value, ready: () => !!this.shape.value, failed: (error) => this.failed(error) });

  cache = new TileCache(0);
  private loader: Loader | null = null;
  private readonly places = new Places();
  private readonly undo: (() => void)[] = [];
  private ask = new AbortController();
  private askEvent = new AbortController();
  private askHover = new AbortController();
  private wrote = "";
  /** why what the address asks for cannot be, until it is said */
  private refused = "";

  /** embedded: a small one inside another page, which leaves the address alone. */
  constructor(private section: TimelineSection, public at: api.Places, readonly embedded: boolean) {}

  start(): void {
    void this.load();
    this.undo.push(this.path.start());
    if (this.embedded) return;
    this.undo.push(effect(() => {
      const keys = address.value.timeline;
      const text = JSON.stringify(keys);
      if (text === this.wrote || !this.shape.value) return;
      this.wrote = text;
      untracked(() => this.read(keys));
    }));
  }

  stop(): void {
    this.ask.abort();
    this.askEvent.abort();
    this.finder.stop();
    this.askHover.abort();
    this.loader?.stop();
    for (const end of this.undo) end();
  }

  // -- loading ------------------------------------------------------------------------------------------------------------

  private async load(): Promise<void> {
    this.ask.abort();
    const stop = (this.ask = new AbortController()).signal;
    try {
      const shape = await this.untilRead(() => api.getTimeline(this.at, stop), stop);
      if (stop.aborted || !shape) return;
      this.loader?.stop();
      this.path.forget();
      const cache = (this.cache = new TileCache(topOf(shape.span_ns)));
      this.loader = new Loader({
        get: (z, from, to, tracks, signal) => api.getTiles(this.at, { z, i: from === to ? String(from) : `${from}-${to}`, tracks: tracks.join(","), fp: shape.fingerprint }, signal),
        has: (track, z, i) => cache.covering(track, z, i).sharp,
        arrived: (tile) => cache.put(tile),
        settled: () => { this.drawn.value++; },
        failed: (error) => this.failed(error),
      });
      batch(() => {
        this.error.value = null;
        this.shape.value = shape;
        const keys = this.embedded ? {} : address.peek().timeline;
        this.wrote = JSON.stringify(keys);
        this.read(keys);
      });
      void api.getTimelineNames(this.at, shape.fingerprint, stop).then((names) => {
        this.names.value = new NameTable(names);
        this.finder.again();
      }, (error) => this.failed(error));
    } catch (error) {
      if (stop.aborted) return;
      if (error instanceof api.ApiError && error.status === 400 && this.at.al) {
        this.refused = `The workers cannot be aligned like this: ${error.body.message}. ${error.body.hint ?? ""}`;
        this.align("");
      } else this.failed(error);
    }
  }

  private async untilRead<T>(get: () => Promise<T>, stop: AbortSignal): Promise<T | null> {
    for (;;) {
      try {
        return await get();
      } catch (error) {
        if (stop.aborted) return null;
        if (!(error instanceof api.ApiError) || !error.loading) throw error;
        await new Promise((done) => window.setTimeout(done, RETRY));
      }
    }
  }

  private failed(error: unknown): void {
    if (error instanceof api.ApiError && error.status === 409) return void this.load(); // the recording has changed: its tracks anew
    if (error instanceof api.ApiError && error.loading) {
      window.setTimeout(() => { this.loader?.forgive(); this.drawn.value++; }, RETRY);
      return;
    }
    if (error instanceof api.ApiError && error.body.code === NOT_IN_FILE && this.shape.peek()) {
      this.notice.value = `This file has what is drawn, not all that is known of each event. ${error.body.hint ?? ""}`;
      return;
    }
    this.error.value = error instanceof api.ApiError ? error : new api.ApiError({ code: "error", message: String(error instanceof Error ? error.message : error) }, 0);
  }

  again(): void {
    this.error.value = null;
    this.loader?.forgive();
    if (this.shape.peek()) this.drawn.value++;
    else void this.load();
  }

  /** Other workers, or another window to open with. */
  update(section: TimelineSection, at: api.Places): void {
    const elsewhere = JSON.stringify(at) !== JSON.stringify(this.at);
    const other = section.start_ns !== this.section.start_ns || section.end_ns !== this.section.end_ns;
    this.section = section;
    this.at = at;
    if (elsewhere) void this.load();
    else if (other && this.shape.peek()) {
      this.leave();
      this.window.value = this.opening();
      if (!this.embedded) this.write({ t: "" }, "quiet");
    }
  }

  /** Another way to put the clocks of several workers beside each other. */
  align(al: string): void {
    this.write({ al, t: "", area: "" }, "quiet"); // times before it mean other moments
    this.update(this.section, { ...this.at, al });
  }

  /** Requests tiles. Returns whether some of what is in view are on their way. */
  want(wanted: readonly Wanted[], level: number, moving: boolean): boolean {
    this.loader?.want(wanted, level, moving);
    return this.loader?.busy ?? false;
  }

  // -- the address --------------------------------------------------------------------------------------------------------

  /** The window of the section: of its step, else where nearly all events are. */
  opening(): Span {
    const { start_ns: start, end_ns: end } = this.section;
    const all = this.all.peek();
    if (typeof start === "number" && typeof end === "number" && end > start) return around({ start, end }, all, this.embedded ? 0.04 : 0.01);
    const [low, high] = this.shape.peek()?.focus ?? [0, all.end];
    return high > low ? inside({ start: low, end: high }, all) : all;
  }

  private read(keys: Readonly<Record<string, string>>): void {
    batch(() => {
      const all = this.all.peek();
      const lost: string[] = [];
      if (this.embedded) this.rows.only(this.section.tracks ?? []);
      else this.rows.read(readArrangement(keys));
      const window = readSpan(keys["t"] ?? "");
      this.window.value = window ? inside(window, all) : this.opening();
      if (window && (window.start >= all.end || window.end <= 0)) lost.push(`the window ${spanText(window)} ns`);
      this.marks.value = readMarks(keys["mk"] ?? "");
      this.path.on.value = this.embedded ? !!this.section.path : keys["cp"] === "1";
      const area = readArea(keys["area"] ?? "");
      this.area.value = area;
      const gone = area?.paths.filter((p) => !trackOf(this.tracks.peek(), p)) ?? [];
      if (gone.length) lost.push(`the row ${gone[0]}`);
      const event = readEvent(keys["ev"] ?? "");
      if (event && !trackOf(this.tracks.peek(), event.path)) lost.push(`the row ${event.path}`);
      else void this.fetchEvent(event, !window);
      this.scroll.value = Number(keys["y"]) || 0;
      if ((keys["q"] ?? "") !== this.finder.state.peek().text) void this.finder.find(keys["q"] ?? "", "quiet");
      this.notice.value = lost.length ? `Not found here: ${lost.join(", ")}. What is shown is the nearest there is.` : this.refused;
      this.refused = "";
    });
  }

  /** Writes keys of the address: changes of the view after a rest, selections as a new place. */
  private write(part: Record<string, string>, how: How): void {
    if (this.embedded) return;
    const next = { ...address.peek().timeline, ...part };
    this.wrote = JSON.stringify(next);
    changeTimeline(part, how);
    this.wrote = JSON.stringify(address.peek().timeline);
  }

  /** Draws the critical path, or no more. */
  togglePath(): void {
    this.path.on.value = !this.path.on.peek();
    this.write({ cp: this.path.on.peek() ? "1" : "" }, "replace");
  }

  // -- the window ---------------------------------------------------------------------------------------------------------

  /** Shows another stretch of time; `place`: Alt + left comes back from it. */
  show(next: Span, place = false): void {
    const now = this.window.peek();
    if (place) this.leave();
    const to = inside(next, this.all.peek());
    if (to.start === now.start && to.end === now.end) return;
    this.window.value = to;
    this.write({ t: spanText(to) }, "replace");
  }

  leave(): void {
    this.places.leave(this.window.peek());
  }

  history(direction: -1 | 1): void {
    const found = this.places.step(direction, this.window.peek());
    if (found) this.show(found);
  }

  zoom(factor: number, at?: number): void {
    const now = this.window.peek();
    this.show(zoomed(now, factor, at ?? this.pointer ?? (now.start + now.end) / 2, this.all.peek()));
  }

  pan(part: number): void {
    this.show(moved(this.window.peek(), part * lengthOf(this.window.peek()), this.all.peek()));
  }

  everything(): void {
    this.show(this.all.peek(), true);
  }

  /** Zooms to the selection; where it fills the view already, to the window that was opened with. */
  fit(): void {
    const part = this.selection();
    if (!part) return this.show(this.opening(), true);
    const to = around(part, this.all.peek());
    const now = this.window.peek();
    const same = Math.abs(now.start - to.start) + Math.abs(now.end - to.end) < lengthOf(to) * 0.01;
    this.show(same ? inside(part, this.all.peek()) : to, true);
  }

  /** The area, else the event that is selected. */
  selection(): Span | null {
    const [area, event] = [this.area.peek(), this.selected.peek()];
    return area ?? (event && { start: event.start, end: event.start + event.duration });
  }

  /** time under the pointer */
  pointer: number | null = null;

  get highlight(): readonly [number, number, string][] {
    return this.section.highlight ?? [];
  }

  /** Notes how far the rows are scrolled. */
  scrolled(top: number): void {
    this.scroll.value = Math.round(top);
    this.write({ y: top >= 1 ? String(Math.round(top)) : "" }, "replace");
  }

  /** Brings a stretch into view without losing the place: moved if it is big enough to see, else zoomed to. */
  look(part: Span): void {
    const now = this.window.peek();
    const seen = part.start >= now.start && part.end <= now.end;
    const px = (lengthOf(part) / lengthOf(now)) * this.width.peek();
    if (seen && px >= 2) return;
    if (px >= 2 && lengthOf(part) < lengthOf(now)) {
      const start = part.start - (lengthOf(now) - lengthOf(part)) / 2;
      this.show({ start, end: start + lengthOf(now) }, true);
    } else this.show(around(part, this.all.peek(), 0.5 / LOOK - 0.5), true);
  }

  // -- selection ----------------------------------------------------------------------------------------------------------

  trackAt(path: string): Track | null {
    return trackOf(this.tracks.peek(), path);
  }

  /** known: all of that event, where it is here already. */
  select(event: EventPlace | null, how: How = "push", known?: EventDetail): void {
    if (!event || this.compared.peek().length > 1) this.compared.value = []; // one alone is what is measured from
    this.write({ ev: event ? eventText(event) : "" }, how);
    void this.fetchEvent(event, false, known);
  }

  private async fetchEvent(event: EventPlace | null, look: boolean, known?: EventDetail): Promise<void> {
    this.askEvent.abort();
    const stop = (this.askEvent = new AbortController()).signal;
    this.selected.value = event;
    const track = event && this.trackAt(event.path);
    if (!event || !track) {
      this.detail.value = null;
      return;
    }
    if (look) this.look({ start: event.start, end: event.start + event.duration });
    this.rows.reveal(track);
    try {
      const found = known ?? (await api.getEvent(this.at, { track: track.track, start_ns: event.start, duration_ns: event.duration }, stop));
      if (stop.aborted) return;
      batch(() => {
        this.detail.value = found;
        if (!found.exact) {
          this.notice.value = "Not found here: the event of this link. Selected is the nearest one of its row.";
          this.selected.value = { ...event, start: found.start_ns, duration: found.duration_ns };
          this.look({ start: found.start_ns, end: found.start_ns + found.duration_ns });
        }
      });
    } catch (error) {
      if (!stop.aborted) this.failed(error);
    }
  }

  /** Selects what an item shows; one of several events is zoomed to until they stand apart. */
  async pick(item: Hover): Promise<void> {
    if (item.count > 1) {
      const now = this.window.peek();
      const span = { start: item.start, end: item.end };
      if (lengthOf(span) > 40 && lengthOf(span) < lengthOf(now)) return this.show(around(span, this.all.peek(), 0.5), true);
    }
    const stop = (this.askEvent = new AbortController()).signal;
    try {
      const found = await api.getEvent(this.at, { track: item.track.track, event: item.event }, stop);
      this.compared.value = [];
      this.select({ path: item.track.path, start: found.start_ns, duration: found.duration_ns }, "push", found);
    } catch (error) {
      if (!stop.aborted) this.failed(error);
    }
  }

  /** Requests what is known of the event under the pointer, if it is still there. */
  async hoverDetail(item: Hover): Promise<void> {
    if (this.hover.peek()?.event !== item.event || this.hover.peek()?.track !== item.track) return;
    this.askHover.abort();
    const stop = (this.askHover = new AbortController()).signal;
    try {
      const found = await api.getEvent(this.at, { track: item.track.track, event: item.event }, stop);
      if (!stop.aborted) this.hovered.value = found;
    } catch (error) {
      if (!stop.aborted && !(error instanceof api.ApiError)) throw error; // the card then shows what the tile says
    }
  }

  /** Adds an event to those compared; the gap between the last two is shown. */
  async compare(item: Hover): Promise<void> {
    try {
      const found = await api.getEvent(this.at, { track: item.track.track, event: item.event });
      const one = { path: item.track.path, start: found.start_ns, duration: found.duration_ns };
      const before = this.compared.peek().length ? this.compared.peek() : this.selected.peek() ? [this.selected.peek()!] : [];
      this.compared.value = [...before, one].slice(-2);
    } catch (error) {
      this.failed(error);
    }
  }

  /** Measures from the selected event; where it has been done from another one, the gap between both is shown. */
  measure(): void {
    const event = this.selected.peek();
    if (!event) return;
    const from = this.compared.peek();
    const again = from.length === 1 && eventText(from[0]!) === eventText(event);
    this.compared.value = again ? [] : from.length === 1 ? [from[0]!, event] : [event];
  }

  choose(area: Area | null, how: How = "push"): void {
    this.area.value = area;
    this.write({ area: area ? areaText(area) : "" }, how);
  }

  /** The next event of the lane, or the one before. */
  async beside(direction: -1 | 1): Promise<void> {
    const now = this.detail.peek();
    if (!now) return;
    const end = now.start_ns + now.duration_ns;
    const lane = { track: now.track, lane: now.lane };
    try {
      if (direction > 0) {
        const { events } = await api.getEvents(this.at, { ...lane, start_ns: end, end_ns: this.all.peek().end + 1, limit: 3 });
        this.go(events.find((e) => e.event !== now.event && e.start_ns >= now.start_ns));
      } else {
        const { total } = await api.getEvents(this.at, { ...lane, start_ns: 0, end_ns: Math.max(now.start_ns, 0), limit: 1 });
        if (!total) return;
        const { events } = await api.getEvents(this.at, { ...lane, start_ns: 0, end_ns: now.start_ns, cursor: String(total - 1), limit: 1 });
        this.go(events[0]);
      }
    } catch (error) {
      this.failed(error);
    }
  }

  parent(): void {
    this.go(this.detail.peek()?.parents[0]);
  }

  async child(): Promise<void> {
    const now = this.detail.peek();
    if (!now?.children.count) return;
    try {
      const { events } = await api.getEvents(this.at, { track: now.track, lane: now.lane + 1, start_ns: now.start_ns, end_ns: now.start_ns + Math.max(now.duration_ns, 1), limit: 1 });
      this.go(events[0]);
    } catch (error) {
      this.failed(error);
    }
  }

  /** Follows the first link out of the event, or into it. */
  flow(direction: -1 | 1): void {
    const now = this.detail.peek();
    const found = now?.flows.find((f) => (direction > 0 ? f.source.event === now.event && f.source.track === now.track : f.target.event === now.event && f.target.track === now.track));
    const to = found && (direction > 0 ? found.target : found.source);
    if (to) this.go({ track: to.track, start_ns: to.start_ns, duration_ns: to.end_ns - to.start_ns });
  }

  /** The other end of a link: of one out of the selected event its target, else where it comes from. */
  follow(flow: Flow): void {
    const now = this.detail.peek();
    const to = now && flow.source.event === now.event && flow.source.track === now.track ? flow.target : flow.source;
    this.go({ track: to.track, start_ns: to.start_ns, duration_ns: to.end_ns - to.start_ns });
  }

  /** Selects the first event in view of the row under the cursor of the keys, else of the first row with events. */
  async first(): Promise<void> {
    const rows = [...this.rows.shown.peek().pinned, ...this.rows.shown.peek().rows].filter((r) => r.lanes > 0);
    const row = rows.find((r) => r.track.path === this.cursor.peek()) ?? rows[0];
    const { start, end } = this.window.peek();
    if (!row) return;
    try {
      const { events } = await api.getEvents(this.at, { track: row.track.track, start_ns: Math.floor(start), end_ns: Math.ceil(end), limit: 1 });
      this.go(events[0]);
    } catch (error) {
      this.failed(error);
    }
  }

  /** The view as an area. */
  chooseView(): void {
    const now = this.window.peek();
    const start = Math.max(0, Math.round(now.start));
    this.choose({ start, end: Math.max(start + 1, Math.round(now.end)), paths: [] });
  }

  /** The selected event as an area on its row. */
  chooseEvent(): void {
    const event = this.selected.peek();
    if (event) this.choose({ start: event.start, end: event.start + Math.max(event.duration, 1), paths: [event.path] });
  }

  go(to: { track: number; start_ns: number; duration_ns: number } | undefined): void {
    const track = to && this.tracks.peek()[to.track];
    if (!to || !track) return;
    this.select({ path: track.path, start: to.start_ns, duration: to.duration_ns });
    this.look({ start: to.start_ns, end: to.start_ns + to.duration_ns });
  }

  /** Marks a time, or takes its mark away. */
  mark(time: number): void {
    const at = Math.round(time);
    const near = lengthOf(this.window.peek()) / Math.max(this.width.peek(), 1) * 4;
    const old = this.marks.peek().find((m) => Math.abs(m - at) <= near);
    this.marks.value = old === undefined ? [...this.marks.peek(), at].sort((a, b) => a - b) : this.marks.peek().filter((m) => m !== old);
    this.write({ mk: this.marks.peek().join(",") }, "quiet");
  }

  markMiddle(): void {
    this.mark((this.window.peek().start + this.window.peek().end) / 2);
  }

  nextMark(): void {
    const marks = this.marks.peek();
    if (!marks.length) return;
    const now = this.window.peek();
    const middle = (now.start + now.end) / 2;
    const next = marks.find((m) => m > middle + lengthOf(now) * 0.001) ?? marks[0]!;
    this.show({ start: next - lengthOf(now) / 2, end: next + lengthOf(now) / 2 });
  }

  // -- rows ---------------------------------------------------------------------------------------------------------------

  /** Numbers of the rows that an area names; none for all. */
  tracksOf(area: Area): number[] {
    return area.paths.flatMap((p) => this.trackAt(p)?.track ?? []);
  }
}
