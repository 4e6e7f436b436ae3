// The plot: two canvases, and what the pointer does on them.
import { effect, useSignalEffect } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { EventDetail, Flow } from "../../api/timeline";
import { dark, token } from "../../ui/theme";
import { methodOf } from "./align";
import { HOST_FILLS, lettersOf, type Paint, paintOf } from "./colors";
import { Painter, type Scene, type Tokens } from "./draw";
import { BAND, HeadPainter, OVERVIEW, partsOf, type Parts } from "./head";
import type { Hover, Reading, TimelineModel } from "./model";
import { nestingOf } from "./nesting";
import { bodyDown, bodyMove, bodyUp, headDouble, headDown, headMove, headUp, onWheel } from "./pointer";
import { drawLane, itemAt, PLAIN } from "./raster";
import { readingOf } from "./reading";
import { laneAt, laneTop, placed, type Row, withBelow } from "./rows";
import type { Slices } from "./tile";
import { Tree } from "./tree";
import { lengthOf, type Span, timeOf } from "./viewport";
import { ahead, lacking, levelIn } from "./wanted";

const SNAP = 6;
const LINKS_AFTER = 80;
const SLOW_FRAME = 20;
const SLOW_FOR = 500;
/** ms without a change after which the view is at rest. */
const RESTS = 150;

export function tokensNow(): Tokens {
  return {
    surface: token("surface"), sunken: token("sunken"), line: token("line"), strong: token("line-strong"), ink: token("ink"), ink2: token("ink-2"), ink3: token("ink-3"),
    accent: token("accent"), accentBg: token("accent-bg"), onAccent: token("on-accent"), warn: token("warn"), bar: token("bar-ink"),
  };
}

/** Colors of the categories of a timeline: those of the other pages for device work. */
export function paintFor(categories: readonly { name: string; color: string }[]): Paint {
  if (made?.categories !== categories || made.dark !== dark.value) made = { categories, dark: dark.value, paint: paintOf(categories.map(fillOf), token("surface"), dark.value) };
  return made.paint;
}

/** The paint of the last frame. */
let made: { categories: readonly { name: string; color: string }[]; dark: boolean; paint: Paint } | null = null;

/** The fill of a category. */
export const fillOf = (category: { name: string; color: string }): string => HOST_FILLS[category.name]?.[dark.value ? 1 : 0] ?? token(category.color);

type Drag = { kind: "area" | "pan" | "window" | "left" | "right"; x: number; y: number; from: Span; moved: boolean; free: boolean } | null;

interface PlotProps {
  model: TimelineModel;
  /** px of the visible part of the rows */
  height: number;
  onOpen?: () => void;
}

/** Links of an event itself; of what lies inside of it, a few with the longest latencies. */
const drawnFlows = (d: EventDetail): Flow[] => {
  const own = d.flows.filter((f) => [f.source, f.target].some((e) => e.event === d.event && e.track === d.track));
  return own.length ? own.slice(0, 20) : d.flows.slice(0, 6);
};

/** Everything about drawing and pointing that is not state of the timeline. */
export class Surface {
  readonly painter = new Painter();
  readonly headPainter = new HeadPainter();
  body: HTMLCanvasElement | null = null;
  head: HTMLCanvasElement | null = null;
  scroller: HTMLElement | null = null;
  drag: Drag = null;
  dragSpan: Span | null = null;
  /** the highlight whose lane has been scrolled to */
  proven = "";
  private frame = 0;
  private tried: ImageData | null = null;
  private slowSince = 0;
  private drewAt = 0;
  private reduced = false;
  private idle = 0;
  private rest = 0;
  private shownView: Span | null = null;
  private movedAt = -Infinity;
  /** the view had moved shortly before it did the last time */
  private goesOn = false;
  private linkTimer = 0;
  /** script time of the last frames, ms: for the benchmark */
  readonly times: number[] = [];

  constructor(readonly model: TimelineModel, private readonly compact: boolean) {}

  parts(): Parts {
    return partsOf(this.model.steps.peek(), this.model.phases.peek(), this.compact);
  }

  /** Fills of the categories. */
  fills(): readonly string[] {
    return paintFor(this.model.shape.peek()!.categories).fills;
  }

  /** Draws tiles of rows as strips, one below the other, so many times, and nothing else: what a benchmark sets beside rectangles. */
  strips(tiles: readonly [Row, Slices][], context: CanvasRenderingContext2D, times: number): void {
    const width = Math.round(this.model.width.peek());
    const view = this.model.window.peek();
    const lines = Math.max(1, tiles.reduce((sum, [row]) => sum + row.lanes, 0));
    const image = this.tried?.width === width && this.tried.height === lines ? this.tried : (this.tried = new ImageData(width, lines));
    const raster = { pixels: new Uint32Array(image.data.buffer), width };
    const paint = paintFor(this.model.shape.peek()!.categories);
    raster.pixels.fill(0);
    for (let time = 0; time < times; time++) {
      let line = 0;
      for (const [row, tile] of tiles) for (let lane = 0; lane < row.lanes; lane++, line++) drawLane(raster, line, tile, lane, view, -Infinity, Infinity, this.model.names.peek().categories, paint, PLAIN);
    }
    context.putImageData(image, 0, 0);
  }

  schedule(): void {
    if (!this.frame) this.frame = requestAnimationFrame(() => { this.frame = 0; this.draw(); });
  }

  stop(): void {
    cancelAnimationFrame(this.frame);
    window.clearTimeout(this.idle);
    window.clearTimeout(this.rest);
    window.clearTimeout(this.linkTimer);
    this.frame = 0;
  }

  private ratio(): number {
    return this.reduced ? 1 : Math.min(4, Math.max(0.5, window.devicePixelRatio || 1));
  }

  /** Device pixels of the canvases, where the browser says how many: at any page zoom no pixel is smeared over two. */
  private readonly pixels = new Map<Element, readonly [number, number]>();

  sized(entries: readonly ResizeObserverEntry[]): void {
    for (const { target, devicePixelContentBoxSize: size } of entries) if (size?.[0]) this.pixels.set(target, [size[0].inlineSize, size[0].blockSize]);
  }

  private fit(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D | null {
    const ratio = this.ratio();
    const own = this.pixels.get(canvas);
    const pixelsOf = (css: number, side: 0 | 1): number => (own && Math.abs(own[side] - css * ratio) <= ratio ? own[side] : Math.max(1, Math.round(css * ratio)));
    const [w, h] = [pixelsOf(width, 0), pixelsOf(height, 1)];
    if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
    return canvas.getContext("2d", { alpha: false });
  }

  draw(): void {
    const { model, body, head } = this;
    const shape = model.shape.peek();
    if (!body || !head || !shape || document.visibilityState === "hidden") return;
    const began = performance.now();
    const [width, height] = [model.width.peek(), model.height.peek()];
    const tokens = tokensNow();
    const paint = paintFor(shape.categories);
    const context = this.fit(body, width, height);
    if (!context) return;
    const scene = this.scene(paint, tokens, width, height);
    const busy = this.request(scene); // before anything is drawn: the server works meanwhile
    const drawn = this.painter.draw(context, scene);
    const parts = this.parts();
    const top = this.fit(head, width, parts.height);
    if (top) {
      this.headPainter.draw(top, {
        view: model.window.peek(), all: model.all.peek(), width, ratio: this.ratio(), cache: model.cache, paint, tokens, steps: model.steps.peek(),
        phases: model.phases.peek(), groups: overviewRows(model), marks: model.marks.peek(), density: model.finder.state.peek().hits?.histogram ?? null,
        area: this.dragSpan ?? model.area.peek(), pointer: model.pointer,
      }, parts);
    }
    model.waiting.value = busy;
    const tally = model.tally.peek();
    if (tally.items !== drawn.items || tally.events !== drawn.events) model.tally.value = { items: drawn.items, events: drawn.events, more: drawn.more };
    this.pace(performance.now() - began);
  }

  /** Requests the tiles that a scene lacks, and at rest those that are likely to be wanted next. Returns whether it waits for any. */
  private request(scene: Scene): boolean {
    const { model } = this;
    const motion = this.motion(scene.view);
    const { top } = model.cache;
    const groups = this.compact ? [] : overviewRows(model).filter((t) => !model.cache.has(t.track, top, 0)).map((t) => t.track);
    const first = groups.length ? [{ z: top, from: 0, to: 0, tracks: groups, rank: 0 }] : [];
    const next = motion !== "rest" || this.compact ? [] : ahead(scene, model.pointer ?? (scene.view.start + scene.view.end) / 2);
    return model.want([...first, ...lacking(scene), ...next], levelIn(scene), motion === "moving");
  }

  /** Whether the view goes on moving, has jumped to where it is, or has come to rest: that is looked at again when it has. */
  private motion(view: Span): "moving" | "jumped" | "rest" {
    const now = performance.now();
    if (this.shownView && (this.shownView.start !== view.start || this.shownView.end !== view.end)) {
      this.goesOn = now - this.movedAt < RESTS;
      this.movedAt = now;
    }
    this.shownView = view;
    window.clearTimeout(this.rest);
    const still = now - this.movedAt;
    if (still >= RESTS) return "rest";
    this.rest = window.setTimeout(() => this.schedule(), RESTS - still + 1);
    return this.goesOn ? "moving" : "jumped";
  }

  /** At a high device ratio slow frames are drawn at ratio 1, and sharply again at rest. */
  private pace(ms: number): void {
    this.times.push(ms);
    if (this.times.length > 2000) this.times.splice(0, 1000);
    const now = performance.now();
    const after = now - ms - this.drewAt;
    this.drewAt = now;
    if (ms <= SLOW_FRAME || after > RESTS) this.slowSince = now; // one slow frame after a rest is none of many
    else if (!this.reduced && (window.devicePixelRatio || 1) > 1 && now - this.slowSince > SLOW_FOR) this.reduced = true;
    window.clearTimeout(this.idle);
    if (this.reduced) this.idle = window.setTimeout(() => { this.reduced = false; this.schedule(); }, 400);
  }

  private scene(paint: Paint, tokens: Tokens, width: number, height: number): Scene {
    const { model } = this;
    const shape = model.shape.peek()!;
    const [hover, detail, selected, area] = [model.hover.peek(), model.detail.peek(), model.selected.peek(), model.area.peek()];
    const outlines: Scene["outlines"][number][] = [];
    if (detail && selected) {
      outlines.push({ track: detail.track, lane: detail.lane, start: detail.start_ns, end: detail.start_ns + detail.duration_ns, strong: true });
      for (const f of drawnFlows(detail)) for (const e of [f.source, f.target]) if (e.event !== detail.event || e.track !== detail.track) outlines.push({ track: e.track, lane: e.lane, start: e.start_ns, end: e.end_ns, strong: false });
    }
    if (hover && hover.count === 1) {
      outlines.push({ track: hover.track.track, lane: hover.lane, start: hover.start, end: hover.end, strong: false });
      const known = model.hovered.peek();
      if (known?.event === hover.event && known.track === hover.track.track) for (const f of drawnFlows(known)) for (const e of [f.source, f.target]) outlines.push({ track: e.track, lane: e.lane, start: e.start_ns, end: e.end_ns, strong: false });
    }
    const compared = model.compared.peek();
    return {
      view: model.window.peek(), span: model.all.peek().end, ends: model.ends.peek(), shown: model.rows.shown.peek(), scroll: this.scroller?.scrollTop ?? 0, width, height, ratio: this.ratio(), cache: model.cache,
      names: model.names.peek(), paint, tokens, how: { same: hover && hover.count === 1 ? hover.name : -1, found: model.finder.state.peek().found, striped: model.patterns.peek() },
      letters: model.patterns.peek() ? lettersOf(shape.categories.map((c) => c.label)) : null, steps: this.compact ? [] : model.steps.peek(), phases: this.compact ? [] : model.phases.peek(), marks: model.marks.peek(), highlight: model.highlight,
      area: area && { start: area.start, end: area.end, tracks: area.paths.length ? new Set(withBelow(model.tracksOf(area), model.tracks.peek())) : null },
      outlines, flows: detail && selected ? drawnFlows(detail) : [], path: model.path.flows.peek(), compared: compared.map((e) => ({ start: e.start, end: e.start + e.duration })),
    };
  }

  // -- pointing -----------------------------------------------------------------------------------------------------------

  rowAt(y: number): { row: Row; y: number } | null {
    const all = placed(this.model.rows.shown.peek(), this.scroller?.scrollTop ?? 0, this.model.height.peek());
    const top = this.model.rows.shown.peek().pinnedHeight;
    return all.find(({ row, y: at }) => y >= at && y < at + row.height && (row.pinned || y >= top || !top)) ?? null;
  }

  /** The item of the tiles that are here at a place of the rows. */
  hit(x: number, y: number): Hover | null {
    const { model } = this;
    const found = this.rowAt(y);
    if (!found || !found.row.lanes) return null;
    const { row } = found;
    const lane = laneAt(row, y - found.y + row.y);
    const view = model.window.peek();
    const width = model.width.peek();
    const time = timeOf(x, view, width);
    const z = levelIn({ view, width, cache: model.cache });
    const i = Math.max(0, Math.floor(time / 2 ** (z + 10)));
    const covering = model.cache.covering(row.track.track, z, i);
    for (const tile of [...covering.finer, covering.tile]) {
      if (tile?.kind !== "slices") continue;
      const k = itemAt(tile, lane, time, (3 / width) * lengthOf(view));
      if (k >= 0) return { track: row.track, lane, event: tile.event[k]!, name: tile.name[k]!, category: model.names.peek().categories[tile.name[k]!] ?? 0, start: tile.start[k]!, end: tile.end[k]!, count: tile.count[k]!, busy: tile.busy[k]! / 255, nesting: nestingOf(tile, lane, k), x, y };
    }
    return null;
  }

  /** The lane of an event of exactly a stretch, in the tiles that are here. */
  laneOf(start: number, end: number): { row: Row; lane: number } | null {
    const { model } = this;
    const { pinned, rows } = model.rows.shown.peek();
    const z = levelIn({ view: model.window.peek(), width: model.width.peek(), cache: model.cache });
    for (const row of [...pinned, ...rows]) {
      const tile = row.lanes ? model.cache.covering(row.track.track, z, Math.max(0, Math.floor(start / 2 ** (z + 10)))).tile : null;
      if (tile?.kind !== "slices") continue;
      const unit = 2 ** Math.max(0, tile.z - 8);
      for (let lane = 0; lane < row.lanes; lane++) {
        const k = itemAt(tile, lane, (start + end) / 2, 0);
        if (k >= 0 && tile.count[k] === 1 && Math.abs(tile.start[k]! - start) <= unit && Math.abs(tile.end[k]! - end) <= 2 * unit) return { row, lane };
      }
    }
    return null;
  }

  /** Scrolls to a lane, unless it is in sight. */
  toLane(row: Row, lane: number, part = 0.5): void {
    const el = this.scroller;
    if (!el || row.pinned || !row.lanes) return;
    const top = laneTop(row, Math.min(lane, row.lanes - 1));
    const room = el.clientHeight - this.model.rows.shown.peek().pinnedHeight;
    if (top < el.scrollTop || top + row.lane > el.scrollTop + room) el.scrollTop = Math.max(0, top - room * part);
  }

  /** Scrolls to the begin of a row, unless it is in sight. */
  toRow(row: Row): void {
    const el = this.scroller;
    if (!el || row.pinned) return;
    const room = el.clientHeight - this.model.rows.shown.peek().pinnedHeight;
    if (row.y < el.scrollTop) el.scrollTop = row.y;
    else if (row.y + Math.min(row.height, 40) > el.scrollTop + room) el.scrollTop = row.y + Math.min(row.height, 40) - room;
  }

  /** A time moved to the edge of an event near by, or of a step, a phase or a mark. */
  snapped(x: number, y: number, free: boolean): number {
    const view = this.model.window.peek();
    const width = this.model.width.peek();
    const time = timeOf(x, view, width);
    if (free) return time;
    const item = this.hit(x, y);
    const shape = this.model.shape.peek();
    const bands = [...(shape?.steps ?? []), ...(shape?.phases ?? [])];
    const edges = [...(item ? [item.start, item.end] : []), ...bands.flatMap((s) => [s.start_ns, s.end_ns]), ...this.model.marks.peek()];
    let best = time;
    let least = (SNAP / width) * lengthOf(view);
    for (const edge of edges) if (Math.abs(edge - time) < least) [best, least] = [edge, Math.abs(edge - time)];
    return best;
  }

  hover(x: number, y: number): void {
    const { model } = this;
    const item = this.hit(x, y);
    const old = model.hover.peek();
    model.pointer = timeOf(x, model.window.peek(), model.width.peek());
    if (item || old) model.hover.value = item;
    model.reading.value = item ? null : this.read(x, y);
    window.clearTimeout(this.linkTimer);
    if (item && !model.embedded) this.linkTimer = window.setTimeout(() => void model.hoverDetail(item), LINKS_AFTER);
    this.schedule();
  }

  leave(): void {
    window.clearTimeout(this.linkTimer);
    this.model.pointer = null;
    this.model.hover.value = this.model.reading.value = null;
    this.schedule();
  }

  /** What a counter or a group says at a place of the rows. */
  private read(x: number, y: number): Reading | null {
    const { model } = this;
    const track = this.rowAt(y)?.row.track;
    const [view, width] = [model.window.peek(), model.width.peek()];
    const time = timeOf(x, view, width);
    if (!track || time < 0 || time > model.all.peek().end) return null;
    const z = levelIn({ view, width, cache: model.cache });
    const rows = readingOf(track, model.cache.covering(track.track, z, Math.floor(time / 2 ** (z + 10))), time, model.shape.peek()?.categories ?? []);
    return rows && { track, time, rows, x, y };
  }
}

/** Calls `then` whenever a CSS pixel has another number of device pixels: the page is zoomed, or on another screen. Returns how to end that. */
function onRatio(then: () => void): () => void {
  let media = window.matchMedia(`(resolution: ${window.devicePixelRatio}dppx)`);
  const changed = (): void => {
    media.removeEventListener("change", changed);
    media = window.matchMedia(`(resolution: ${window.devicePixelRatio}dppx)`);
    media.addEventListener("change", changed);
    then();
  };
  media.addEventListener("change", changed);
  return () => media.removeEventListener("change", changed);
}

/** Watches the size of a canvas in device pixels, which changes with another ratio, too; elsewhere in CSS pixels. */
function watch(watcher: ResizeObserver, canvas: HTMLCanvasElement): void {
  try {
    watcher.observe(canvas, { box: "device-pixel-content-box" });
  } catch {
    watcher.observe(canvas);
  }
}

/** Rows of the overview: devices, or processes where there is none. */
export function overviewRows(model: TimelineModel): ReturnType<TimelineModel["rows"]["groups"]> {
  const groups = model.rows.groups();
  const devices = groups.filter((t) => t.kind === "device");
  return devices.length ? devices : groups.filter((t) => t.kind === "process");
}

export function Plot({ model, height, onOpen }: PlotProps): JSX.Element {
  const keep = useRef<Surface | null>(null);
  const surface = (keep.current ??= new Surface(model, model.embedded));
  const box = useRef<HTMLDivElement>(null);

  // not useSignalEffect, which waits for a frame: the drawing would come one later
  useEffect(() => effect(() => {
    void [model.window.value, model.rows.shown.value, model.hover.value, model.hovered.value, model.detail.value, model.selected.value, model.area.value, model.marks.value, model.finder.state.value, model.patterns.value, model.drawn.value, model.names.value, model.width.value, model.height.value, model.shape.value, model.compared.value, model.path.flows.value, dark.value];
    surface.schedule();
  }), []);

  useEffect(() => {
    const el = surface.body!;
    const measure = (): void => {
      model.width.value = Math.max(40, el.clientWidth);
      model.height.value = el.clientHeight;
      surface.schedule();
    };
    const watcher = new ResizeObserver((entries) => {
      surface.sized(entries);
      measure();
    });
    for (const canvas of [el, surface.head!]) watch(watcher, canvas);
    measure();
    const shown = (): void => surface.schedule();
    document.addEventListener("visibilitychange", shown);
    const endRatio = onRatio(shown);
    el.addEventListener("contextrestored", shown);
    const wheel = (event: WheelEvent): void => onWheel(surface, event, el);
    const headWheel = (event: WheelEvent): void => onWheel(surface, event, surface.head!);
    el.addEventListener("wheel", wheel, { passive: false });
    surface.head!.addEventListener("wheel", headWheel, { passive: false });
    (box.current as unknown as { timeline?: unknown }).timeline = surface; // for measuring frames from outside
    return () => {
      watcher.disconnect();
      document.removeEventListener("visibilitychange", shown);
      endRatio();
      surface.stop();
    };
  }, []);

  useEffect(() => { if (surface.scroller && Math.abs(surface.scroller.scrollTop - model.scroll.peek()) > 1) surface.scroller.scrollTop = model.scroll.peek(); }, [model.scroll.value, model.shape.value]);

  // what was selected elsewhere, by a link, a key or the search, is scrolled to
  useSignalEffect(() => {
    const found = model.detail.value;
    const row = found && model.rows.rowOf(found.track);
    if (found && row) surface.toLane(row, found.lane);
  });

  // of a small one, the lane of what it is about
  useSignalEffect(() => {
    const [part, drawn] = [model.highlight[0], model.drawn.value];
    const key = part && JSON.stringify(part);
    if (!model.embedded || !part || !drawn || key === surface.proven) return;
    const found = surface.laneOf(part[0], part[1]);
    if (!found) return;
    surface.proven = key!;
    surface.toLane(found.row, found.lane, 0.7);
  });

  const parts = surface.parts();
  const shown = model.rows.shown.value;
  return (
    <div class="tl-plot" ref={box}>
      <div class="tl-head">
        <HeadLabels model={model} parts={parts} />
        <canvas ref={(el) => { surface.head = el; }} class="tl-canvas-head" style={{ height: `${parts.height}px` }} aria-hidden="true" onPointerDown={(e) => headDown(surface, e)} onPointerMove={(e) => headMove(surface, e)} onPointerUp={(e) => headUp(surface, e)} onPointerLeave={() => surface.leave()} onDblClick={(e) => headDouble(surface, e)} />
      </div>
      <div class="tl-body" ref={(el) => { surface.scroller = el; }} style={{ height: `${height}px` }} onScroll={(e) => { model.scrolled(e.currentTarget.scrollTop); surface.schedule(); }}>
        <div class="tl-space" style={{ height: `${shown.height + shown.pinnedHeight}px` }}>
          <canvas
            ref={(el) => { surface.body = el; }} class="tl-canvas" role="img" aria-label="Events by time: rows of threads, streams and counters; the keys of the timeline move through them" style={{ height: `${height}px` }}
            onPointerDown={(e) => bodyDown(surface, e)} onPointerMove={(e) => bodyMove(surface, e)} onPointerUp={(e) => bodyUp(surface, e, onOpen)} onPointerLeave={() => { if (!surface.drag) surface.leave(); }} onPointerCancel={() => { surface.drag = surface.dragSpan = null; }} onDblClick={() => model.fit()}
          />
          <Tree model={model} from={model.scroll.value} height={height} toRow={(row) => surface.toRow(row)} />
        </div>
      </div>
    </div>
  );
}

function HeadLabels({ model, parts }: { model: TimelineModel; parts: Parts }): JSX.Element {
  const shape = model.shape.value;
  const rows = shape ? overviewRows(model) : [];
  const device = rows[0]?.kind === "device";
  return (
    <div class="tl-side" style={{ height: `${parts.height}px` }}>
      {parts.overview[1] > 0 && <div class="tl-side-overview" style={{ height: `${OVERVIEW + 8}px` }}><strong>Everything</strong><span class="quiet">{device ? (rows.length > 1 ? `use of ${rows.length} devices` : `${rows[0]!.label} use`) : "host use"}</span></div>}
      <div class="tl-side-ruler quiet" style={{ height: `${parts.ruler[1] - parts.ruler[0]}px` }} data-tip={shape ? clockTip(model) : undefined}>{shape && (methodOf(model) || (shape.absolute ? "time" : "time, no base clock"))}</div>
      {parts.steps && <div style={{ height: `${BAND}px` }}>Steps</div>}
      {parts.phases && <div style={{ height: `${parts.phases[1] - parts.phases[0]}px` }}>Phases</div>}
    </div>
  );
}

function clockTip(model: TimelineModel): string {
  const shape = model.shape.value!;
  const lines = shape.alignment.map((a) => `${a.worker || "recording"}: ${a.text}${a.uncertainty_ns ? `, ± ${a.uncertainty_ns} ns` : ""}`);
  return ["Drag the ruler to pan (A, D), click it to mark a time (M)", `ns after the first event${shape.origin_ns ? `, which began ${shape.origin_ns} ns after the epoch` : ""}`, ...lines.slice(0, 12)].join("\n");
}
