// Bars: at most so thick, hatched ones with an edge. Pure.
type Plain = Record<string, unknown>;

const isPlain = (v: unknown): v is Plain => typeof v === "object" && v !== null && !Array.isArray(v);

/** px that a bar is thick at most: horizontal, vertical */
const MOST = { h: 44, v: 110 };

const isBar = (t: Plain): boolean => t["type"] === "bar";

/** Few categories in a large figure: bars keep a calm width and the room goes between them. Changes traces and layout in place. */
export function capBars(data: readonly Plain[], layout: Plain): void {
  const bars = data.filter(isBar);
  const first = bars[0];
  if (!first) return;
  const lying = first["orientation"] === "h";
  const places = new Set(bars.flatMap((t) => (Array.isArray(t[lying ? "y" : "x"]) ? (t[lying ? "y" : "x"] as unknown[]) : [])));
  const axis = layout[lying ? "yaxis" : "xaxis"] as Plain;
  if (!places.size || (axis["type"] !== "category" && ![...places].every((p) => typeof p === "string"))) return;
  const margin = (layout["margin"] ?? {}) as Record<string, number>;
  const room = lying ? Number(layout["height"]) - (margin["t"] ?? 10) - (margin["b"] ?? 46) : Number(layout["width"]) - (margin["l"] ?? 58) - (margin["r"] ?? 14);
  const band = room / places.size;
  if (!(band > 0)) return;
  const most = (lying ? MOST.h : MOST.v) / band;
  const grouped = (layout["barmode"] ?? "group") === "group" ? new Set(bars.map((t) => t["offsetgroup"] ?? t)).size : 1;
  layout["bargap"] = Math.max(Number(layout["bargap"] ?? 0.3), 1 - most * grouped);
  for (const t of bars) if (typeof t["width"] === "number" && t["offset"] === undefined) t["width"] = Math.min(t["width"], most);
}

/** An edge around hatched bars, so that a pale one is seen as a bar. In place. */
export function edgeHatched(trace: Plain, edge: string): void {
  const marker = trace["marker"];
  if (!isBar(trace) || !isPlain(marker) || !isPlain(marker["pattern"])) return;
  const shape = marker["pattern"]["shape"];
  const line = isPlain(marker["line"]) ? marker["line"] : {};
  const at = (v: unknown, i: number): unknown => (Array.isArray(v) ? v[i] : v);
  if (Array.isArray(shape)) trace["marker"] = { ...marker, line: { ...line, color: shape.map((s, i) => (s ? edge : at(line["color"], i) ?? edge)), width: shape.map((s, i) => (s ? 1 : at(line["width"], i) ?? 0)) } };
  else if (shape) trace["marker"] = { ...marker, line: { ...line, color: edge, width: 1 } };
}
