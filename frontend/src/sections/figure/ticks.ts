// Labels of a logarithmic axis after zooming: a part of a decade still needs some. Pure.
import { human, number, readQuantity } from "../../units";

type Plain = Record<string, unknown>;

const FEW = 2;
const BINARY = ["B", "KiB", "MiB", "GiB", "TiB"];
const NARROW = "\u202f";

const binary = (v: number): string => {
  const step = Math.min(Math.floor(Math.log2(v) / 10 + 1e-9), BINARY.length - 1);
  return number(v / 1024 ** step, 0) + NARROW + BINARY[step]!;
};

/** A short text of a tick: `150 GB/s`, `2.5 TB/s`. */
const short = (v: number, unit: string): string => human(v, unit).replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "");

/** The unit that labels carry without its decimal prefix: `FLOP/s` of `1 TFLOP/s`; "" for plain numbers, null where they are none. */
function unitOf(value: unknown, text: unknown): string | null {
  if (typeof value !== "number" || typeof text !== "string" || readQuantity(text) !== value) return null;
  const name = /[A-Za-zµ%/]+$/.exec(text.trim())?.[0] ?? "";
  return value >= 1e3 && /^[kMGTPE]./.test(name) ? name.slice(1) : name;
}

/** Steps inside a range given as powers of ten: 1, 2, 5 times the decades, powers of two for sizes, else nine to a decade. */
function steps(low: number, high: number, sizes: boolean): number[] {
  const out: number[] = [];
  if (sizes) {
    for (let p = Math.ceil(low / Math.log10(2)); p * Math.log10(2) <= high; p++) if (p >= 0) out.push(2 ** p);
    return out;
  }
  for (const parts of [[1, 2, 5], [1, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9], Array.from({ length: 90 }, (_, i) => 1 + i / 10)]) {
    out.length = 0;
    for (let d = Math.floor(low); d <= Math.floor(high); d++) for (const part of parts) {
      const at = Math.log10(part) + d;
      if (at >= low && at <= high) out.push(Number((part * 10 ** d).toPrecision(4)));
    }
    if (out.length > FEW) break;
  }
  return out;
}

/** A zoomed logarithmic axis with labels again, where fewer than three ticks are inside. */
export function relabeled(axis: Plain): Plain {
  const [values, texts, range] = [axis["tickvals"], axis["ticktext"], axis["range"]];
  if (axis["type"] !== "log" || !Array.isArray(values) || !Array.isArray(texts) || !Array.isArray(range)) return axis;
  const [low, high] = range.map(Number).sort((a, b) => a - b) as [number, number];
  if (!Number.isFinite(low) || !Number.isFinite(high) || high <= low) return axis;
  const inside = values.filter((v) => Math.log10(Number(v)) >= low && Math.log10(Number(v)) <= high);
  if (inside.length > FEW) return axis;
  const sizes = texts.some((t) => String(t).endsWith("iB"));
  const units = new Set(values.map((v, i) => unitOf(v, texts[i])).filter((u) => u !== null));
  if (!sizes && units.size !== 1) return axis;
  const unit = [...units][0] ?? "";
  let at = steps(low, high, sizes);
  while (at.length > 7) at = at.filter((_, i) => i % 2 === 0);
  return { ...axis, tickvals: at, ticktext: at.map((v) => (sizes ? binary(v) : unit ? short(v, unit) : v >= 1e3 ? number(v, 0) : String(v))) };
}
