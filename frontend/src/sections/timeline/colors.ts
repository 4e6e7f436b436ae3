// Colors of items as 32-bit pixels: of a category, mixed with the background by how busy a merged item is. Pure.

/** R, G, B of `#rrggbb`. */
export function channels(hex: string): [number, number, number] {
  const n = Number.parseInt(hex.slice(1), 16);
  return [(n >> 16) & 255, (n >> 8) & 255, n & 255];
}

/** A pixel in memory as canvases hold it on little-endian machines: alpha, blue, green, red. */
export const pixel = ([r, g, b]: readonly [number, number, number]): number => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;

export function mix(a: readonly [number, number, number], b: readonly [number, number, number], share: number): [number, number, number] {
  const at = (k: 0 | 1 | 2): number => Math.round(a[k] * (1 - share) + b[k] * share);
  return [at(0), at(1), at(2)];
}

/** Fills of host work: cool and quiet, so that device work stands out, in light and dark; annotations and modules in accent tint. */
export const HOST_FILLS: Readonly<Record<string, readonly [light: string, dark: string]>> = {
  operator: ["#C9D1DC", "#3D4754"], call: ["#AEB9C7", "#4D5967"], frame: ["#E1E6EC", "#2C343E"], annotation: ["#CFCBF2", "#403C78"], module: ["#DFDCF7", "#332F5E"], other: ["#D5D9DE", "#39404A"],
  sync: ["#D9DEE5", "#39424D"],
};

/** A merged item is never paler than this. */
const PALEST = 0.35;
const LEVELS = 16;

export interface Paint {
  /** hex of each category */
  fills: readonly string[];
  /** hex of the words on each */
  inks: readonly string[];
  /** by category and sixteenth of busy share */
  pixels: Uint32Array;
  /** of categories, brightened: items with the name under the pointer; hex of the words on each */
  bright: Uint32Array;
  brightInks: readonly string[];
  /** of categories, faded: items that a search does not find; hex of the words on each */
  faded: Uint32Array;
  fadedInks: readonly string[];
  edge: Uint32Array;
  /** of the stripes of categories, where they are drawn */
  stripe: Uint32Array;
  background: number;
}

/** fills: color of each category; background: of the rows. dark: whether words on a fill can be light. */
export function paintOf(fills: readonly string[], background: string, dark: boolean): Paint {
  const ground = channels(background);
  const pixels = new Uint32Array(fills.length * LEVELS);
  const [bright, faded, edge, stripe] = [0, 1, 2, 3].map(() => new Uint32Array(fills.length)) as [Uint32Array, Uint32Array, Uint32Array, Uint32Array];
  const [brightInks, fadedInks]: [string[], string[]] = [[], []];
  fills.forEach((hex, c) => {
    const fill = channels(hex);
    for (let level = 0; level < LEVELS; level++) pixels[c * LEVELS + level] = pixel(mix(ground, fill, PALEST + (1 - PALEST) * (level / (LEVELS - 1))));
    const lit = mix(fill, dark ? [255, 255, 255] : [0, 0, 0], 0.28);
    bright[c] = pixel(lit);
    brightInks.push(inkOn(hexOf(lit)));
    const pale = mix(ground, fill, 0.22);
    faded[c] = pixel(pale);
    fadedInks.push(mutedOn(hexOf(pale)));
    edge[c] = pixel(mix(fill, ground, 0.45));
    stripe[c] = pixel(channels(stripeOn(hex)));
  });
  return { fills, inks: fills.map(inkOn), pixels, bright, brightInks, fadedInks, faded, edge, stripe, background: pixel(ground) };
}

export const shadeOf = (paint: Paint, category: number, busy: number): number => paint.pixels[category * LEVELS + (busy >> 4)]!;

/** Relative luminance of a color (WCAG 2). */
export function luminance(hex: string): number {
  const [r, g, b] = channels(hex).map((v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4)) as [number, number, number];
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

export const contrast = (a: string, b: string): number => {
  const [x, y] = [luminance(a), luminance(b)];
  return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
};

/** Contrast of words that are to be quiet. */
const MUTED = 4.5;
const INKS = ["#000000", "#FFFFFF"] as const;

/** The ink that reads best on a fill. */
export const inkOn = (fill: string): string => (contrast(fill, INKS[0]) >= contrast(fill, INKS[1]) ? INKS[0] : INKS[1]);

/** The quietest gray that still reads on a fill. */
function mutedOn(fill: string): string {
  const [ground, ink] = [channels(fill), channels(inkOn(fill))];
  for (let share = 0.5; share < 1; share += 0.02) {
    const gray = hexOf(mix(ground, ink, share));
    if (contrast(fill, gray) >= MUTED) return gray;
  }
  return inkOn(fill);
}

export const hexOf = (color: readonly [number, number, number]): string => `#${color.map((v) => v.toString(16).padStart(2, "0")).join("")}`;

/** The color of stripes on a fill: away from the ink, so that words on it read better, not worse. */
export const stripeOn = (fill: string): string => hexOf(mix(channels(fill), inkOn(fill) === INKS[0] ? [255, 255, 255] : [0, 0, 0], 0.45));

/** Pixels of a repeated pattern that are striped. */
export interface Stripes {
  period: number;
  at: readonly number[];
}

const STRIPES: readonly Stripes[] = [
  { period: 1, at: [] }, { period: 4, at: [0] }, { period: 12, at: [0, 1] }, { period: 8, at: [0, 1, 2, 3] }, { period: 12, at: [0, 3] }, { period: 20, at: [0, 1] }, { period: 6, at: [0, 1] }, { period: 16, at: [0, 3, 6] },
  { period: 16, at: [0, 1, 2, 3, 4, 5, 6, 7] }, { period: 24, at: [0, 3] }, { period: 10, at: [0] }, { period: 24, at: [0, 1, 2, 3] }, { period: 3, at: [0] }, { period: 20, at: [0, 3, 6, 9] }, { period: 28, at: [0, 1, 4, 5] }, { period: 32, at: [0] }, { period: 5, at: [0] }, { period: 32, at: [0, 1, 2, 3] },
];

/** The stripes of a category: no two of the first eighteen are alike. */
export const stripesOf = (category: number): Stripes => STRIPES[category % STRIPES.length]!;

/** A letter for each label, each another one as far as its letters allow. */
export function lettersOf(labels: readonly string[]): string[] {
  const used = new Set<string>();
  return labels.map((label) => {
    const found = [...label.toUpperCase()].find((c) => /\p{L}/u.test(c) && !used.has(c)) ?? label[0]?.toUpperCase() ?? "";
    used.add(found);
    return found;
  });
}
