import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { areaText, eventText, readArea, readEvent, readMarks, readSpan, spanText } from "../../src/sections/timeline/place";
import { around, inside, lengthOf, levelOf, Places, SHORTEST, ticksOf, tilesOf, timeOf, topOf, xOf, zoomed } from "../../src/sections/timeline/viewport";

const all = { start: 0, end: 1_000_000 };
const span = fc.tuple(fc.integer({ min: -2_000_000, max: 2_000_000 }), fc.integer({ min: 1, max: 3_000_000 })).map(([start, length]) => ({ start, end: start + length }));

describe("viewport", () => {
  test("GIVEN any window WHEN put on the recording THEN it is not shorter than can be shown and leaves it by a little at most", () => {
    fc.assert(fc.property(span, (s) => {
      const got = inside(s, all);
      expect(lengthOf(got)).toBeGreaterThanOrEqual(SHORTEST);
      expect(got.start).toBeGreaterThanOrEqual(-20_001);
      expect(got.end).toBeLessThanOrEqual(1_020_001);
    }));
  });

  test("GIVEN a zoom at a time WHEN it is far from the ends THEN that time stays where it was", () => {
    fc.assert(fc.property(fc.integer({ min: 400_000, max: 600_000 }), fc.double({ min: 0.3, max: 0.99, noNaN: true }), (at, factor) => {
      const before = { start: 300_000, end: 700_000 };
      expect(xOf(at, zoomed(before, factor, at, all), 1000)).toBeCloseTo(xOf(at, before, 1000), 6);
    }));
  });

  test("GIVEN a width WHEN the level is chosen THEN a bucket is half a pixel to one, and tiles cover the window", () => {
    fc.assert(fc.property(fc.integer({ min: 2_000, max: 2 ** 45 }), fc.integer({ min: 100, max: 4000 }), (length, width) => {
      const view = { start: 17, end: 17 + length };
      const z = levelOf(view, width);
      const perPixel = length / width;
      if (perPixel >= 1) expect(perPixel / 2 ** z).toBeGreaterThanOrEqual(1);
      expect(perPixel / 2 ** z).toBeLessThan(2);
      const [first, last] = tilesOf(view, z, 2 ** 46);
      expect(first * 2 ** (z + 10)).toBeLessThanOrEqual(view.start);
      expect((last + 1) * 2 ** (z + 10)).toBeGreaterThanOrEqual(view.end);
      expect(last - first).toBeLessThanOrEqual(Math.ceil(width / 512) + 1);
    }));
    expect([topOf(1023), topOf(1024), topOf(0)]).toEqual([0, 1, 0]);
  });

  test("GIVEN any window WHEN ticks are made THEN they are round, apart, and inside", () => {
    fc.assert(fc.property(fc.integer({ min: 0, max: 2 ** 40 }), fc.integer({ min: 30, max: 2 ** 40 }), (start, length) => {
      const view = { start, end: start + length };
      const ticks = ticksOf(view, 1000);
      expect(ticks.length).toBeLessThan(16);
      for (let k = 1; k < ticks.length; k++) expect(xOf(ticks[k]!.time, view, 1000) - xOf(ticks[k - 1]!.time, view, 1000)).toBeGreaterThan(80);
      expect(ticks.every((t) => t.time >= view.start && t.time <= view.end)).toBe(true);
    }));
    expect(ticksOf({ start: 0, end: 63e6 }, 1000).map((t) => t.text).slice(0, 3)).toEqual(["0\u202fms", "10", "20"]);
    expect(timeOf(xOf(123_456, all, 777), all, 777)).toBeCloseTo(123_456, 6);
  });

  test("GIVEN places left WHEN going back and forward THEN each is found again", () => {
    const places = new Places();
    places.leave({ start: 0, end: 10 });
    places.leave({ start: 2, end: 4 });
    expect(places.step(-1, { start: 3, end: 3.5 })).toEqual({ start: 2, end: 4 });
    expect(places.step(-1, { start: 2, end: 4 })).toEqual({ start: 0, end: 10 });
    expect(places.step(-1, { start: 0, end: 10 })).toBeNull();
    expect(places.step(1, { start: 0, end: 10 })).toEqual({ start: 2, end: 4 });
    expect(around({ start: 5, end: 5 }, all).end).toBeGreaterThan(5);
  });
});

describe("keys of the address", () => {
  const path = fc.array(fc.stringMatching(/^[A-Za-z0-9 :,\\.#-]{1,10}$/), { minLength: 1, maxLength: 4 }).map((parts) => parts.join("/"));
  const time = fc.nat(2 ** 31);
  test("GIVEN any event, area and window WHEN written and read THEN they are the same", () => {
    fc.assert(fc.property(path, time, time, fc.uniqueArray(path, { maxLength: 3 }), (name, start, duration, paths) => {
      expect(readEvent(eventText({ path: name, start, duration }))).toEqual({ path: name, start, duration });
      const s = { start, end: start + duration + 1 };
      expect(readSpan(spanText(s))).toEqual(s);
      expect(readArea(areaText({ ...s, paths }))).toEqual({ ...s, paths });
    }));
  });

  test("GIVEN what is no window, event or mark WHEN read THEN it is left out", () => {
    for (const bad of ["", "5", "9-5", "a-b", "1-2-3", "1e3-2e3"]) expect(readSpan(bad)).toBeNull();
    for (const bad of ["", "GPU 0", "GPU 0:5", "GPU 0:a:b"]) expect(readEvent(bad)).toBeNull();
    expect(readMarks("9,x,3,3,,1e5")).toEqual([3, 9]);
  });
});
