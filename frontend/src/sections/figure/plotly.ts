// The only file that touches Plotly. It is loaded when the first figure nears the screen, from the server, never from elsewhere.

export interface PlotPoint {
  customdata?: unknown;
  x?: unknown;
  curveNumber: number;
  pointNumber: number;
  id?: string;
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

let loading: Promise<PlotlyModule> | null = null;

function load(): Promise<PlotlyModule> {
  loading ??= new Promise<PlotlyModule>((done, failed) => {
    const script = document.createElement("script");
    script.src = "vendor/plotly.min.js";
    script.onload = () => {
      const found = (window as unknown as { Plotly?: PlotlyModule }).Plotly;
      if (found) done(found);
      else failed(new Error("vendor/plotly.min.js is not Plotly"));
    };
    script.onerror = () => {
      loading = null;
      script.remove();
      failed(new Error("Charts cannot be drawn: vendor/plotly.min.js could not be read. The tables hold the same numbers."));
    };
    document.head.append(script);
  });
  return loading;
}

const CONFIG = { displayModeBar: false, responsive: false, showTips: false, scrollZoom: false, showAxisDragHandles: false };

/** Draws or redraws; resolves when drawn. */
export async function draw(el: HTMLElement, data: unknown[], layout: object, doubleClick: "reset" | false = "reset"): Promise<PlotElement> {
  return (await load()).react(el, data, layout, { ...CONFIG, doubleClick });
}

export async function resize(el: HTMLElement): Promise<void> {
  if (!loading || !el.offsetWidth || !el.classList.contains("js-plotly-plot")) return;
  await (await load()).Plots.resize(el);
}

export async function purge(el: HTMLElement): Promise<void> {
  if (loading) (await load()).purge(el);
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
  const plotly = await load();
  return plotly.toImage({ data, layout: { ...layout, width, height, paper_bgcolor: background } }, { format, width, height, scale: format === "png" ? 2 : 1 });
}
