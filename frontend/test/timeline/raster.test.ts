import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { channels, contrast, hexOf, HOST_FILLS, inkOn, lettersOf, mix, paintOf, shadeOf, stripeOn, stripesOf } from "../../src/sections/timeline/colors";
import { PHASE_SHARES } from "../../src/sections/timeline/head";
import { chosen, Cutter, MOST, type Label } from "../../src/sections/timeline/labels";
import { matching, NameTable, patternOf } from "../../src/sections/timeline/names";
import { drawLane, drawSummary, itemAt, PLAIN, type Raster, drawLevel, Level } from "../../src/sections/timeline/raster";
import type { Counter, Slices, Summary } from "../../src/sections/timeline/tile";
import palette from "../../src/palette.json";

const paint = paintOf(["#0E67C1", "#E48330"], "#FFFFFF", false);
const lane = (items: [start: number, end: number, name: number, count: number, busy: number][]): Slices => ({
  kind: "slices", track: 0, z: 4, i: 0, bounds: Uint32Array.of(0, items.length), start: Float64Array.from(items, (x) => x[0]), end: Float64Array.from(items, (x) => x[1]), event: Uint32Array.from(items, (_, k) => k),
  name: Uint32Array.from(items, (x) => x[2]), count: Uint16Array.from(items, (x) => x[3]), busy: Uint8Array.from(items, (x) => x[4]), complete: false, bytes: 1,
});
const items = fc.array(fc.tuple(fc.nat(90), fc.integer({ min: 1, max: 120 }), fc.nat(1), fc.constantFrom(1, 1, 4), fc.nat(255)), { maxLength: 30 }).map((list) => {
  let at = -50;
  return list.map(([gap, length, name, count, busy]): [number, number, number, number, number] => {
    const start = at + gap;
    at = start + length;
    return [start, at, name, count, busy];
  });
});

describe("raster", () => {
  test("GIVEN any items WHEN drawn THEN every pixel is that of a loop over pixels and items", () => {
    fc.assert(fc.property(items, fc.integer({ min: 3, max: 200 }), (list, width) => {
      const view = { start: 0, end: 1000 };
      const raster: Raster = { pixels: new Uint32Array(width * 2), width };
      const drawn = drawLane(raster, 1, lane(list), 0, view, -Infinity, Infinity, Uint8Array.of(0, 1), paint, PLAIN);
      const want = new Uint32Array(width);
      let count = 0;
      for (const [start, end, name, many, busy] of list) {
        if (end <= 0 || start >= 1000) continue;
        count++;
        const scale = width / 1000; // the same order of operations: a tie falls to the same side
        const x0 = Math.max(0, Math.floor(start * scale));
        const x1 = Math.max(x0 + 1, Math.min(width, Math.round(end * scale)));
        for (let x = x0; x < x1; x++) want[x] = x1 - x0 >= 4 && x === x1 - 1 ? paint.edge[name]! : shadeOf(paint, name, many > 1 ? busy : 255);
      }
      expect([...raster.pixels.slice(width)]).toEqual([...want]);
      expect(raster.pixels.slice(0, width).every((p) => p === 0)).toBe(true);
      expect(drawn).toBe(count);
    }));
  });

  test("GIVEN names that a search found WHEN drawn at any zoom THEN they keep their color, alone and merged, and the others fade", () => {
    for (const end of [1000, 100]) {
      const raster: Raster = { pixels: new Uint32Array(100), width: 100 };
      drawLane(raster, 0, lane([[10, 20, 0, 1, 255], [30, 40, 1, 1, 255], [50, 60, 1, 9, 100], [70, 80, 0, 9, 100]]), 0, { start: 0, end }, -Infinity, Infinity, Uint8Array.of(0, 1), paint, { ...PLAIN, found: new Set([1]) });
      expect([10, 30, 50, 70].map((time) => raster.pixels[Math.round((time / end) * 100)])).toEqual([paint.faded[0], shadeOf(paint, 1, 255), shadeOf(paint, 1, 100), paint.faded[0]]);
    }
  });

  test("GIVEN events days after the origin WHEN a few ns are shown THEN they stand where those at the origin do", () => {
    const days = 104 * 86_400e9; // as far as a double holds whole ns
    const list: [number, number, number, number, number][] = [[0, 3, 0, 1, 255], [5, 6, 1, 1, 255], [11, 40, 0, 1, 255]];
    const [near, far] = [0, days].map((by) => {
      const raster: Raster = { pixels: new Uint32Array(640), width: 640 };
      drawLane(raster, 0, lane(list.map(([start, end, ...rest]) => [start + by, end + by, ...rest])), 0, { start: by - 2, end: by + 18 }, -Infinity, Infinity, Uint8Array.of(0, 1), paint, PLAIN);
      return [...raster.pixels];
    });
    expect(far).toEqual(near);
    expect(new Set(near).size).toBeGreaterThan(2);
  });

  test("GIVEN a time WHEN the item there is looked up THEN it is that of a loop, and a near one within the tolerance", () => {
    fc.assert(fc.property(items, fc.integer({ min: -60, max: 2000 }), (list, time) => {
      const found = itemAt(lane(list), 0, time, 5);
      const holds = list.findIndex(([start, end]) => start <= time && time < end);
      if (holds >= 0) expect(found).toBe(holds);
      else {
        const distances = list.map(([start, end]) => (time < start ? start - time : time - end));
        const least = Math.min(Infinity, ...distances);
        if (least > 5) expect(found).toBe(-1);
        else expect(distances[found]).toBe(least);
      }
    }));
  });

  test("GIVEN buckets half busy WHEN a summary is drawn THEN half of its height is filled, in the color of most of the time", () => {
    const tile: Summary = { kind: "summary", track: 0, z: 0, i: 0, category: Uint8Array.of(1, 1, 255, 0), busy: Uint8Array.of(128, 128, 0, 255), depth: new Uint8Array(4), complete: false, bytes: 1 };
    const raster: Raster = { pixels: new Uint32Array(4 * 10), width: 4 };
    drawSummary(raster, 0, 10, tile, { start: 0, end: 4 }, 0, 4, paint);
    const column = (x: number): number[] => Array.from({ length: 10 }, (_, y) => raster.pixels[y * 4 + x]!);
    expect(column(0).map((p) => (p ? 1 : 0)).join("")).toBe("0000011111");
    expect(column(0)[9]).toBe(shadeOf(paint, 1, 255));
    expect(column(2).every((p) => p === 0)).toBe(true);
    expect(column(3).every((p) => p === shadeOf(paint, 0, 255))).toBe(true);
    // AND before the first bucket and past the last one nothing is drawn
    raster.pixels.fill(0);
    drawSummary(raster, 0, 10, tile, { start: -1, end: 7 }, -Infinity, Infinity, paint); // two buckets a column
    expect([0, 1, 2, 3].map((x) => column(x).some((p) => p !== 0))).toEqual([true, true, true, false]);
    raster.pixels.fill(0);
    drawSummary(raster, 0, 10, { ...tile, i: 1 }, { start: 0, end: 8 }, -Infinity, Infinity, paint);
    expect([0, 1, 2, 3].map((x) => column(x).some((p) => p !== 0))).toEqual([false, false, true, true]);
  });

  test("GIVEN every color of the palette WHEN ink is chosen THEN its contrast is at least 4.5", () => {
    for (const [name, hexes] of Object.entries(palette.tokens as unknown as Record<string, string[]>)) for (const hex of hexes) if (/^#[0-9A-F]{6}$/i.test(hex)) expect(contrast(hex, inkOn(hex)), `${name} ${hex}`).toBeGreaterThanOrEqual(4.5);
  });
});

describe("labels and names", () => {
  test("GIVEN a thousand labels WHEN chosen THEN the widest, and pieces of one event are one", () => {
    const label = (x: number, width: number, event = 1): Label => ({ x, y: 0, width, height: 19, name: 7, category: 0, event, pinned: false });
    expect(chosen([label(0, 50), label(50, 30), label(80, 25, 2)]).map((l) => l.width)).toEqual([80, 25]);
    const many = chosen(Array.from({ length: 1000 }, (_, k) => label(k * 100, 24 + (k % 60), k)));
    expect(many.length).toBe(MOST);
    expect(Math.min(...many.map((l) => l.width))).toBeGreaterThanOrEqual(53);
  });

  test("GIVEN a text WHEN cut THEN it fits", () => {
    const cutter = new Cutter((text) => text.length * 6);
    expect(cutter.cut("aten::addmm", 100)).toBe("aten::addmm");
    expect(cutter.cut("aten::addmm_backward", 60)).toMatch(/^aten::a.*…$/);
    expect(cutter.cut("aten::addmm", 18)).toBe("");
  });

  test("GIVEN letters of different widths WHEN cut THEN what is left fits, and one letter more would not", () => {
    const widthOf = (text: string): number => [...text].reduce((sum, letter) => sum + (letter === "M" ? 11 : letter === "i" ? 3 : 6), 0);
    const cutter = new Cutter(widthOf);
    for (const text of ["MMMMMMiiiiii", "iiiiiiMMMMMM", "Memcpy HtoD (Pageable -> Device)", "MM\u{1F600}MMMM"]) {
      for (let width = 30; width < widthOf(text) + 8; width++) {
        const shown = cutter.cut(text, width);
        if (!shown) continue;
        expect(widthOf(shown)).toBeLessThanOrEqual(width - 8);
        const more = [...text].slice(0, [...shown].length).join("");
        expect(widthOf(`${more}…`)).toBeGreaterThan(width - 8);
      }
    }
    expect(cutter.cut("iiiiiiMMMMMM", 40)).toBe("iiiiii…");
  });

  test("GIVEN plain text, a regular expression and a wrong one WHEN names are looked for THEN found by it, without an error", () => {
    const names = new NameTable({ names: ["aten::mm", "aten::addmm", "ncclKernel (AllReduce)"], categories: [4, 4, 1] });
    expect(matching(names, patternOf("MM"))).toEqual([0, 1]);
    expect(matching(names, patternOf("/^aten::.mm|nccl/"))).toEqual([2]);
    expect(matching(names, patternOf("(all"))).toEqual([2]);
    expect(patternOf("/(/").wrong).toContain("regular expression");
  });
});

describe("counters", () => {
  const counter = (points: [number, number][], before: number | null): Counter => ({
    kind: "counter", track: 1, z: 0, i: 0, time: Float64Array.from(points, ([t]) => t), low: Float64Array.from(points, ([, v]) => v), high: Float64Array.from(points, ([, v]) => v),
    last: Float64Array.from(points, ([, v]) => v), before, complete: true, bytes: 0,
  });

  test("GIVEN points WHEN leveled THEN each column has the lowest and highest value in it, and a value holds until the next", () => {
    // ten columns of 10 ns: 5 from the begin, 8 at 25, 2 at 27 (both in the third column), nothing more until 80, the end of the worker
    const level = new Level({ start: 0, end: 100 }, 10);
    level.add(counter([[25, 8], [27, 2]], 5), 0, 100);
    level.until(80);
    expect([...level.low]).toEqual([5, 5, 2, 2, 2, 2, 2, 2, NaN, NaN]);
    expect([...level.high]).toEqual([5, 5, 8, 2, 2, 2, 2, 2, NaN, NaN]);
  });

  test("GIVEN a counter without a value before WHEN leveled THEN nothing is known before its first point", () => {
    const level = new Level({ start: 0, end: 100 }, 10);
    level.add(counter([[45, 7]], null), 0, 100);
    level.until(100);
    expect([...level.high]).toEqual([NaN, NaN, NaN, NaN, 7, 7, 7, 7, 7, 7]);
  });

  test("GIVEN levels WHEN drawn THEN the line stands at its height, the area below it, and nothing where nothing is known", () => {
    const level = new Level({ start: 0, end: 30 }, 3);
    level.add(counter([[0, 0], [10, 10]], null), 0, 30);
    level.until(20);
    const raster = { pixels: new Uint32Array(3 * 5), width: 3 };
    drawLevel(raster, 0, 5, level, 0, 10, "#0000ff", 1);
    const line = 0xffff0000; // alpha, blue, green, red
    const column = (x: number): number[] => [0, 1, 2, 3, 4].map((y) => raster.pixels[y * 3 + x]!);
    expect(column(0)).toEqual([0, 0, 0, 0, line]);
    expect(column(1)[0]).toBe(line); // from 0 up to 10 at its begin
    expect(column(1)[4]).toBe(line);
    expect(column(2)).toEqual([0, 0, 0, 0, 0]);
  });
});

describe("words on bars", () => {
  const tokens = palette.tokens as unknown as Record<string, string[]>;

  test.each([["light", 0], ["dark", 1]] as const)("GIVEN every fill of the %s theme WHEN an item is plain, under the pointer or striped THEN words on it have a contrast of 4.5", (_, theme) => {
    const of = (name: string): string => tokens[name]![theme]!;
    const fills = [...Object.values(HOST_FILLS).map((pair) => pair[theme]), ...Object.values(tokens).map((pair) => pair[theme]!).filter((hex) => /^#[0-9A-F]{6}$/i.test(hex))];
    const paint = paintOf(fills, of("surface"), theme === 1);
    const hex = (pixel: number): string => hexOf([pixel & 255, (pixel >> 8) & 255, (pixel >> 16) & 255]);
    fills.forEach((fill, c) => {
      expect(contrast(fill, paint.inks[c]!), fill).toBeGreaterThanOrEqual(4.5);
      expect(contrast(hex(paint.bright[c]!), paint.brightInks[c]!), `bright ${fill}`).toBeGreaterThanOrEqual(4.5);
      expect(contrast(hex(paint.stripe[c]!), paint.inks[c]!), `striped ${fill}`).toBeGreaterThanOrEqual(4.5);
      expect(contrast(hex(paint.faded[c]!), paint.fadedInks[c]!), `faded ${fill}`).toBeGreaterThanOrEqual(4.5);
    });
    expect(contrast(of("ink-2"), of("sunken"))).toBeGreaterThanOrEqual(4.5); // steps
    for (const share of PHASE_SHARES) expect(contrast(of("ink"), hexOf(mix(channels(of("surface")), channels(of("accent")), share)))).toBeGreaterThanOrEqual(4.5);
  });
});

describe("patterns", () => {
  test("GIVEN every color WHEN striped THEN words on it read at least as well as on the plain fill", () => {
    const colors = JSON.stringify(palette).match(/#[0-9A-Fa-f]{6}/g)!;
    expect(colors.length).toBeGreaterThan(20);
    for (const fill of colors) expect(contrast(inkOn(fill), stripeOn(fill)), fill).toBeGreaterThanOrEqual(contrast(inkOn(fill), fill));
  });

  test("GIVEN eighteen categories WHEN striped THEN no two are alike, and each has a letter of its own", () => {
    const rows = Array.from({ length: 18 }, (_, c) => { const { period, at } = stripesOf(c); return Array.from({ length: 6720 }, (_, x) => at.includes(x % period)).join(); });
    expect(new Set(rows).size).toBe(18);
    expect(lettersOf(["compute", "communication", "copies", "operators", "Other"])).toEqual(["C", "O", "P", "E", "T"]);
  });

  test("GIVEN an item WHEN drawn striped THEN stripes stand at fixed places of the screen", () => {
    const raster = { pixels: new Uint32Array(40), width: 40 };
    drawLane(raster, 0, lane([[100, 700, 1, 1, 255]]), 0, { start: 0, end: 1000 }, -Infinity, Infinity, Uint8Array.of(0, 1), paint, { ...PLAIN, striped: true });
    // category 1: every fourth pixel; the item reaches from pixel 4 to 28, the last is its edge
    const striped = [...raster.pixels.slice(0, 27)].flatMap((p, x) => (p === paint.stripe[1] ? [x] : []));
    expect(striped).toEqual([4, 8, 12, 16, 20, 24]);
  });
});
