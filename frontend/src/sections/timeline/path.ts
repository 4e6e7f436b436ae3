// The critical path on the rows: a bar where it runs on a thread or stream, and an arrow wherever it goes to another one.
import { effect, signal } from "@preact/signals";
import type { Places } from "../../api/client";
import { getPath, hasPath } from "../../api/client";
import { inFile } from "../../api/file";
import type { Flow, FlowEnd } from "../../api/timeline";
import type { Span } from "./viewport";

/** ms without a change of the view before it is asked for */
const REST = 120;
/** px of its bar */
export const PATH_BAR = 4;
const HALO = 1;
/** px between two arrows: closer ones would be a block of color */
const APART = 3;

/** Stretches of the path, in order of time. */
export function stretchesOf(flows: readonly Flow[]): FlowEnd[] {
  return flows.length ? [flows[0]!.source, ...flows.map((f) => f.target)] : [];
}

/** Whether what was asked for shows a view as well as a new answer would. */
export function covers(asked: Span | null, view: Span): boolean {
  if (!asked || view.start < asked.start || view.end > asked.end) return false;
  return (view.end - view.start) * 6 >= asked.end - asked.start;
}

export interface PathSource {
  at: () => Places;
  /** the view; read inside of an effect */
  view: () => Span;
  /** whether the rows are known; read inside of an effect */
  ready: () => boolean;
  failed: (error: unknown) => void;
}

export class PathModel {
  readonly on = signal(false);
  readonly flows = signal<readonly Flow[]>([]);
  /** whether there is one to draw: a saved page may hold none */
  readonly there = hasPath();
  private asked: Span | null = null;
  private ask = new AbortController();
  private timer = 0;

  constructor(private from: PathSource) {}

  /** Follows the view; returns how to stop. */
  start(): () => void {
    const end = effect(() => {
      const view = this.from.view();
      window.clearTimeout(this.timer);
      if (!this.on.value || !this.there || !this.from.ready()) return this.forget();
      if (inFile ? !this.asked : !covers(this.asked, view)) this.timer = window.setTimeout(() => void this.load(view), REST);
    });
    return () => {
      end();
      window.clearTimeout(this.timer);
      this.ask.abort();
    };
  }

  /** Other rows, or other workers. */
  forget(): void {
    this.asked = null;
    this.ask.abort();
    if (this.flows.peek().length) this.flows.value = [];
  }

  private async load(view: Span): Promise<void> {
    this.ask.abort();
    const stop = (this.ask = new AbortController()).signal;
    const length = view.end - view.start;
    const [start, end] = [Math.floor(view.start - length), Math.ceil(view.end + length)];
    try {
      const found = await getPath(this.from.at(), { start_ns: start, end_ns: end }, stop);
      if (stop.aborted) return;
      this.asked = { start, end };
      this.flows.value = found.flows;
    } catch (error) {
      if (!stop.aborted) this.from.failed(error);
    }
  }
}

/** What is drawn on: x of a time, and y of the top of a row by its track, null where it is not shown. */
export interface PathPlace {
  x: (time: number) => number;
  y: (track: number) => number | null;
  width: number;
  color: string;
  halo: string;
}

export function drawPath(ctx: CanvasRenderingContext2D, flows: readonly Flow[], on: PathPlace): void {
  const bars: [number, number, number][] = [];
  const arrows: [number, number, number][] = [];
  let last: { end: number; y: number | null } | null = null;
  let before = -APART;
  for (const one of stretchesOf(flows)) {
    const [x0, x1, y] = [on.x(one.start_ns), on.x(one.end_ns), on.y(one.track)];
    if (y !== null && x1 >= 0 && x0 <= on.width) {
      bars.push([Math.max(x0, 0), Math.min(Math.max(x1, x0 + 1), on.width), y]);
      if (last && last.y !== null && last.y !== y && last.end === one.start_ns && x0 - before >= APART) {
        arrows.push([Math.round(x0), last.y, y]);
        before = x0;
      }
    }
    last = { end: one.end_ns, y };
  }
  ctx.fillStyle = on.halo;
  for (const [x0, x1, y] of bars) ctx.fillRect(x0, y - HALO, x1 - x0, PATH_BAR + 2 * HALO);
  ctx.fillStyle = on.color;
  for (const [x, from, to] of arrows) {
    const [top, bottom] = [Math.min(from, to), Math.max(from, to)];
    ctx.fillRect(x, top, 1, bottom - top + PATH_BAR);
    const [tip, back] = to > from ? [to, to - 5] : [to + PATH_BAR, to + PATH_BAR + 5];
    ctx.beginPath();
    ctx.moveTo(x + 0.5, tip);
    ctx.lineTo(x - 2.5, back);
    ctx.lineTo(x + 3.5, back);
    ctx.fill();
  }
  for (const [x0, x1, y] of bars) ctx.fillRect(x0, y, x1 - x0, PATH_BAR);
}
