// Areas selected in a figure: boxes in data units, kept in the figure's part of the address, and the table rows inside them. Pure.
import type { FigureSection } from "../../api/types";
import { pointKey } from "./template";

type Plain = Record<string, unknown>;

type Ends = [number | null, number | null];

/** A box on the axes `x{axes}`, `y{axes}` ("" for the chart, "2" for the second pair); null for an end that does not bound. */
export interface Area {
  axes: string;
  x: Ends;
  y: Ends;
}

const LINKED = new Set<unknown>(["scatter", "scattergl", undefined]);
const short = (value: number | null): string => (value === null ? "" : String(Number(value.toPrecision(4))));
const within = (value: number, [low, high]: Ends): boolean => (low === null || value >= low) && (high === null || value <= high);

/** The areas in a figure's text: `b:X0~X1~Y0~Y1`, `b2:…`; an empty end does not bound. */
export function areasOf(text: string): Area[] {
  const out: Area[] = [];
  for (const part of text.split(";")) {
    const found = /^b(\d*):([^;]+)$/.exec(part);
    const ends = found?.[2]!.split("~").map((t) => (t === "" ? null : Number(t)));
    if (!found || ends?.length !== 4 || ends.every((e) => e === null) || ends.some((e) => e !== null && !Number.isFinite(e))) continue;
    out.push({ axes: found[1]!, x: [ends[0]!, ends[1]!], y: [ends[2]!, ends[3]!] });
  }
  return out;
}

/** The figure's text with these areas and no others. */
export function withAreas(text: string, areas: readonly Area[]): string {
  const rest = text.split(";").filter((part) => part && !/^b\d*:/.test(part));
  return [...rest, ...areas.map((a) => `b${a.axes}:${[...a.x, ...a.y].map(short).join("~")}`)].join(";");
}

/** The areas of Plotly's `range` of a finished box selection. */
export function areasOfRange(range: unknown): Area[] {
  if (typeof range !== "object" || range === null) return [];
  return Object.entries(range as Plain).flatMap(([name, x]) => {
    const axes = /^x(\d*)$/.exec(name)?.[1];
    const y = axes === undefined ? undefined : (range as Plain)[`y${axes}`];
    if (!Array.isArray(x) || !Array.isArray(y)) return [];
    const [xs, ys] = [x, y].map((ends) => [...(ends as number[])].sort((a, b) => a - b) as [number, number]);
    return [...xs!, ...ys!].every(Number.isFinite) ? [{ axes: axes!, x: xs!, y: ys! }] : [];
  });
}

const axesOf = (trace: Plain): string => String(trace["xaxis"] ?? "x").slice(1);

/** The traces whose points are rows of the figure's table at numeric places. */
function linked(s: FigureSection): Plain[] {
  if (!s.table) return [];
  return (s.figure.data ?? []).filter((t) => LINKED.has(t["type"]) && Array.isArray(t["customdata"]) && Array.isArray(t["x"]) && Array.isArray(t["y"]) && typeof t["x"][0] === "number" && typeof t["y"][0] === "number");
}

/** Can rows be chosen by an area in this figure? */
export const brushable = (s: FigureSection): boolean => !s.zoom && linked(s).length > 0;

/** The pairs of axes with points to choose, as suffixes: "" first. */
export const pairsOf = (s: FigureSection): string[] => [...new Set(linked(s).map(axesOf))].sort();

/** Keys of the points inside the areas of a figure's text; null when nothing is selected. */
export function keysInside(s: FigureSection, text: string): Set<string> | null {
  const areas = areasOf(text);
  if (!areas.length) return null;
  const out = new Set<string>();
  for (const trace of linked(s)) {
    const area = areas.find((a) => a.axes === axesOf(trace));
    if (!area) continue;
    const [xs, ys] = [trace["x"] as unknown[], trace["y"] as unknown[]];
    (trace["customdata"] as unknown[]).forEach((custom, i) => {
      const [x, y, key] = [xs[i], ys[i], pointKey(custom)];
      if (key !== null && typeof x === "number" && typeof y === "number" && within(x, area.x) && within(y, area.y)) out.add(key);
    });
  }
  return out;
}
