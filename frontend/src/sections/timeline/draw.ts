// One frame of the rows: items as a raster, then words, counters, bands, selection and links on top.
import type { Flow, FlowEnd, PhaseBand, StepBand } from "../../api/timeline";
import type { TileCache } from "./cache";
import type { Paint } from "./colors";
import { chosen, collect, Cutter, gapText, type Label, PAD } from "./labels";
import type { NameTable } from "./names";
import { drawPath } from "./path";
import { clearStretch, drawLane, drawLevel, drawSummary, type Emphasis, Level, type Raster, stretchOf } from "./raster";
import { GROUP, laneTop, type Placed, placed, type Row, type Shown } from "./rows";
import type { Slices, Tile } from "./tile";
import { lengthOf, tilesOf, type Span, ticksOf, xOf } from "./viewport";
import { levelIn } from "./wanted";

export const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';

/** Colors of the theme. */
export interface Tokens {
  surface: string;
  sunken: string;
  line: string;
  strong: string;
  ink: string;
  ink2: string;
  ink3: string;
  accent: string;
  accentBg: string;
  onAccent: string;
  warn: string;
  bar: string;
}

export interface Scene {
  view: Span;
  span: number;
  /** last moment of each worker */
  ends: readonly number[];
  shown: Shown;
  scroll: number;
  /** CSS px of the plot */
  width: number;
  height: number;
  /** device pixels per CSS pixel */
  ratio: number;
  cache: TileCache;
  names: NameTable;
  paint: Paint;
  tokens: Tokens;
  how: Emphasis;
  letters: readonly string[] | null;
  steps: readonly StepBand[];
  phases: readonly PhaseBand[];
  marks: readonly number[];
  highlight: readonly [number, number, string][];
  area: (Span & { tracks: ReadonlySet<number> | null }) | null;
  /** event to outline: track, lane, start, end */
  outlines: readonly { track: number; lane: number; start: number; end: number; strong: boolean }[];
  flows: readonly Flow[];
  /** the critical path */
  path: readonly Flow[];
  compared: readonly Span[];
}

export interface Drawn {
  items: number;
  events: number;
  more: boolean;
}

type Point = readonly [number, number];
const CURVE = 40;
/** px of the name at an end of a link that is out of view, at least */
const STUB = 80;

/** Points of a Bezier curve, without its very ends, where the events are. */
function curve(a: Point, b: Point, c: Point, d: Point): [number, number][] {
  return Array.from({ length: CURVE - 3 }, (_, k) => {
    const t = (k + 2) / CURVE;
    const at = (i: 0 | 1): number => (1 - t) ** 3 * a[i] + 3 * (1 - t) ** 2 * t * b[i] + 3 * (1 - t) * t ** 2 * c[i] + t ** 3 * d[i];
    return [at(0), at(1)];
  });
}

/** Rows of pixels of a summary. */
const TALL = GROUP - 8;

export class Painter {
  private readonly strip = document.createElement("canvas");
  private readonly stripContext = this.strip.getContext("2d", { willReadFrequently: false })!;
  private image: ImageData | null = null;
  private cutter: Cutter | null = null;
  private arrows: { flow: Flow; points: [number, number][]; stub: [number, number] | null }[] = [];
  private readonly dashed = new Map<string, CanvasPattern | string>();

  /** Draws a frame with the tiles that are here. Returns how many items it has. */
  draw(ctx: CanvasRenderingContext2D, s: Scene): Drawn {
    const { ratio, width, height } = s;
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.fillStyle = s.tokens.surface;
    ctx.fillRect(0, 0, width, height);
    const rows = placed(s.shown, s.scroll, height);
    this.behind(ctx, s, rows);
    const out: Drawn = { items: 0, events: 0, more: false };
    const raster = this.raster(s, rows);
    const labels: Label[] = [];
    this.items(s, rows, raster, labels, out);
    this.blit(ctx, s, rows, raster);
    this.bands(ctx, s);
    this.words(ctx, s, labels);
    this.above(ctx, s, rows);
    this.pinnedEdge(ctx, s);
    return out;
  }

  // -- items --------------------------------------------------------------------------------------------------------------

  private raster(s: Scene, rows: readonly Placed[]): Raster {
    const width = Math.max(1, Math.round(s.width * s.ratio));
    const lines = Math.max(1, rows.reduce((sum, { row }) => sum + linesOf(row, s.ratio), 0));
    if (!this.image || this.image.width !== width || this.image.height < lines) this.image = new ImageData(width, Math.max(lines, 64));
    const pixels = new Uint32Array(this.image.data.buffer, 0, width * this.image.height);
    pixels.fill(0, 0, width * lines);
    return { pixels, width };
  }

  private items(s: Scene, rows: readonly Placed[], raster: Raster, labels: Label[], out: Drawn): void {
    const z = levelIn(s);
    const [first, last] = tilesOf(s.view, z, s.span);
    let line = 0;
    for (const { row, y } of rows) {
      const track = row.track.track;
      const lines = linesOf(row, s.ratio);
      if (lines || row.track.kind === "counter") {
        for (let i = first; i <= last; i++) {
          const covering = s.cache.covering(track, z, i);
          const width = 2 ** (z + 10);
          const from = i === first ? -Infinity : i * width;
          if (covering.tile) this.tile(s, raster, line, row, y, covering.tile, from, (i + 1) * width, labels, out, i === first);
          for (const tile of covering.finer) {
            const part = stretchOf(tile);
            for (let k = 0; k < lines; k++) clearStretch(raster, line + k, s.view, part.start, part.end);
            this.tile(s, raster, line, row, y, tile, part.start, part.end, labels, out, false);
          }
        }
      }
      if (lines && row.track.kind === "counter") this.counter(s, row, raster, line);
      line += lines;
    }
  }

  private tile(s: Scene, raster: Raster, line: number, row: Row, y: number, tile: Tile, from: number, to: number, labels: Label[], out: Drawn, edge: boolean): void {
    if (tile.kind === "summary") return drawSummary(raster, line, linesOf(row, s.ratio), tile, s.view, from, to, s.paint);
    if (tile.kind !== "slices") return;
    for (let lane = 0; lane < Math.min(row.lanes, tile.bounds.length - 1); lane++) {
      drawLane(raster, line + lane, tile, lane, s.view, from, to, s.names.categories, s.paint, s.how);
      if (row.lane >= 14) collect(labels, tile, lane, s.view, s.width, y + laneTop(row, lane) - row.y, row.lane, from, to, s.names.categories, row.pinned);
    }
    count(tile, row, Math.max(from, s.view.start), Math.min(to, s.view.end), edge, out);
  }

  private blit(ctx: CanvasRenderingContext2D, s: Scene, rows: readonly Placed[], raster: Raster): void {
    const image = this.image!;
    if (this.strip.width !== image.width || this.strip.height !== image.height) Object.assign(this.strip, { width: image.width, height: image.height });
    this.stripContext.putImageData(image, 0, 0);
    ctx.imageSmoothingEnabled = false;
    ctx.save();
    let line = 0;
    let clipped = false;
    for (const { row, y } of rows) {
      if (!clipped && !s.shown.pinned.includes(row)) {
        clipped = true;
        ctx.beginPath();
        ctx.rect(0, s.shown.pinnedHeight, s.width, s.height);
        ctx.clip();
      }
      const lines = linesOf(row, s.ratio);
      if (row.lanes) {
        const top = y + laneTop(row, 0) - row.y;
        ctx.drawImage(this.strip, 0, line, raster.width, row.lanes, 0, top, s.width, row.lanes * row.lane);
        ctx.fillStyle = s.tokens.surface;
        const gap = row.lane < 14 ? 1 : 2;
        for (let k = 0; k < row.lanes; k++) ctx.fillRect(0, top + (k + 1) * row.lane - gap, s.width, gap);
      } else if (lines) ctx.drawImage(this.strip, 0, line, raster.width, lines, 0, y + 4, s.width, row.height - 8);
      line += lines;
    }
    ctx.restore();
  }

  // -- words --------------------------------------------------------------------------------------------------------------

  private words(ctx: CanvasRenderingContext2D, s: Scene, labels: Label[]): void {
    ctx.font = FONT;
    ctx.textBaseline = "middle";
    this.cutter ??= new Cutter((text) => ctx.measureText(text).width);
    let ink = "";
    ctx.save();
    const floor = s.shown.pinnedHeight;
    let clipped = !floor;
    for (const label of chosen(labels).sort((a, b) => Number(b.pinned) - Number(a.pinned))) {
      if (!label.pinned && label.y + label.height <= floor) continue;
      if (!label.pinned && !clipped) {
        clipped = true;
        ctx.beginPath();
        ctx.rect(0, floor, s.width, s.height);
        ctx.clip();
      }
      const letter = s.letters?.[label.category];
      const [name, narrow] = [s.names.short(label.name), s.names.narrow(label.name)];
      const before = letter ? `${letter}\u2009` : "";
      const text = this.cutter.cut(before + (name === narrow || this.cutter.fits(before + name, label.width) ? name : narrow), label.width);
      if (!text) continue;
      const next = s.how.same === label.name ? s.paint.brightInks[label.category]! : s.how.found && !s.how.found.has(label.name) ? s.paint.fadedInks[label.category]! : s.paint.inks[label.category]!;
      if (next !== ink) ctx.fillStyle = ink = next;
      ctx.fillText(text, label.x + PAD, label.y + (label.height - 1) / 2);
    }
    ctx.restore();
  }

  // -- counters -----------------------------------------------------------------------------------------------------------

  private counter(s: Scene, row: Row, raster: Raster, line: number): void {
    const { track } = row;
    const [low, high] = [Math.min(track.min_value ?? 0, 0), track.max_value ?? 1];
    const z = levelIn(s);
    const [first, last] = tilesOf(s.view, z, s.span);
    const level = new Level(s.view, raster.width);
    for (let i = first; i <= last; i++) {
      const found = s.cache.covering(track.track, z, i);
      const parts = found.tile && !found.finer.length ? [found.tile] : [...(found.tile ? [found.tile] : []), ...found.finer];
      for (const tile of parts) if (tile.kind === "counter") level.add(tile, i * 2 ** (z + 10), (i + 1) * 2 ** (z + 10));
    }
    level.until(Math.min(s.view.end, s.ends[track.worker] ?? s.span));
    drawLevel(raster, line, linesOf(row, s.ratio), level, low, high, s.tokens.bar, s.ratio);
  }

  // -- around the items ---------------------------------------------------------------------------------------------------

  private behind(ctx: CanvasRenderingContext2D, s: Scene, rows: readonly Placed[]): void {
    ctx.lineWidth = 1;
    for (const { row, y } of rows) {
      if (row.group) {
        ctx.fillStyle = s.tokens.sunken;
        ctx.fillRect(0, y, s.width, row.height);
      }
    }
    ctx.fillStyle = s.tokens.line;
    for (const tick of ticksOf(s.view, s.width)) ctx.fillRect(Math.round(xOf(tick.time, s.view, s.width)), 0, 1, s.height);
    for (const { row, y } of rows) ctx.fillRect(0, Math.round(y + row.height) - 1, s.width, 1);
    for (const [start, end] of s.highlight) {
      const x0 = xOf(start, s.view, s.width);
      ctx.fillStyle = s.tokens.accentBg;
      ctx.fillRect(x0, 0, Math.max(1, xOf(end, s.view, s.width) - x0), s.height);
    }
  }

  /** Edges of steps, and fainter those of phases, through all rows; words stand on them. */
  private bands(ctx: CanvasRenderingContext2D, s: Scene): void {
    ctx.fillStyle = this.dashes(ctx, s.tokens.line);
    const least = (LEAST_PHASE / s.width) * lengthOf(s.view);
    for (const x of bandEdges(s.phases.filter((p) => p.depth === 0 && p.end_ns - p.start_ns >= least), s.view, s.width)) ctx.fillRect(x, 0, 1, s.height);
    ctx.fillStyle = this.dashes(ctx, s.tokens.strong);
    for (const x of bandEdges(s.steps, s.view, s.width)) ctx.fillRect(x, 0, 1, s.height);
  }

  private above(ctx: CanvasRenderingContext2D, s: Scene, rows: readonly Placed[]): void {
    ctx.lineWidth = 1;
    if (s.path.length) this.path(ctx, s, rows);
    if (s.area) this.areaOf(ctx, s, rows, s.area);
    this.compare(ctx, s);
    ctx.fillStyle = s.tokens.warn;
    for (const mark of s.marks) ctx.fillRect(Math.round(xOf(mark, s.view, s.width)), 0, 1, s.height);
    for (const one of s.outlines) this.outline(ctx, s, rows, one);
    this.arrows = [];
    for (const flow of s.flows) this.arrow(ctx, s, rows, flow);
  }

  private path(ctx: CanvasRenderingContext2D, s: Scene, rows: readonly Placed[]): void {
    const tops = new Map(rows.filter(({ row, y }) => row.pinned || y >= s.shown.pinnedHeight - 2).map(({ row, y }) => [row.track.track, Math.round(y) + 1]));
    drawPath(ctx, s.path, { x: (time) => xOf(time, s.view, s.width), y: (track) => tops.get(track) ?? null, width: s.width, color: s.tokens.accent, halo: s.tokens.surface });
  }

  /** A column of pixels with gaps: faster than a dashed line. */
  private dashes(ctx: CanvasRenderingContext2D, color: string): CanvasPattern | string {
    const known = this.dashed.get(color);
    if (known) return known;
    const tile = document.createElement("canvas");
    Object.assign(tile, { width: 1, height: 5 });
    const own = tile.getContext("2d")!;
    own.fillStyle = color;
    own.fillRect(0, 0, 1, 2);
    const pattern = ctx.createPattern(tile, "repeat") ?? color;
    this.dashed.set(color, pattern);
    return pattern;
  }

  private areaOf(ctx: CanvasRenderingContext2D, s: Scene, rows: readonly Placed[], area: NonNullable<Scene["area"]>): void {
    if (!area.tracks) return this.band(ctx, s, area, 0, s.height, true);
    for (const { row, y } of rows) if (area.tracks.has(row.track.track)) this.band(ctx, s, area, Math.max(y, row.pinned ? 0 : s.shown.pinnedHeight), y + row.height, false);
    this.band(ctx, s, area, 0, 0, true);
  }

  private band(ctx: CanvasRenderingContext2D, s: Scene, span: Span, y0: number, y1: number, edges: boolean): void {
    const [x0, x1] = [xOf(span.start, s.view, s.width), xOf(span.end, s.view, s.width)];
    ctx.globalAlpha = 0.1;
    ctx.fillStyle = s.tokens.accent;
    if (y1 > y0) ctx.fillRect(x0, y0, Math.max(1, x1 - x0), y1 - y0);
    ctx.globalAlpha = 1;
    if (!edges) return;
    for (const x of [x0, x1]) if (x >= -1 && x <= s.width + 1) ctx.fillRect(Math.round(x), 0, 1, s.height);
  }

  /** The gap between the last two events that were added to the selection. */
  private compare(ctx: CanvasRenderingContext2D, s: Scene): void {
    const [a, b] = s.compared.slice(-2);
    if (!a || !b) return;
    const [first, second] = a.start <= b.start ? [a, b] : [b, a];
    const [x0, x1] = [xOf(first.end, s.view, s.width), xOf(second.start, s.view, s.width)];
    const y = s.height - 12;
    ctx.strokeStyle = ctx.fillStyle = s.tokens.accent;
    ctx.beginPath();
    ctx.moveTo(x0, y);
    ctx.lineTo(x1, y);
    ctx.stroke();
    for (const x of [x0, x1]) ctx.fillRect(Math.round(x), y - 4, 1, 9);
    ctx.font = FONT;
    ctx.textBaseline = "alphabetic";
    ctx.fillText(gapText(a, b), Math.max(4, Math.min((x0 + x1) / 2 - 30, s.width - 90)), y - 6);
  }

  private yOf(s: Scene, rows: readonly Placed[], track: number, lane: number): [top: number, height: number] | null {
    const found = rows.find(({ row }) => row.track.track === track);
    if (!found || !found.row.lanes) return null;
    const at = Math.min(lane, found.row.lanes - 1);
    const top = found.y + laneTop(found.row, at) - found.row.y;
    return !found.row.pinned && top < s.shown.pinnedHeight - 2 ? null : [top, found.row.lane - 2];
  }

  private outline(ctx: CanvasRenderingContext2D, s: Scene, rows: readonly Placed[], one: Scene["outlines"][number]): void {
    const place = this.yOf(s, rows, one.track, one.lane);
    if (!place) return;
    const x0 = Math.max(-3, xOf(one.start, s.view, s.width));
    const x1 = Math.min(s.width + 3, Math.max(xOf(one.end, s.view, s.width), xOf(one.start, s.view, s.width) + 2));
    if (x1 < 0 || x0 > s.width) return;
    ctx.strokeStyle = one.strong ? s.tokens.accent : s.tokens.ink2;
    ctx.lineWidth = one.strong ? 2 : 1;
    ctx.strokeRect(x0 - 0.5, place[0] - 0.5, x1 - x0 + 1, place[1] + 1);
  }

  /** A link between two events; an end outside of what is shown is a stub with the name of its row. */
  private arrow(ctx: CanvasRenderingContext2D, s: Scene, rows: readonly Placed[], flow: Flow): void {
    const end = (e: FlowEnd, time: number): { x: number; y: number; name: string } => {
      const place = this.yOf(s, rows, e.track, e.lane);
      const x = xOf(time, s.view, s.width);
      const row = rows.find(({ row }) => row.track.track === e.track)?.row ?? s.shown.rows.find((r) => r.track.track === e.track);
      const below = !row || row.y >= s.scroll;
      return { x: Math.max(-2, Math.min(x, s.width + 2)), y: place ? place[0] + place[1] / 2 : below ? s.height - 4 : s.shown.pinnedHeight + 4, name: place ? "" : (row?.track.label ?? e.name) };
    };
    const [a, b] = [end(flow.source, flow.source.start_ns), end(flow.target, flow.target.start_ns)];
    if (a.name && b.name) return;
    ctx.strokeStyle = ctx.fillStyle = flow.kind === "launch" ? s.tokens.accent : s.tokens.warn;
    ctx.lineWidth = 1;
    const bend = Math.max(14, Math.abs(b.x - a.x) / 2);
    this.arrows.push({ flow, points: curve([a.x, a.y], [a.x + bend, a.y], [b.x - bend, b.y], [b.x, b.y]), stub: a.name ? [a.x, a.y] : b.name ? [b.x, b.y] : null });
    ctx.beginPath();
    ctx.moveTo(a.x, a.y);
    ctx.bezierCurveTo(a.x + bend, a.y, b.x - bend, b.y, b.x, b.y);
    ctx.stroke();
    ctx.beginPath();
    ctx.moveTo(b.x, b.y);
    ctx.lineTo(b.x - 6, b.y - 3);
    ctx.lineTo(b.x - 6, b.y + 3);
    ctx.fill();
    ctx.font = FONT;
    ctx.textBaseline = "middle";
    for (const one of [a, b]) if (one.name) ctx.fillText(one.name.slice(0, 40), Math.max(2, Math.min(one.x + 4, s.width - 120)), one.y - 6);
  }

  /** The link that is drawn at a place, or whose end outside of the view is. */
  arrowAt(x: number, y: number): Flow | null {
    const near = ([a, b]: readonly [number, number], by: number): boolean => Math.hypot(a - x, b - y) <= by;
    return this.arrows.find((one) => one.stub && x >= one.stub[0] - 6 && x <= one.stub[0] + STUB && Math.abs(one.stub[1] - 4 - y) <= 10)?.flow ?? this.arrows.find((one) => one.points.some((p) => near(p, 4)))?.flow ?? null;
  }

  private pinnedEdge(ctx: CanvasRenderingContext2D, s: Scene): void {
    if (!s.shown.pinned.length) return;
    ctx.fillStyle = s.tokens.strong;
    ctx.fillRect(0, s.shown.pinnedHeight - 1, s.width, 1);
  }
}

/** px of a phase whose edges are lines. */
const LEAST_PHASE = 12;
/** Lines of bands in view, more than which would be a haze. */
const MOST_LINES = 200;

/** Where bands in view begin and end, px, each place once; none where there are too many. */
export function bandEdges(bands: readonly { start_ns: number; end_ns: number }[], view: Span, width: number): number[] {
  const out = new Set<number>();
  for (const band of bands) {
    for (const time of [band.start_ns, band.end_ns]) {
      if (time < view.start || time > view.end) continue;
      out.add(Math.round(xOf(time, view, width)));
      if (out.size > MOST_LINES) return [];
    }
  }
  return [...out];
}

/** Rows of pixels that a row takes in the raster: one of a lane, all of a summary and of an open counter. */
const linesOf = (row: Row, ratio: number): number => (row.group ? TALL : row.track.kind === "counter" ? (row.open ? Math.round((row.height - 8) * ratio) : 0) : row.lanes);

/** Adds up what a tile shows between two times: items, and the events in them. Items that began before count in the first tile only. */
function count(tile: Slices, row: Row, from: number, to: number, edge: boolean, out: Drawn): void {
  for (let lane = 0; lane < Math.min(row.lanes, tile.bounds.length - 1); lane++) {
    for (let k = tile.bounds[lane]!; k < tile.bounds[lane + 1]!; k++) {
      if (tile.start[k]! >= to) break;
      if (tile.end[k]! <= from || (tile.start[k]! < from && !edge)) continue;
      out.items++;
      out.events += tile.count[k]!;
      if (tile.count[k] === 65535) out.more = true;
    }
  }
}
