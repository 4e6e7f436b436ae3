// How a person reads a number. A mirror of `tb_sol_plugin/units.py`; `tests/golden/units.json` holds both to the same answers.

export const NARROW = "\u202f";
export const MINUS = "\u2212";

export interface Scale {
  factor: number;
  name: string;
}

const SI: [number, string][] = [[1, ""], [1e3, "k"], [1e6, "M"], [1e9, "G"], [1e12, "T"], [1e15, "P"], [1e18, "E"]];
const TIME: [number, string][] = [[1, "ns"], [1e3, "µs"], [1e6, "ms"], [1e9, "s"]];
/** ns from which a time is written in seconds: 10 s, so that a step and its parts have one unit, ms. */
const SECONDS_FROM = 1e10;
const SCALED = new Set(["ns", "B", "FLOP", "B/s", "FLOP/s"]);

/** The divisor and the name of the unit a person would pick for `value` (base units). */
export function scaleOf(value: number, unit: string): Scale {
  if (!SCALED.has(unit)) {
    return unit === "ratio" ? { factor: 0.01, name: "%" } : { factor: 1, name: unit === "count" ? "" : unit };
  }
  const steps: [number, string][] = unit === "ns" ? TIME : SI.map(([f, p]) => [f, p + unit]);
  const magnitude = Math.abs(value);
  let best = steps[0]!;
  for (const step of steps) if (magnitude >= (step[1] === "s" ? SECONDS_FROM : step[0]) * 0.9995) best = step;
  return { factor: best[0], name: best[1] };
}

/** Decimals for up to four significant digits: 0 from 1 000, 1 from 100, 2 from 1, 3 below. */
export function digits(value: number): number {
  const magnitude = Math.abs(value);
  if (magnitude >= 999.95) return 0;
  if (magnitude >= 99.995) return 1;
  return magnitude >= 0.9995 ? 2 : 3;
}

/** A finite magnitude with `decimals` digits; an exact tie goes to the even digit, as Python's formatting does. */
function fixed(magnitude: number, decimals: number): string {
  if (magnitude >= 1e15) return BigInt(Math.round(magnitude)).toString() + (decimals ? "." + "0".repeat(decimals) : "");
  const text = magnitude.toFixed(decimals);
  const exact = magnitude.toFixed(100);
  const cut = exact.length - 100 + decimals;
  if (!/^50*$/.test(exact.slice(cut))) return text;
  const last = text.replace(".", "").at(-1)!;
  if (Number(last) % 2 === 0) return text;
  const down = exact.slice(0, decimals === 0 ? cut - 1 : cut);
  return down;
}

/** `value` with thousands separated by a narrow space and a real minus sign. */
export function number(value: number, decimals: number): string {
  const [whole, part] = fixed(Math.abs(value), decimals).split(".") as [string, string | undefined];
  const text = whole.replace(/\B(?=(\d{3})+$)/g, NARROW) + (part ? "." + part : "");
  return (value < 0 && /[1-9]/.test(text) ? MINUS : "") + text;
}

/** The number and its unit apart, so that the unit can be set in quieter ink. */
export function humanParts(value: number | null | undefined, unit = ""): { text: string; unit: string } {
  if (value === null || value === undefined || !Number.isFinite(value)) return { text: "—", unit: "" };
  if (unit === "count") return { text: number(value, 0), unit: "" };
  if (unit === "ratio" || unit === "%") {
    const percent = unit === "ratio" ? value * 100 : value;
    if (Math.abs(percent) > 0 && Math.abs(percent) < 0.05) return { text: "< 0.1", unit: "%" };
    return { text: number(percent, 1), unit: "%" };
  }
  if (value === 0) return { text: "0", unit };
  const { factor, name } = scaleOf(value, unit);
  const scaled = value / factor;
  const whole = (unit === "ns" && name === "ns") || (unit === "B" && name === "B");
  return { text: number(scaled, whole ? 0 : digits(scaled)), unit: name };
}

/** Number and unit of an amount in a list that has one unit, that of the largest. A mirror of `side_by_side`. */
export function partsBeside(value: number, unit: string, largest: number): { text: string; unit: string } {
  const { factor, name } = scaleOf(largest, unit);
  const scaled = Math.abs(value) / factor;
  if (name === "" || name === "%" || name === unit || scaled < 0.001) return humanParts(value, unit);
  return { text: number(value / factor, scaled >= 0.1 ? digits(scaled) : 2 - Math.floor(Math.log10(scaled))), unit: name };
}

/** `value` in base units as a person reads it: `12.3 ms`, `989 TFLOP/s`; unknown is an em dash. */
export function human(value: number | null | undefined, unit = ""): string {
  const parts = humanParts(value, unit);
  return parts.unit ? parts.text + NARROW + parts.unit : parts.text;
}

/** A moment, ns, in the unit that a person would pick, with as many decimals as tell moments `step` ns apart. */
export function moment(time: number, step = 1): string {
  const { factor, name } = scaleOf(time, "ns");
  const fine = Math.ceil(Math.log10(factor / Math.max(step, 1)) - 1e-9);
  return number(time / factor, factor === 1 ? 0 : Math.max(digits(time / factor), fine)) + NARROW + name;
}

/** One unit and one count of decimals for a whole column, so that the points line up. */
export interface ColumnScale extends Scale {
  decimals: number;
}

/** The unit of a column whose largest value is `top`: as a person picks it, but ms up to ten seconds, where ms can be added and ranked. */
export const columnUnit = (top: number, unit: string): Scale => scaleOf(unit === "ns" && top < 1e10 ? Math.min(top, 9e8) : top, unit);

/**
 * The scale of a column: the unit of its largest value, decimals that still tell its middle apart, at most five digits.
 * `neighbor` is the unit of the columns next to it; it is used where the column's largest value is at least a hundredth of it.
 * `single`: the rows are single things without a total, which are compared with each other and not added up: a unit in which half of
 * them would vanish gives way to the next smaller one, unless the largest would have more than six digits there. `fixed`: the unit, where
 * others have chosen it.
 */
export function columnScale(values: readonly (number | null | undefined)[], unit: string, neighbor?: Scale, single = false, fixed?: Scale): ColumnScale {
  const known: number[] = [];
  let top = 0;
  for (const v of values) {
    if (typeof v !== "number" || !Number.isFinite(v) || v === 0) continue;
    const a = Math.abs(v);
    if (a > top) top = a;
    known.push(a);
  }
  if (unit === "count") return { factor: 1, name: "", decimals: 0 };
  if (unit === "ratio") return { factor: 0.01, name: "%", decimals: 1 };
  if (unit === "%") return { factor: 1, name: "%", decimals: 1 };
  if (!known.length) return { ...scaleOf(unit === "ns" ? 1e6 : unit === "B" ? 1e6 : 1, unit), decimals: 0 };
  known.sort((a, b) => a - b);
  const half = known[known.length >> 1]!;
  let scale = columnUnit(top, unit);
  const low = unit === "B/s" ? known[known.length >> 2]! : half; // a slow link next to a fast memory still shows its digits
  if (unit !== "ns" && low < scale.factor * (unit === "B/s" ? 0.1 : 0.05) && top < scale.factor * 10) scale = scaleOf(top / 1000, unit); // rates whose middle would vanish
  const vanish = single && (unit === "ns" || unit === "B") && scale.factor >= 1e3 && half < scale.factor * 0.05 && top < scale.factor * 1e3;
  if (vanish) scale = scaleOf(scale.factor / 1000, unit);
  const { factor, name } = fixed ?? (!vanish && neighbor && neighbor.factor > scale.factor && top >= neighbor.factor * 0.01 ? neighbor : scale);
  if ((unit === "ns" && name === "ns") || (unit === "B" && name === "B")) return { factor, name, decimals: 0 };
  if (unit === "" && known.every(Number.isInteger)) return { factor, name, decimals: 0 };
  const middle = (unit === "B/s" ? low : half) / factor; // rates show the digits of a slow link
  const reach = unit === "" ? Math.min(top, half * 1000) : top; // one far away must not take the decimals of all
  const room = 5 - Math.max(1, Math.floor(Math.log10(Math.max(reach / factor, 1))) + 1);
  return { factor, name, decimals: Math.max(0, Math.min(top < 0.1 * factor ? 4 : digits(middle), room, top / factor >= 1 ? 2 : top / factor >= 0.1 ? 3 : 4)) };
}

/** The one unit of times of single calls: µs, from a median of ten milliseconds on ms. */
export function callScale(values: readonly number[]): Scale {
  const known = values.filter((v) => v > 0).sort((a, b) => a - b);
  return (known[known.length >> 1] ?? 0) < 1e7 ? { factor: 1e3, name: "µs" } : { factor: 1e6, name: "ms" };
}

/** A value in a column's scale: `0` is exact, a value below half a unit of the last digit is `< 0.01`. */
export function inColumn(value: number, scale: ColumnScale): string {
  if (value === 0) return "0";
  const scaled = value / scale.factor;
  const step = 10 ** -scale.decimals;
  if (Math.abs(scaled) < step / 2) return (scaled < 0 ? "> " + MINUS : "< ") + number(step, scale.decimals);
  return number(scaled, scale.decimals);
}

/** The value in base units, every digit: for tooltips and copying. */
export function exact(value: number, unit: string): string {
  if (unit === "ratio") return `${value * 100}${NARROW}%`;
  const text = Number.isInteger(value) ? number(value, 0) : String(value).replace("-", MINUS);
  return unit && unit !== "count" ? text + NARROW + unit : text;
}

/** A number that a person typed: `0.1`, `1 000`, `1e12`, `10 T`, `3.35 TB/s`; null if it is none. Decimal prefixes from k to E. */
export function readQuantity(text: string): number | null {
  const found = /^([-\u2212]?[\d\s\u202f\u00a0]*[.,]?\d*(?:[eE][-+]?\d+)?)\s*([kKMGTPE]?)(?:[A-Za-z/%µ]*)$/.exec(text.trim());
  const digitsOf = found?.[1]!.replace(/[\s\u202f\u00a0]/g, "").replace("\u2212", "-").replace(",", ".") ?? "";
  if (!found || !/\d/.test(digitsOf)) return null;
  const prefix = found[2]! === "K" ? "k" : found[2]!;
  const value = Number(digitsOf) * (SI.find(([, p]) => p === prefix)?.[0] ?? 1);
  return Number.isFinite(value) ? value : null;
}
