// A report's figure made ready for the page: template, theme, the reader's selection, filter and zoom. Pure.
import type { FigureSection, PointNote, Stretch } from "../../api/types";
import type { Area } from "./area";
import { capBars, edgeHatched, fitTitle, fitWords, isPlain, type Plain, roomForTexts } from "./bars";
import { ALL, isHex, NESTED, mixed, onColor, oneRoot, paintBoxes } from "./boxes";
import { relabeled } from "./ticks";

export interface Look {
  /** the color of the present theme for a light hex of the palette */
  themed: (hex: string) => string;
  token: (name: string) => string;
  width: number;
  /** px; 0 for the height of the section */
  height: number;
  /** selected row key, "" for none */
  selected: string;
  /** keys of the rows that pass the table's filters; null when nothing is filtered */
  keep: ReadonlySet<string> | null;
  zoom: string;
  /** selected areas, and the keys inside them: the other points step back; null when nothing is selected */
  areas: readonly Area[];
  inside: ReadonlySet<string> | null;
  drag: "zoom" | "select";
  /** how nested boxes are colored: as given, or by their self part */
  paint: "given" | "own";
  /** keys of rows whose ratio covers only a part of them */
  partial: ReadonlySet<string>;
  /** what the selected row of a table covers on the x axis */
  covered?: Stretch | null;
}

const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';
/** With what follows of a color that lets some of its ground through. */
const HEX = /#[0-9a-fA-F]{6}(?=(?:[0-9a-fA-F]{2})?\b)/g;

/** Every palette color in a value replaced by its partner; names and texts that hold no hex are untouched. */
export function recolor(value: unknown, themed: (hex: string) => string): unknown {
  if (typeof value === "string") return value.includes("#") ? value.replace(HEX, themed) : value;
  if (Array.isArray(value)) return value.some((v) => typeof v === "object" || (typeof v === "string" && v.includes("#"))) ? value.map((v) => recolor(v, themed)) : value;
  if (isPlain(value)) return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, k === "customdata" || k === "ids" ? v : recolor(v, themed)]));
  return value;
}

/** `over` merged into `base`, objects merged. */
export function merge(base: Plain, over: Plain): Plain {
  const out: Plain = { ...base };
  for (const [k, v] of Object.entries(over)) out[k] = isPlain(v) && isPlain(out[k]) ? merge(out[k] as Plain, v) : v;
  return out;
}

/** The key of the table row of a point: its customdata, or the first of it. */
export function pointKey(custom: unknown): string | null {
  const first: unknown = Array.isArray(custom) ? custom[0] : isPlain(custom) ? custom["key"] : custom;
  return first === null || first === undefined || first === "" ? null : String(first);
}

/** The place of the selected point: its axes ("" or "2"), its place in data units, the px its ring reaches. */
export interface Point {
  axes: string;
  x: unknown;
  y: unknown;
  radius: number;
}

export function ready(s: FigureSection, look: Look): { data: Plain[]; layout: Plain; point: Point | null; shows: boolean } {
  const raw = (s.figure.layout ?? {}) as Plain;
  const axes = Object.keys(raw).filter((k) => /^[xy]axis\d*$/.test(k));
  for (const k of ["xaxis", "yaxis"]) if (!axes.includes(k)) axes.push(k);
  const axis: Plain = {
    gridcolor: look.token("line"), zeroline: false, linecolor: look.token("line-strong"), ticks: "", automargin: true, separatethousands: true,
    tickfont: { size: 11.5, color: look.token("ink-3") }, title: { font: { size: 12, color: look.token("ink-3") }, standoff: 8 },
  };
  const base: Plain = {
    font: { family: FONT, size: 12, color: look.token("ink-2") },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 58, r: 14, t: 10, b: 46 }, showlegend: false, separators: ".\u202f",
    hovermode: "closest", dragmode: look.drag, selections: [], newselection: { line: { color: look.token("accent"), width: 1.2, dash: "dot" } }, autosize: true, bargap: 0.3,
    hoverlabel: { bgcolor: look.token("raised"), bordercolor: look.token("line-strong"), font: { family: FONT, color: look.token("ink"), size: 12 }, align: "left", namelength: 0 },
    ...Object.fromEntries(axes.map((k) => [k, axis])),
  };
  const layout = merge(base, recolor(raw, look.themed) as Plain);
  layout["height"] = Math.max(look.height, s.height ?? 320);
  layout["width"] = look.width;
  layout["hoverlabel"] = merge(layout["hoverlabel"] as Plain, { bgcolor: look.token("raised") });
  layout["showlegend"] = false; // chips above the figure are the legend
  delete layout["template"];
  for (const k of axes) {
    const a = layout[k] as Plain;
    if (a["type"] === "log" && !a["tickvals"] && a["dtick"] === undefined) layout[k] = { ...a, dtick: 1, tickformat: a["tickformat"] ?? ",~f" };
    if (k.startsWith("y") && a["ticklabelstandoff"] === undefined) layout[k] = { ...(layout[k] as Plain), ticklabelstandoff: 4 };
  }
  const data = (s.figure.data ?? []).map((trace) => recolor(trace, look.themed) as Plain);
  capBars(data, layout);
  roomForTexts(data, layout);
  fitWords(layout);
  fitTitle(layout);
  for (const trace of data) {
    contrast(trace, look.token("surface"));
    edgeHatched(trace, look.token("idle-hatch"));
    if (NESTED.has(trace["type"])) oneRoot(trace, look.token("sunken"));
    if (NESTED.has(trace["type"])) paintBoxes(trace, look.paint, look.token, (i) => look.partial.has(pointKey((trace["customdata"] as unknown[] | undefined)?.[i]) ?? ""));
  }
  if (data.some((t) => NESTED.has(t["type"]))) layout["uniformtext"] = { minsize: 10, mode: "hide" };
  const drawn = data.map((trace) => (look.keep ? filtered(trace, look.keep) : trace));
  applyZoom(layout, drawn, look.zoom);
  if (look.inside) for (const trace of drawn) stepBack(trace, look.inside);
  if (look.areas.length) layout["shapes"] = [...((layout["shapes"] as Plain[] | undefined) ?? []), ...look.areas.flatMap((area) => frame(area, layout, look))];
  if (look.covered) cover(look.covered, layout, look);
  const note = look.selected && s.notes && Object.hasOwn(s.notes, look.selected) ? s.notes[look.selected]! : null;
  const ring = look.selected ? selection(drawn, look) : [];
  return { data: [...drawn, ...(note ? toLimit(note, layout, ring, look) : []), ...ring], layout, point: pointOf(ring[0]), shows: ring.length > 0 || drawn.some((t) => Array.isArray(t["selectedpoints"]) && !look.inside) };
}

/** Text inside a bar reads on the bar, which lets some of the card through where it is pale; text outside on the card. */
function contrast(trace: Plain, surface: string): void {
  const font = isPlain(trace["textfont"]) ? trace["textfont"] : {};
  const place = trace["textposition"] ?? "auto";
  const { color: fill, opacity } = isPlain(trace["marker"]) ? trace["marker"] : ({} as Plain);
  if (trace["type"] !== "bar" || place === "outside" || place === "none" || Array.isArray(place)) return;
  const { color, ...rest } = font;
  trace["textfont"] = rest;
  if (isHex(fill)) trace["insidetextfont"] = { ...rest, color: onColor(typeof opacity === "number" && isHex(surface) ? mixed(fill, surface, opacity) : fill) };
  if (color !== undefined) trace["outsidetextfont"] = { ...rest, color };
}

/** Points whose rows are filtered out become gaps; icicles and the like stay whole. */
function filtered(trace: Plain, keep: ReadonlySet<string>): Plain {
  const custom = trace["customdata"];
  if (!Array.isArray(custom) || !["scatter", "scattergl", "bar", undefined].includes(trace["type"] as string | undefined)) return trace;
  const gone = custom.map((c) => {
    const key = pointKey(c);
    return key !== null && !keep.has(key);
  });
  if (!gone.some(Boolean)) return trace;
  const side = trace["type"] === "bar" && trace["orientation"] === "h" ? "x" : "y";
  const values = trace[side];
  return Array.isArray(values) ? { ...trace, [side]: values.map((v: unknown, i) => (gone[i] ? null : v)) } : trace;
}

function pointOf(ring: Plain | undefined): Point | null {
  if (!ring) return null;
  const first = (name: string): unknown => (ring[name] as unknown[])[0];
  return { axes: String(ring["xaxis"] ?? "x").slice(1), x: first("x"), y: first("y"), radius: Number(((ring["marker"] as Plain)["size"] as number[])[0]) / 2 };
}

/** Points outside a selected area, faded in their place. */
function stepBack(trace: Plain, inside: ReadonlySet<string>): void {
  const custom = trace["customdata"];
  if (!Array.isArray(custom) || !["scatter", "scattergl", "bar", undefined].includes(trace["type"] as string | undefined)) return;
  trace["selectedpoints"] = custom.flatMap((c, i) => (inside.has(pointKey(c) ?? "") ? [i] : []));
  trace["unselected"] = { marker: { opacity: 0.14 } };
}

/** The box of an area; an open end reaches to the edge of its axis. Nothing where the edge is not known. */
function frame(area: Area, layout: Plain, look: Look): Plain[] {
  const ends = (["x", "y"] as const).flatMap((letter) => {
    const axis = layout[`${letter}axis${area.axes}`];
    const range = isPlain(axis) && Array.isArray(axis["range"]) ? (axis["range"] as number[]) : [];
    const edge = (i: number): number => (isPlain(axis) && axis["type"] === "log" ? 10 ** range[i]! : range[i]!);
    return area[letter].map((end, i) => end ?? edge(i));
  });
  if (!ends.every(Number.isFinite)) return [];
  const [x0, x1, y0, y1] = ends;
  return [{ type: "rect", xref: `x${area.axes}`, yref: `y${area.axes}`, x0, x1, y0, y1, layer: "below", fillcolor: `${look.token("accent")}1A`, line: { color: look.token("accent"), width: 1.2 } }];
}

/** Share of the axis that the text next to a stretch needs. */
const WORDS_ROOM = 0.2;

/** Tints a stretch of the x axis, with its text next to it, or inside where it takes nearly all of the axis. */
function cover(stretch: Stretch, layout: Plain, look: Look): void {
  const axis = layout["xaxis"];
  const range = isPlain(axis) && Array.isArray(axis["range"]) ? (axis["range"] as number[]) : [];
  const [low, high] = [Number(range[0]), Number(range[1])];
  const [x0, x1] = [Math.max(stretch.start ?? low, low), Math.min(stretch.end ?? high, high)];
  if (!(x1 >= x0)) return;
  const accent = look.token("accent");
  layout["shapes"] = [...((layout["shapes"] as Plain[] | undefined) ?? []), { type: "rect", xref: "x", yref: "paper", x0, x1, y0: 0, y1: 1, layer: "above", fillcolor: `${accent}2E`, line: { color: accent, width: 1.2 } }];
  if (!stretch.text) return;
  const right = (x0 + x1) / 2 > low + NEAR_END * (high - low);
  const inside = (right ? x0 - low : high - x1) < WORDS_ROOM * (high - low); // no room next to it
  layout["annotations"] = [...((layout["annotations"] as Plain[] | undefined) ?? []), {
    xref: "x", yref: "paper", x: inside ? (x0 + x1) / 2 : right ? x0 : x1, y: inside ? 0.8 : 0.5, text: `<b>${escaped(stretch.text)}</b>`, showarrow: false,
    xanchor: inside ? "center" : right ? "right" : "left", xshift: inside ? 0 : right ? -5 : 5,
    font: { size: 12, color: accent }, bgcolor: `${look.token("surface")}CC`, borderpad: 1,
  }];
}

/** Where a value lies on an axis that has a range, 0 to 1; null elsewhere. */
function fraction(axis: unknown, value: number): number | null {
  const range = isPlain(axis) ? (axis["range"] as unknown) : null;
  if (!Array.isArray(range) || typeof range[0] !== "number" || typeof range[1] !== "number" || range[0] === range[1]) return null;
  return ((isPlain(axis) && axis["type"] === "log" ? Math.log10(value) : value) - range[0]) / (range[1] - range[0]);
}

const NEAR_END = 0.66;
const escaped = (text: string): string => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

/** A dotted line from the selected point to its limit, with the words at its side. The words go into the layout. */
function toLimit(note: PointNote, layout: Plain, ring: Plain[], look: Look): Plain[] {
  const end = note.limit;
  const axes = note.axis === "x2" ? "2" : "";
  const [xaxis, yaxis] = [layout[`xaxis${axes}`], layout[`yaxis${axes}`]] as [Plain | undefined, Plain | undefined];
  if (!xaxis || !yaxis || typeof end !== "number") return [];
  const across = axes === "2";
  const stop: [number, number] = across ? [end, note.y] : [note.x, end];
  const at = (axis: Plain, value: number): number => (axis["type"] === "log" ? Math.log10(value) : value);
  const middle = (axis: Plain, a: number, b: number): number => (at(axis, a) + at(axis, b)) / 2;
  const sizes = ring.map((r) => Number(([(r["marker"] as Plain)["size"]].flat() as unknown[])[0]) || 0);
  const radius = Math.max(8, ...sizes) / 2;
  const [from, to] = [fraction(yaxis, note.y), fraction(yaxis, end)];
  const reach = from === null || to === null || across ? Infinity : Math.abs(to - from) * Number(layout["height"]) * 0.6;
  const right = (fraction(xaxis, across ? Math.max(note.x, end) : note.x) ?? 0) > NEAR_END;
  const aside = reach < radius + 14 ? radius + 5 : 7;
  if (note.text) {
    layout["annotations"] = [...((layout["annotations"] as Plain[] | undefined) ?? []), {
      xref: `x${axes}`, yref: `y${axes}`, x: across ? middle(xaxis, note.x, end) : at(xaxis, note.x), y: across ? at(yaxis, note.y) : middle(yaxis, note.y, end),
      text: `<b>${escaped(note.text)}</b>`, showarrow: false, font: { size: 12, color: look.token("accent") }, bgcolor: `${look.token("surface")}CC`, borderpad: 1,
      ...(across ? { yanchor: "bottom", yshift: radius + 2 } : { xanchor: right ? "right" : "left", xshift: right ? -aside : aside, yanchor: "middle", yshift: reach < radius + 14 ? radius + 6 : 0 }),
    }];
  }
  return [{
    type: "scatter", mode: "lines", x: [note.x, stop[0]], y: [note.y, stop[1]], hoverinfo: "skip", showlegend: false, cliponaxis: false,
    ...(axes ? { xaxis: "x2", yaxis: "y2" } : {}), line: { color: look.token("accent"), width: 1.6, dash: "2px,3px" },
  }];
}

/** The selected boxes in an accent line. */
function outline(trace: Plain, hits: ReadonlySet<number>, accent: string): void {
  const marker = (trace["marker"] ?? {}) as Plain;
  const line = (marker["line"] ?? {}) as Plain;
  const custom = trace["customdata"] as unknown[];
  trace["marker"] = { ...marker, line: { color: custom.map((_, i) => (hits.has(i) ? accent : line["color"])), width: custom.map((_, i) => (hits.has(i) ? 2.4 : line["width"])) } };
}

/** An accent ring around the selected points of scatter traces; other bars step back. */
function selection(data: Plain[], look: Look): Plain[] {
  const out: Plain[] = [];
  for (const trace of data) {
    const custom = trace["customdata"];
    if (!Array.isArray(custom)) continue;
    const hits = custom.flatMap((c, i) => (pointKey(c) === look.selected ? [i] : []));
    if (!hits.length) continue;
    if (trace["type"] === "bar") {
      if (look.inside) continue;
      trace["selectedpoints"] = hits;
      trace["unselected"] = { marker: { opacity: 0.45 } };
    } else if (NESTED.has(trace["type"])) outline(trace, new Set(hits), look.token("accent"));
    else if (trace["type"] === undefined || trace["type"] === "scatter" || trace["type"] === "scattergl") {
      const [x, y] = [trace["x"], trace["y"]];
      if (!Array.isArray(x) || !Array.isArray(y)) continue;
      const size = (trace["marker"] as Plain | undefined)?.["size"];
      const of = (i: number): number => Number(Array.isArray(size) ? size[i] : size) || 8;
      out.push({
        type: "scatter", mode: "markers", x: hits.map((i) => x[i] as unknown), y: hits.map((i) => y[i] as unknown), hoverinfo: "skip", showlegend: false,
        ...(trace["xaxis"] ? { xaxis: trace["xaxis"] } : {}), ...(trace["yaxis"] ? { yaxis: trace["yaxis"] } : {}),
        marker: { symbol: "circle-open", color: look.token("accent"), size: hits.map((i) => of(i) + 9), line: { width: 2.2, color: look.token("accent") }, opacity: 1 },
      });
    }
  }
  return out;
}

/** Zoom as text: `x:0.1~20;y2:3~4`, or `l:ID` for the level of an icicle. */
export function zoomText(changes: Plain, before: string): string {
  const now = new Map(before.split(";").filter(Boolean).map((p) => [p.slice(0, p.indexOf(":")), p.slice(p.indexOf(":") + 1)] as const));
  for (const [key, value] of Object.entries(changes)) {
    const range = /^([xy])axis(\d*)\.range\[([01])\]$/.exec(key);
    const auto = /^([xy])axis(\d*)\.(autorange|showspikes)$/.exec(key);
    if (range) {
      const name = range[1]! + range[2]!;
      const ends = (now.get(name) ?? "~").split("~");
      ends[Number(range[3])] = typeof value === "number" ? String(Number(value.toPrecision(6))) : String(value);
      now.set(name, ends.join("~"));
    } else if (auto && auto[3] === "autorange") now.delete(auto[1]! + auto[2]!);
    else if (key === "level") {
      if (value && value !== ALL) now.set("l", String(value).replace(/[%;]/g, encodeURIComponent));
      else now.delete("l");
    }
  }
  return [...now].map(([k, v]) => `${k}:${v}`).join(";");
}

function applyZoom(layout: Plain, data: Plain[], zoom: string): void {
  for (const part of zoom.split(";")) {
    const range = /^([xy])(\d*):(.+)~(.+)$/.exec(part);
    if (range) {
      const axis = layout[`${range[1]}axis${range[2]}`];
      const ends = [range[3], range[4]].map((t) => (Number.isFinite(Number(t)) ? Number(t) : t));
      if (isPlain(axis)) layout[`${range[1]}axis${range[2]}`] = relabeled({ ...axis, range: ends, autorange: false });
    } else if (part.startsWith("l:")) {
      for (const trace of data) if (NESTED.has(trace["type"])) trace["level"] = part.slice(2).replace(/%(25|3B)/g, decodeURIComponent);
    }
  }
}

export interface LegendItem {
  name: string;
  color: string;
  symbol: string;
  hatched: boolean;
  opacity: number;
}

/** Named traces of a figure that asks for a legend, as chips: name, light color, symbol. */
export function legendOf(s: FigureSection): LegendItem[] {
  if (s.figure.layout?.["showlegend"] !== true) return [];
  const seen = new Map<string, LegendItem>();
  for (const trace of s.figure.data ?? []) {
    const name = trace["name"];
    if (typeof name !== "string" || !name || trace["showlegend"] === false || seen.has(name)) continue;
    const marker = (trace["marker"] ?? {}) as Plain;
    const line = (trace["line"] ?? {}) as Plain;
    const color = [marker["color"], line["color"], trace["fillcolor"]].find((c) => typeof c === "string") as string | undefined;
    const symbol = typeof marker["symbol"] === "string" ? marker["symbol"] : "";
    if (color) seen.set(name, { name, color, symbol: symbol.replace(/-open$/, ""), hatched: isPlain(marker["pattern"]), opacity: typeof marker["opacity"] === "number" ? marker["opacity"] : 1 });
  }
  return [...seen.values()];
}
