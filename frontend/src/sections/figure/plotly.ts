// The only file that touches Plotly. It comes from this server, never from elsewhere: a custom bundle of the usual kinds of traces, asked
// for while the first report is on its way; the whole of it only where a figure holds another kind.

export interface PlotPoint {
  customdata?: unknown;
  x?: unknown;
  curveNumber: number;
  pointNumber: number;
  id?: string;
  y?: unknown;
}

export interface PlotEvent {
  points: PlotPoint[];
  range?: unknown;
  nextLevel?: string;
  event?: MouseEvent;
}

export interface PlotElement extends HTMLElement {
  on: (name: string, handler: (event: never) => void) => void;
}

interface Axis {
  _offset: number;
  l2p: (value: number) => number;
  d2l: (value: unknown) => number;
  p2l: (pixel: number) => number;
}

interface PlotlyModule {
  react: (el: HTMLElement, data: unknown[], layout: object, config: object) => Promise<PlotElement>;
  purge: (el: HTMLElement) => void;
  Plots: { resize: (el: HTMLElement) => Promise<void> };
  toImage: (el: HTMLElement | object, options: object) => Promise<string>;
}

/** Kinds of traces in the custom bundle (frontend/plotly/entry.js). */
const USUAL: ReadonlySet<unknown> = new Set(["scatter", "bar", "heatmap", "icicle", undefined]);

/** A script that brings Plotly: its address and the name under which it puts itself into the window. */
interface Script {
  src: string;
  found: () => PlotlyModule | undefined;
  loading?: Promise<PlotlyModule> | undefined;
}

const CUSTOM: Script = {
  src: "vendor/plotly-custom.min.js",
  found: () => (window as unknown as { TbSolPlotly?: { default: PlotlyModule } }).TbSolPlotly?.default,
};
const WHOLE: Script = { src: "vendor/plotly.min.js", found: () => (window as unknown as { Plotly?: PlotlyModule }).Plotly };

function load(script: Script): Promise<PlotlyModule> {
  script.loading ??= new Promise<PlotlyModule>((done, failed) => {
    const there = script.found(); // in a page that was saved as a file
    if (there) return done(there);
    const tag = document.createElement("script");
    tag.src = script.src;
    tag.onload = () => {
      const found = script.found();
      if (found) done(found);
      else failed(new Error(`${script.src} is not Plotly`));
    };
    tag.onerror = () => {
      script.loading = undefined;
      tag.remove();
      failed(new Error(`Charts cannot be drawn: ${script.src} could not be read. The tables hold the same numbers.`));
    };
    document.head.append(tag);
  });
  return script.loading;
}

/** Asks for Plotly before the first figure needs it. A failure is shown where a figure is drawn, not here. */
export function preload(): void {
  load(CUSTOM).catch(() => undefined);
}

/** The script that can draw these traces. */
export function scriptOf(data: unknown[]): Script {
  return data.every((trace) => USUAL.has((trace as { type?: unknown }).type)) ? CUSTOM : WHOLE;
}

/** Which Plotly drew an element: the one that must redraw and purge it. */
const drawnBy = new WeakMap<HTMLElement, Script>();

const CONFIG = { displayModeBar: false, responsive: false, showTips: false, scrollZoom: false, showAxisDragHandles: false };

/** Draws or redraws; resolves when drawn. */
export async function draw(el: HTMLElement, data: unknown[], layout: object, doubleClick: "reset" | false = "reset"): Promise<PlotElement> {
  const [script, before] = [scriptOf(data), drawnBy.get(el)];
  const plotly = await load(script);
  if (before && before !== script) (await load(before)).purge(el);
  drawnBy.set(el, script);
  return plotly.react(el, data, layout, { ...CONFIG, doubleClick });
}

export async function resize(el: HTMLElement): Promise<void> {
  const script = drawnBy.get(el);
  if (!script || !el.offsetWidth || !el.classList.contains("js-plotly-plot")) return;
  await (await load(script)).Plots.resize(el);
}

export async function purge(el: HTMLElement): Promise<void> {
  const script = drawnBy.get(el);
  if (script) (await load(script)).purge(el);
}

/** Whether two boxes share more than their edges. */
export function overlap(a: { left: number; right: number; top: number; bottom: number }, b: typeof a): boolean {
  return a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
}

/** px² that two boxes share. */
export function sharedArea(a: { left: number; right: number; top: number; bottom: number }, b: typeof a): number {
  return Math.max(0, Math.min(a.right, b.right) - Math.max(a.left, b.left)) * Math.max(0, Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top));
}

type Sides = { left: number; right: number; top: number; bottom: number };
/** px between a hover box and a card. */
const APART = 6;

/** How far a box must move to clear a card and stay inside a room: the shortest way, across or up and down; null where no way is left. */
export function wayOff(box: Sides, card: Sides, room: Sides): { x: number; y: number } | null {
  if (!overlap(box, card)) return { x: 0, y: 0 };
  const ways = [{ x: card.left - APART - box.right, y: 0 }, { x: card.right + APART - box.left, y: 0 }, { x: 0, y: card.top - APART - box.bottom }, { x: 0, y: card.bottom + APART - box.top }];
  const inside = ({ x, y }: { x: number; y: number }): boolean => box.left + x >= room.left && box.right + x <= room.right && box.top + y >= room.top && box.bottom + y <= room.bottom;
  return ways.filter(inside).sort((a, b) => Math.abs(a.x + a.y) - Math.abs(b.x + b.y))[0] ?? null;
}

/** Moves the hover boxes of a figure off a card that stands in it; one that has no place beside the card is not shown. */
export function keepOff(el: HTMLElement, card: Element | null | undefined): void {
  if (!card) return;
  const [over, room] = [card.getBoundingClientRect(), el.getBoundingClientRect()];
  for (const label of el.querySelectorAll<SVGGElement>(".hoverlayer .hovertext")) {
    label.style.translate = "";
    const way = wayOff(label.getBoundingClientRect(), over, room);
    label.style.visibility = way ? "" : "hidden";
    if (way) label.style.translate = `${way.x}px ${way.y}px`;
  }
}

/** Labels that are shown whatever is behind them: the highest roof and the program's own point. */
const ALWAYS = 2;
/** px² of points behind a label up to which it can be read. */
const READABLE = 90;
/** px of a mark that is no point of data: where lines meet. */
const DOT = 7;

/** Hides labels that a more important one, earlier in the list, or points leave no room for: the server placed them for a usual width. */
export function hideCollisions(el: HTMLElement): void {
  const kept: DOMRect[] = [];
  const points = [...el.querySelectorAll(".scatterlayer .points path")].map((p) => p.getBoundingClientRect()).filter((b) => b.width > DOT);
  el.querySelectorAll<SVGGElement>(".annotation").forEach((label, i) => {
    label.style.visibility = "";
    const box = label.getBoundingClientRect();
    const turned = /rotate\(-?(?!0[,)])\d/.test(label.querySelector(".annotation-text-g")?.getAttribute("transform") ?? ""); // its box is much larger than the words
    const covered = i < ALWAYS || turned ? 0 : points.reduce((sum, p) => sum + sharedArea(p, box), 0);
    if (covered > READABLE || kept.some((k) => overlap(k, box))) label.style.visibility = "hidden";
    else kept.push(box);
  });
}

/** Pixels of a place in data units inside a drawn figure; null where its axes are not drawn. */
export function placeOf(el: HTMLElement, axes: string, x: unknown, y: unknown): { x: number; y: number } | null {
  const layout = (el as unknown as { _fullLayout?: Record<string, Axis | undefined> })._fullLayout;
  const [across, up] = [layout?.[`xaxis${axes}`], layout?.[`yaxis${axes}`]];
  if (!across || !up) return null;
  const [left, top] = [across._offset + across.l2p(across.d2l(x)), up._offset + up.l2p(up.d2l(y))];
  return Number.isFinite(left) && Number.isFinite(top) ? { x: left, y: top } : null;
}

/** How near, in pixels, a click must be to a point to mean the point itself. */
const SNAP = 6;

/** Where on the x axis a click means: the nearest point's place where it is near, else the place itself; with the axis' length. */
export function clickedAt(el: HTMLElement, event: PlotEvent): { x: number; width: number } | null {
  const axis = (el as unknown as { _fullLayout?: Record<string, (Axis & { range: [number, number] }) | undefined> })._fullLayout?.["xaxis"];
  if (!axis || !event.event) return null;
  const pixel = event.event.clientX - el.getBoundingClientRect().left - axis._offset;
  const near = event.points.map((p) => p.x).find((x): x is number => typeof x === "number" && Math.abs(axis.l2p(x) - pixel) <= SNAP);
  return { x: near ?? axis.p2l(pixel), width: axis.range[1] - axis.range[0] };
}

/** The figure as a picture, on a ground of `background`. */
export async function picture(data: unknown[], layout: Record<string, unknown>, format: "png" | "svg", background: string, width: number, height: number): Promise<string> {
  const plotly = await load(scriptOf(data));
  return plotly.toImage({ data, layout: { ...layout, width, height, paper_bgcolor: background } }, { format, width, height, scale: format === "png" ? 2 : 1 });
}
