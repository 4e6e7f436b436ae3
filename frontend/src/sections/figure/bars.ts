// Bars: at most so thick, hatched ones with an edge. Pure.
export type Plain = Record<string, unknown>;

export const isPlain = (v: unknown): v is Plain => typeof v === "object" && v !== null && !Array.isArray(v);

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

/** px of a letter beside a bar and of one of a name, about; around either; the least that bars keep of the room for them and their texts. */
const LETTER = 6.6;
const NAME_LETTER = 7.3;
const AROUND = 14;
const LEAST = 0.25;

/** px of a figure below which names have no more room than they need, and the axis goes on until the texts beside bars fit. */
export const NARROW_FROM = 700;

/** In a narrow figure, lying bars leave room for the texts beside them. Changes the layout in place. */
export function roomForTexts(data: readonly Plain[], layout: Plain): void {
  const width = Number(layout["width"]);
  const beside = data.filter((t) => isBar(t) && t["orientation"] === "h" && t["textposition"] === "outside" && t["base"] === undefined && Array.isArray(t["text"]) && Array.isArray(t["x"]));
  const axis = layout["xaxis"] as Plain;
  const range = axis["range"];
  if (!beside.length || !(width > 0 && width < NARROW_FROM) || axis["type"] === "log" || !Array.isArray(range) || range[0] !== 0) return;
  const margin = { l: 58, r: 14, ...(layout["margin"] as Record<string, number> | undefined) };
  const names = beside.flatMap((t) => (Array.isArray(t["y"]) ? t["y"].map((y) => String(y).length) : []));
  const left = Math.min(margin.l, Math.max(0, ...names) * NAME_LETTER + AROUND);
  const room = width - left - margin.r;
  const ends = beside.flatMap((t) => (t["x"] as unknown[]).map((x, i) => {
    const text = String((t["text"] as unknown[])[i] ?? "").replace(/<[^>]*>/g, "");
    return (Number(x) || 0) / Math.max(LEAST, 1 - (text.length * LETTER + AROUND) / room);
  }));
  layout["margin"] = { ...margin, l: left };
  layout["xaxis"] = { ...axis, range: [0, Math.max(Number(range[1]), ...ends)] };
}

/** Part of the way to the next word of its height that a word in the middle of a gap may take. */
const OF_GAP = 0.5;

/** In a narrow figure, words that would run over the names or the edge keep their first number, and words in gaps that are too short go. In place. */
export function fitWords(layout: Plain): void {
  const axis = layout["xaxis"] as Plain;
  const { range } = axis;
  const words = layout["annotations"];
  const width = Number(layout["width"]);
  if (!(width > 0 && width < NARROW_FROM) || !Array.isArray(range) || !Array.isArray(words) || axis["type"] === "log") return;
  const margin = { l: 58, r: 14, ...(layout["margin"] as Record<string, number> | undefined) };
  const scale = Math.max(0, width - margin.l - margin.r) / (Number(range[1]) - Number(range[0]));
  const lengthOf = (text: unknown): number => String(text).replace(/<[^>]*>/g, "").length * LETTER;
  const centered = words.filter((w): w is Plain => isPlain(w) && typeof w["x"] === "number" && (w["xanchor"] ?? "center") === "center" && !w["xref"]);
  const apart = (w: Plain): number => Math.min(...centered.filter((o) => o !== w && o["y"] === w["y"]).map((o) => Math.abs(Number(o["x"]) - Number(w["x"]))));
  layout["annotations"] = words.flatMap((w) => {
    if (!isPlain(w) || typeof w["x"] !== "number" || w["xref"]) return [w];
    if (centered.includes(w)) return lengthOf(w["text"]) > apart(w) * scale * OF_GAP ? [] : [w];
    const [at, long] = [(w["x"] - Number(range[0])) * scale, lengthOf(w["text"]) + AROUND];
    const over = w["xanchor"] === "right" ? long > at : at + long > width - margin.l;
    return [over ? { ...w, text: String(w["text"]).split("  ")[0] } : w];
  });
}

/** px by which the names beside an axis may take more than their margin. */
const BESIDE_NAMES = 30;

/** A title below a figure that is wider than its room goes on in further lines; its unit stays with the word before. In place. */
export function fitTitle(layout: Plain): void {
  const axis = layout["xaxis"] as Plain;
  const title = isPlain(axis["title"]) ? axis["title"] : {};
  const text = String(title["text"] ?? "");
  const width = Number(layout["width"]);
  const margin = { l: 58, r: 14, ...(layout["margin"] as Record<string, number> | undefined) };
  const room = (width - margin.l + margin.r - BESIDE_NAMES) / LETTER;
  if (!(width > 0 && width < NARROW_FROM) || axis["domain"] || text.includes("<") || text.length <= room) return;
  const lines: string[] = [];
  for (const word of text.replace(/, /g, ",\u00a0").split(" ")) {
    const line = lines.at(-1);
    if (line !== undefined && line.length + 1 + word.length <= room) lines[lines.length - 1] = `${line} ${word}`;
    else lines.push(word);
  }
  layout["xaxis"] = { ...axis, title: { ...title, text: lines.join("<br>") } };
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
