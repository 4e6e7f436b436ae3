// Which part of a name tells it from the names that begin alike: that part stays on the screen when the name is cut. Pure.

/** Letters of a name that stay in every cell: names that differ in them need no more. */
const HEAD = 14;
/** Letters that are kept of a part, at most. */
const MOST = 32;
/** Letters by which a part grows to the beginning and the end of a word. */
const WORD = 12;
/** Letters before a part, at least: a part that begins earlier is on the screen anyway. */
const LEAST = 6;
/** Distinct names up to which they are compared. */
const COMPARED = 20_000;

const inWord = (text: string, at: number): boolean => /[A-Za-z0-9]/.test(text[at] ?? "");

function common(a: string, b: string): { head: number; tail: number } {
  const least = Math.min(a.length, b.length);
  let head = 0;
  while (head < least && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < least - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  return { head, tail };
}

/**
 * [from, to) of the part of each name in which it differs from its neighbors in order, in whole words; none for a name that its first
 * `shown` letters tell apart.
 */
export function distinctParts(names: Iterable<string>, shown = HEAD): Map<string, [number, number]> {
  const sorted = [...new Set(names)].sort();
  const out = new Map<string, [number, number]>();
  if (sorted.length > COMPARED) return out;
  const pairs = sorted.slice(1).map((name, i) => common(sorted[i]!, name));
  sorted.forEach((name, i) => {
    const alike = [pairs[i - 1], pairs[i]].filter((p) => p !== undefined && p.head >= shown) as { head: number; tail: number }[];
    if (!alike.length) return;
    let from = Math.min(...alike.map((p) => p.head), name.length - 1);
    let to = Math.max(...alike.map((p) => name.length - p.tail), from + 1);
    for (let n = 0; n < WORD && from > 0 && inWord(name, from - 1); n++) from--;
    for (let n = 0; n < WORD && to < name.length && inWord(name, to); n++) to++;
    if (from >= LEAST) out.set(name, [from, Math.min(to, from + MOST)]);
  });
  return out;
}

const cache = new WeakMap<readonly unknown[], Map<string, [number, number]>>();

/** The parts of the names of a column; computed once per column. */
export function partsOf(values: readonly unknown[]): Map<string, [number, number]> {
  let found = cache.get(values);
  if (!found) cache.set(values, (found = distinctParts(values.filter((v): v is string => typeof v === "string"))));
  return found;
}
