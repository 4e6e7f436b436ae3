import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { columnScale, exact, human, inColumn, MINUS, moment, NARROW, partsBeside, readQuantity } from "../src/units";

const vector = JSON.parse(readFileSync(new URL("../../tests/golden/units.json", import.meta.url), "utf8")) as [number | null, string, string][];

describe("moments", () => {
  test("GIVEN a time WHEN moments are a step apart THEN it has the digits that tell them apart, and at least those of an amount", () => {
    const text = (time: number, step?: number): string => moment(time, step).replaceAll(NARROW, " ");
    expect(text(40_330_812)).toBe("40.330812 ms");
    expect(text(735_003_690_123_456_000, 1e5)).toBe("735 003 690.1235 s");
    expect(text(1_403_217_004, 1e6)).toBe("1 403 ms");
    expect(text(1_403_217_004, 1e3)).toBe("1 403.217 ms");
    expect(text(502_812_345, 1e6)).toBe("502.8 ms");
    expect(text(17)).toBe("17 ns");
    expect(text(-1_500)).toBe(`${MINUS}1.500 µs`);
    expect(text(0)).toBe("0 ns");
  });
});

describe("units", () => {
  test("GIVEN the shared vector WHEN formatted here THEN every answer is Python's", () => {
    expect(vector.length).toBeGreaterThan(500);
    const wrong = vector.filter(([value, unit, text]) => human(value, unit) !== text).map(([v, u, t]) => [v, u, t, human(v, u)]);
    expect(wrong).toEqual([]);
  });

  test("GIVEN amounts in one list WHEN written THEN all have the unit of the largest, as side_by_side writes them in Python", () => {
    const texts = [4_007_000, 17_300, 250].map((v) => Object.values(partsBeside(v, "ns", 4_007_000)).join(" "));
    expect(texts).toEqual(["4.01 ms", "0.0173 ms", "250 ns"]);
  });

  test("GIVEN times of one column WHEN scaled THEN one unit and one count of decimals", () => {
    const scale = columnScale([551_450_000, 262_420_000, 10_040_000, 9_000_000, 1_870_000], "ns");
    expect([scale.name, scale.decimals]).toEqual(["ms", 2]);
    expect(inColumn(551_450_000, scale)).toBe("551.45");
    expect(inColumn(1_870_000, scale)).toBe("1.87");
  });

  test("GIVEN zero and nearly zero WHEN shown in a column THEN they differ", () => {
    const scale = { factor: 1e6, name: "ms", decimals: 2 };
    expect(inColumn(0, scale)).toBe("0");
    expect(inColumn(4_000, scale)).toBe("< 0.01");
    expect(inColumn(5_000, scale)).toBe("0.01");
  });

  test("GIVEN counts WHEN scaled THEN whole; GIVEN ratios THEN percent with one decimal", () => {
    expect(inColumn(4205, columnScale([4205, 1], "count"))).toBe(`4${NARROW}205`);
    expect(inColumn(0.2906, columnScale([0.29, 1], "ratio"))).toBe("29.1");
  });

  test("GIVEN a step of 1.2 s WHEN scaled THEN ms, so that parts can be ranked", () => {
    expect(columnScale([4.16, 3.64, 1.74, 443_325, 2.1], "").decimals).toBe(1); // one far away leaves the others a decimal
    expect(columnScale([1_211_000_000, 619_000_000, 9_600_000], "ns").name).toBe("ms");
    expect(columnScale([12_110_000_000, 619_000_000], "ns").name).toBe("s");
    expect(columnScale([3_980_000, 4_000, 2_000], "ns").name).toBe("ms"); // one that adds up
    expect(columnScale([3_980_000, 4_000, 2_000], "ns", undefined, true).name).toBe("µs"); // single ones, of which half would vanish
    expect(columnScale([3_980_000, 400_000, 2_000], "ns", undefined, true).name).toBe("ms");
    expect(columnScale([5_076_689_000, 4_000, 2_000], "ns", undefined, true).name).toBe("ms"); // nobody reads seven digits of µs
    const ms = { factor: 1e6, name: "ms" }; // of the column beside it
    expect(columnScale([27_370], "ns", ms)).toMatchObject({ name: "ms", decimals: 4 });
    expect(inColumn(27_370, columnScale([27_370], "ns", ms))).toBe("0.0274");
    expect(columnScale([2_737], "ns", ms).name).toBe("µs"); // no reader counts the zeros
    expect(columnScale([1.87e12, 1.4e12, 0.36e12, 12e9, 11e9], "B/s").name).toBe("GB/s"); // a link beside a memory
    expect(columnScale([1.87e12, 1.4e12, 0.36e12, 0.31e12, 11e9], "B/s").name).toBe("TB/s");
    expect(columnScale([366_000_000, 11_192, 8], "B", { factor: 1e9, name: "GB" }, true).name).toBe("kB");
  });

  test("GIVEN one fast and many slow copies WHEN scaled THEN the slow ones are still told apart", () => {
    const scale = columnScale([2.5e12, 2e10, 1.8e10, 1.1e10, 4e9], "B/s");
    expect([scale.name, inColumn(2.5e12, scale), inColumn(1.1e10, scale)]).toEqual(["GB/s", `2${NARROW}500.0`, "11.0"]);
    expect(columnScale([1.43e12, 52.5e9], "B/s").name).toBe("GB/s");
    const direct = columnScale([1.753e12, 1.393e12, 39.2e9, 11.06e9], "B/s"); // two links, two of memory
    expect([direct.name, inColumn(1.753e12, direct), inColumn(11.06e9, direct)]).toEqual(["GB/s", `1${NARROW}753.0`, "11.1"]);
  });

  test("GIVEN a column without a known value WHEN scaled THEN it still has a unit", () => {
    expect(columnScale([null, null], "ns").name).toBe("ms");
  });

  test("GIVEN a value WHEN shown exactly THEN all digits in base units", () => {
    expect(exact(1_211_200_001, "ns")).toBe(`1${NARROW}211${NARROW}200${NARROW}001${NARROW}ns`);
  });

  test("GIVEN a typed number WHEN read THEN its value, prefixes and blanks understood; a word is none", () => {
    expect(["0.1", "1 000", "1e12", "10 T", "3.35 TB/s", "0,5", "\u22122", "5k"].map(readQuantity)).toEqual([0.1, 1000, 1e12, 1e13, 3.35e12, 0.5, -2, 5000]);
    expect(["", "x", "1.2.3", "T", "-"].map(readQuantity)).toEqual([null, null, null, null, null]);
  });
});
