// Nested boxes (icicle, treemap, sunburst): readable text, hatched boxes where nothing is known, color by self size. Pure.
import palette from "../../palette.json";

type Plain = Record<string, unknown>;

const TOKENS = palette.tokens as unknown as Record<string, [string, string]>;
const light = (name: string): string => TOKENS[name]![0].toUpperCase();
/** The steps of the scale of efficiency, 0 to 100 %. */
export const SCALE = ["eff-0", "eff-25", "eff-50", "eff-75", "eff-100"];

export const NESTED: ReadonlySet<unknown> = new Set(["icicle", "treemap", "sunburst"]);
export const isHex = (value: unknown): value is string => typeof value === "string" && /^#[0-9a-f]{6}$/i.test(value);

/** Black or white, whichever reads better on a `#rrggbb` color. */
export function onColor(hex: string): string {
  const [r, g, b] = [1, 3, 5].map((i) => (Number.parseInt(hex.slice(i, i + 2), 16) / 255) ** 2.2);
  return 0.2126 * r! + 0.7152 * g! + 0.0722 * b! > 0.2 ? "#111418" : "#FFFFFF";
}

/** `part` of `over` mixed into `under`, both `#rrggbb`. */
export function mixed(over: string, under: string, part: number): string {
  const channel = (hex: string, i: number): number => Number.parseInt(hex.slice(i, i + 2), 16);
  return "#" + [1, 3, 5].map((i) => Math.round(channel(over, i) * part + channel(under, i) * (1 - part)).toString(16).padStart(2, "0")).join("");
}

const colorsOf = (trace: Plain): unknown[] => {
  const colors = (trace["marker"] as Plain | undefined)?.["colors"];
  return Array.isArray(colors) ? colors : [];
};

/** What the colors of a figure's boxes mean, by the light colors of its data; null where it has no such boxes. */
export function boxScale(data: readonly Plain[]): { efficiency: boolean; unknown: boolean; self: boolean } | null {
  const nested = data.filter((t) => NESTED.has(t["type"]));
  if (!nested.length) return null;
  const seen = new Set(nested.flatMap((t) => colorsOf(t).map((c) => String(c).toUpperCase())));
  return { efficiency: SCALE.some((name) => seen.has(light(name))), unknown: seen.has(light("idle")), self: nested.some((t) => ownParts(t) !== null) };
}

/** For each box its value without those of its children; null where values are not totals. */
export function ownParts(trace: Plain): number[] | null {
  const [ids, parents, values] = [trace["ids"] ?? trace["labels"], trace["parents"], trace["values"]];
  if (trace["branchvalues"] !== "total" || !Array.isArray(ids) || !Array.isArray(parents) || !Array.isArray(values)) return null;
  const inner = new Map<unknown, number>();
  parents.forEach((p, i) => inner.set(p, (inner.get(p) ?? 0) + Number(values[i])));
  return values.map((v, i) => Math.max(0, Number(v) - (inner.get(ids[i]) ?? 0)));
}

/** The id of the box around several roots. */
export const ALL = "(all)";

/** Puts several roots into one box named All, for which Plotly else leaves an empty row. In place; one root stays as it is. */
export function oneRoot(trace: Plain, color: string): void {
  const [ids, parents, values] = [trace["ids"], trace["parents"], trace["values"]];
  if (!Array.isArray(ids) || !Array.isArray(parents) || !Array.isArray(values)) return;
  const roots = parents.flatMap((p, i) => (p === "" || p === null ? [i] : []));
  if (roots.length < 2) return;
  const first: Plain = { ids: ALL, labels: "All", text: "All", hovertext: "<b>All</b>", customdata: "", parents: "", values: roots.reduce((sum, i) => sum + Number(values[i]), 0) };
  for (const [name, value] of Object.entries(first)) {
    const list = name === "parents" ? parents.map((p) => (p === "" || p === null ? ALL : p) as unknown) : trace[name];
    if (Array.isArray(list)) trace[name] = [value, ...list];
  }
  const marker = (trace["marker"] ?? {}) as Plain;
  const each = (value: unknown, self: unknown): unknown => (Array.isArray(value) ? [self, ...value] : value);
  const line = (marker["line"] ?? {}) as Plain;
  trace["marker"] = { ...marker, colors: each(marker["colors"], color), line: { ...line, color: each(line["color"], color), width: each(line["width"], 0) } };
  if (typeof trace["maxdepth"] === "number" && trace["maxdepth"] > 0) trace["maxdepth"] += 1;
}

/** Colors by the self part of each box: the surface where children hold all of it, the full color at the largest. */
function ownColors(trace: Plain, full: string, none: string): string[] | null {
  const self = ownParts(trace);
  if (!self) return null;
  const most = Math.max(...self, 0);
  return self.map((v) => mixed(full, none, most > 0 ? 0.08 + 0.92 * (v / most) : 0));
}

/** Paints one trace of boxes in place; hatched where nothing is known (the color `idle`) or only a part is modeled. */
export function paintBoxes(trace: Plain, paint: "given" | "own", token: (name: string) => string, partial: (i: number) => boolean): void {
  const marker = (trace["marker"] ?? {}) as Plain;
  const colors = (paint === "own" ? ownColors(trace, token("compute"), token("sunken")) : null) ?? colorsOf(trace);
  trace["leaf"] = { opacity: 1, ...((trace["leaf"] as Plain | undefined) ?? {}) }; // a faded color would be another color of the scale
  if (!colors.length || !colors.every(isHex)) return;
  const idle = token("idle").toUpperCase();
  const unknown = colors.map((c) => c.toUpperCase() === idle);
  const hatched = unknown.map((u, i) => u || partial(i));
  trace["marker"] = {
    ...marker, colors,
    ...(paint === "given" && hatched.some(Boolean) ? { pattern: { shape: hatched.map((h) => (h ? "/" : "")), fgcolor: unknown.map((u) => token(u ? "idle-hatch" : "idle")), fillmode: "overlay", size: 7, solidity: 0.3 } } : {}),
  };
  trace["insidetextfont"] = { color: colors.map(onColor) };
  if (colors[0]) trace["outsidetextfont"] = { color: onColor(colors[0]) };
}
