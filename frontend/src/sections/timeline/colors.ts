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
  /** of categories, brightened: items with the name under the pointer */
  bright: Uint32Array;
  /** of categories, faded: items that a search does not find */
  faded: Uint32Array;
  edge: Uint32Array;
  background: number;
}

/** fills: color of each category; background: of the rows. dark: whether words on a fill can be light. */
export function paintOf(fills: readonly string[], background: string, dark: boolean): Paint {
  const ground = channels(background);
  const pixels = new Uint32Array(fills.length * LEVELS);
  const [bright, faded, edge] = [new Uint32Array(fills.length), new Uint32Array(fills.length), new Uint32Array(fills.length)];
  fills.forEach((hex, c) => {
    const fill = channels(hex);
    for (let level = 0; level < LEVELS; level++) pixels[c * LEVELS + level] = pixel(mix(ground, fill, PALEST + (1 - PALEST) * (level / (LEVELS - 1))));
    bright[c] = pixel(mix(fill, dark ? [255, 255, 255] : [0, 0, 0], 0.28));
    faded[c] = pixel(mix(ground, fill, 0.22));
    edge[c] = pixel(mix(fill, ground, 0.45));
  });
  return { fills, inks: fills.map(inkOn), pixels, bright, faded, edge, background: pixel(ground) };
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

const INKS = ["#000000", "#FFFFFF"] as const;

/** The ink that reads best on a fill. */
export const inkOn = (fill: string): string => (contrast(fill, INKS[0]) >= contrast(fill, INKS[1]) ? INKS[0] : INKS[1]);
