import { describe, expect, test } from "vitest";
import type { Category, Track } from "../../src/api/timeline";
import { NameTable } from "../../src/sections/timeline/names";
import { readingOf } from "../../src/sections/timeline/reading";
import type { Counter, Summary } from "../../src/sections/timeline/tile";

const counter = { unit: "B" } as Track;
const group = { unit: "" } as Track;
const categories = [{ label: "Compute" }, { label: "Copies" }] as Category[];
/** Buckets of 4 ns: two samples of 1 and 9 kB in the first of them, one of 5 kB from 40 on. */
const memory: Counter = { kind: "counter", track: 0, z: 2, i: 0, time: Float64Array.of(8, 40), low: Float64Array.of(1e3, 5e3), high: Float64Array.of(9e3, 5e3), last: Float64Array.of(2e3, 5e3), before: null, complete: false, bytes: 1 };
const use = (z: number, i: number): Summary => ({ kind: "summary", track: 0, z, i, category: new Uint8Array(1024).fill(255).fill(1, 3, 4), busy: new Uint8Array(1024).fill(102, 3, 4), depth: new Uint8Array(1024).fill(6, 3, 4), complete: false, bytes: 1 });

describe("what a row says at the pointer", () => {
  test.each<[string, number, number | null, [string, string][] | null]>([
    ["before the first sample nothing is known", 7, null, null],
    ["before the first sample of a later tile that of the one before it", 7, 3e3, [["Value", "3.00 kB"]]],
    ["in a bucket of several the last one and their range", 9, null, [["Value", "2.00 kB"], ["Within a pixel", "1.00 kB to 9.00 kB"]]],
    ["after it the last value holds", 30, null, [["Value", "2.00 kB"]]],
    ["a single sample has no range", 41, null, [["Value", "5.00 kB"]]],
  ])("GIVEN a counter WHEN pointed at THEN %s", (_, time, before, rows) => {
    const found = readingOf(counter, { tile: { ...memory, before }, finer: [], sharp: true }, time, categories);
    expect(found?.map((row) => row.map((text) => text.replaceAll("\u202f", " "))) ?? null).toEqual(rows);
  });

  test("GIVEN a group's tiles WHEN pointed at THEN the finer one that has the time says busy share, kind and depth of its bucket", () => {
    const says = (time: number, finer: Summary[] = []): (readonly string[])[] | null => readingOf(group, { tile: use(3, 0), finer, sharp: false }, time, categories)?.map((row) => row.map((text) => text.replaceAll("\u202f", " "))) ?? null;
    expect(says(3 * 8 + 1)).toEqual([["Busy", "40.0 %"], ["Mostly", "copies"], ["Deepest", "6"]]);
    expect(says(0)).toEqual([["Busy", "0.0 %"]]);
    expect(says(2048 + 6, [use(1, 1)])).toEqual([["Busy", "40.0 %"], ["Mostly", "copies"], ["Deepest", "6"]]);
    expect(says(9e6)).toBeNull();
  });

  test("GIVEN names of kernels WHEN written on bars THEN they are what the pages call them", () => {
    const names = new NameTable({ names: ["aten::mm", "void at::native::fill<4>(int)", "void at::…"], categories: [4, 0, 0], short: { 1: "fill", 2: "vectorized_elementwise_kernel<GeluFunctor>" } });
    expect([0, 1, 2].map((id) => names.narrow(id))).toEqual(["aten::mm", "fill", "GeluFunctor"]);
    expect([0, 1, 7].map((id) => names.short(id))).toEqual(["aten::mm", "fill", "…"]);
    expect(["aten::mm", "void at::native::fill<4>(int)", "unknown"].map((name) => names.shortOf(name))).toEqual(["aten::mm", "fill", "unknown"]);
  });
});
