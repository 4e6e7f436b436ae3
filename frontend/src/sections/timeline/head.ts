// The fixed top of a timeline: the whole recording, the ruler, steps and phases. Drawn on a canvas of its own.
import type { PhaseBand, StepBand, Track } from "../../api/timeline";
import { human, moment } from "../../units";
import type { TileCache } from "./cache";
import { type Paint, mix, channels } from "./colors";
import { bandEdges, FONT, type Tokens } from "./draw";
import { Cutter } from "./labels";
import { drawSummary, type Raster } from "./raster";
import { lengthOf, type Span, ticksOf, xOf } from "./viewport";

export const OVERVIEW = 38;
export const RULER = 22;
export const BAND = 17;
const MOST_PHASE_DEPTH = 3;
const MOST_ROWS = 8;
/** Part of the accent in the fill of a phase, by depth. */
export const PHASE_SHARES = [0.3, 0.2, 0.13];
/** px of the ticks of steps in the overview. */
const STEP_TICK = 6;

export interface Head {
  view: Span;
  all: Span;
  width: number;
  ratio: number;
  cache: TileCache;
  paint: Paint;
  tokens: Tokens;
  steps: readonly StepBand[];
  phases: readonly PhaseBand[];
  /** rows of the overview: devices, or processes of a recording of the host */
  groups: readonly Track[];
  marks: readonly number[];
  /** starts of search hits in equal parts of the whole */
  density: readonly number[] | null;
  area: Span | null;
  pointer: number | null;
}

export interface Parts {
  overview: [number, number];
  ruler: [number, number];
  steps: [number, number] | null;
  phases: [number, number] | null;
  height: number;
}

export const phaseDepth = (phases: readonly PhaseBand[]): number => Math.min(MOST_PHASE_DEPTH, phases.reduce((most, p) => Math.max(most, p.depth + 1), 0));

/** Where the parts of the head stand. compact: of a small timeline, the ruler alone. */
export function partsOf(steps: readonly StepBand[], phases: readonly PhaseBand[], compact: boolean): Parts {
  let y = 0;
  const take = (height: number): [number, number] => {
    const part: [number, number] = [y, y + height];
    y += height;
    return part;
  };
  const overview = take(compact ? 0 : OVERVIEW + 8);
  const ruler = take(RULER);
  const stepBand = steps.length && !compact ? take(BAND) : null;
  const depth = compact ? 0 : phaseDepth(phases);
  const phaseBand = depth ? take(depth * BAND) : null;
  return { overview, ruler, steps: stepBand, phases: phaseBand, height: y };
}

export class HeadPainter {
  private readonly strip = document.createElement("canvas");
  private readonly stripContext = this.strip.getContext("2d")!;
  private cutter: Cutter | null = null;

  draw(ctx: CanvasRenderingContext2D, h: Head, parts: Parts): void {
    const { ratio, width, tokens } = h;
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.fillStyle = tokens.surface;
    ctx.fillRect(0, 0, width, parts.height);
    ctx.font = FONT;
    this.cutter ??= new Cutter((text) => ctx.measureText(text).width);
    if (parts.overview[1] > parts.overview[0]) this.overview(ctx, h);
    this.ruler(ctx, h, parts.ruler);
    if (parts.steps) this.steps(ctx, h, parts.steps);
    if (parts.phases) this.phases(ctx, h, parts.phases);
  }

  private overview(ctx: CanvasRenderingContext2D, h: Head): void {
    const { width, tokens, all } = h;
    const top = 4;
    const rows = h.groups.slice(0, MOST_ROWS);
    const tall = Math.max(3, Math.floor(OVERVIEW / Math.max(rows.length, 1)) - (rows.length > 1 ? 1 : 0));
    ctx.fillStyle = tokens.sunken;
    ctx.fillRect(0, top, width, OVERVIEW);
    const raster: Raster = { pixels: new Uint32Array(Math.round(width) * OVERVIEW), width: Math.round(width) };
    rows.forEach((track, k) => {
      const tile = h.cache.get(track.track, h.cache.top, 0);
      const y = Math.min(OVERVIEW - tall, k * (tall + (rows.length > 1 ? 1 : 0)));
      if (tile?.kind === "summary") drawSummary(raster, y, tall, tile, all, all.start, all.end, h.paint);
    });
    if (this.strip.width !== raster.width || this.strip.height !== OVERVIEW) Object.assign(this.strip, { width: raster.width, height: OVERVIEW });
    this.stripContext.putImageData(new ImageData(new Uint8ClampedArray(raster.pixels.buffer as ArrayBuffer), raster.width), 0, 0);
    ctx.imageSmoothingEnabled = false;
    ctx.drawImage(this.strip, 0, top, width, OVERVIEW);
    ctx.fillStyle = tokens.strong;
    for (const x of bandEdges(h.steps, all, width)) ctx.fillRect(x, top, 1, STEP_TICK);
    this.density(ctx, h, top);
    ctx.fillStyle = tokens.warn;
    for (const mark of h.marks) ctx.fillRect(Math.round(xOf(mark, all, width)), top, 1, OVERVIEW);
    this.frame(ctx, h, top);
  }

  private density(ctx: CanvasRenderingContext2D, h: Head, top: number): void {
    if (!h.density?.length) return;
    const most = Math.max(...h.density);
    ctx.fillStyle = h.tokens.accent;
    const part = h.width / h.density.length;
    h.density.forEach((count, k) => { if (count) ctx.fillRect(k * part, top + OVERVIEW - 2 - 8 * (count / most), Math.max(1, part), 2 + 8 * (count / most)); });
  }

  /** The visible stretch: a frame with two handles, the rest of the recording paler. */
  private frame(ctx: CanvasRenderingContext2D, h: Head, top: number): void {
    const { width, tokens } = h;
    const [x0, x1] = [Math.max(0, xOf(h.view.start, h.all, width)), Math.min(width, xOf(h.view.end, h.all, width))];
    ctx.globalAlpha = 0.55;
    ctx.fillStyle = tokens.surface;
    ctx.fillRect(0, top, x0, OVERVIEW);
    ctx.fillRect(x1, top, width - x1, OVERVIEW);
    ctx.globalAlpha = 1;
    ctx.strokeStyle = tokens.accent;
    ctx.lineWidth = 1.5;
    ctx.strokeRect(x0 + 0.75, top + 0.75, Math.max(2, x1 - x0 - 1.5), OVERVIEW - 1.5);
    ctx.fillStyle = tokens.accent;
    for (const x of [x0, x1]) {
      ctx.beginPath();
      ctx.roundRect(Math.max(0, Math.min(width - 5, x - 2.5)), top + OVERVIEW / 2 - 7, 5, 14, 2.5);
      ctx.fill();
    }
  }

  private ruler(ctx: CanvasRenderingContext2D, h: Head, [top, bottom]: [number, number]): void {
    const { width, tokens, view } = h;
    ctx.textBaseline = "middle";
    ctx.fillStyle = tokens.line;
    ctx.fillRect(0, bottom - 1, width, 1);
    for (const tick of ticksOf(view, width)) {
      const x = Math.round(xOf(tick.time, view, width));
      ctx.fillStyle = tokens.line;
      ctx.fillRect(x, bottom - 6, 1, 6);
      ctx.fillStyle = tokens.ink3;
      if (x + 4 + ctx.measureText(tick.text).width <= width) ctx.fillText(tick.text, x + 4, (top + bottom) / 2);
    }
    const word = (text: string, at: number, fill: string, ink: string): void => {
      const wide = ctx.measureText(text).width + 12;
      const x = Math.max(0, Math.min(width - wide, at - wide / 2));
      ctx.fillStyle = fill;
      ctx.beginPath();
      ctx.roundRect(x, top + 2, wide, RULER - 5, 4);
      ctx.fill();
      ctx.fillStyle = ink;
      ctx.fillText(text, x + 6, (top + bottom) / 2);
    };
    for (const mark of h.marks) {
      const x = xOf(mark, view, width);
      if (x < 0 || x > width) continue;
      ctx.fillStyle = tokens.warn;
      ctx.beginPath();
      ctx.moveTo(x - 5, top + 4);
      ctx.lineTo(x + 5, top + 4);
      ctx.lineTo(x, bottom - 3);
      ctx.fill();
    }
    if (h.area && h.area.end > view.start && h.area.start < view.end) {
      const middle = (Math.max(h.area.start, view.start) + Math.min(h.area.end, view.end)) / 2;
      word(human(lengthOf(h.area), "ns"), xOf(middle, view, width), tokens.accent, tokens.onAccent);
    } else if (h.pointer !== null) word(moment(h.pointer, lengthOf(view) / width), xOf(h.pointer, view, width), tokens.sunken, tokens.ink2);
  }

  private bar(ctx: CanvasRenderingContext2D, h: Head, start: number, end: number, top: number, text: string, fill: string, ink: string): void {
    const [x0, x1] = [Math.max(0, xOf(start, h.view, h.width)), Math.min(h.width, xOf(end, h.view, h.width))];
    if (x1 <= 0 || x0 >= h.width || x1 - x0 < 0.4) return;
    ctx.fillStyle = fill;
    ctx.fillRect(x0, top + 1, Math.max(1, x1 - x0 - 1), BAND - 2);
    const shown = this.cutter!.cut(text, x1 - x0);
    if (!shown) return;
    ctx.fillStyle = ink;
    ctx.textBaseline = "middle";
    ctx.fillText(shown, x0 + 4, top + BAND / 2);
  }

  private steps(ctx: CanvasRenderingContext2D, h: Head, [top]: [number, number]): void {
    for (const step of h.steps) this.bar(ctx, h, step.start_ns, step.end_ns, top, step.complete ? step.label : `${step.label} (cut)`, h.tokens.sunken, h.tokens.ink2);
  }

  private phases(ctx: CanvasRenderingContext2D, h: Head, [top]: [number, number]): void {
    const [surface, accent] = [channels(h.tokens.surface), channels(h.tokens.accent)];
    for (const p of h.phases) {
      if (p.depth >= MOST_PHASE_DEPTH) continue;
      const [r, g, b] = mix(surface, accent, PHASE_SHARES[p.depth]!);
      this.bar(ctx, h, p.start_ns, p.end_ns, top + p.depth * BAND, p.label, `rgb(${r} ${g} ${b})`, h.tokens.ink);
    }
  }
}
