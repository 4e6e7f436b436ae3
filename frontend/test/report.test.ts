import { describe, expect, test } from "vitest";
import type { FactsSection, Section } from "../src/api/types";
import { cardCount, factorCount, rowsOf } from "../src/sections/cards";
import { pageDefault } from "../src/state/fields";

const card = (id: string): Section => ({ id, title: id, kind: "facts", style: "card", values: {} });
const list = (id: string): Section => ({ id, title: id, kind: "facts", values: {} });
const figure = (id: string): Section => ({ id, title: id, kind: "figure", figure: {} });

describe("the page of a report", () => {
  test("GIVEN values of an equation WHEN the first is a product of the next THEN these are its factors, and none where it is not", () => {
    expect(factorCount([0.5, 0.9, 0.5556, 0.17])).toBe(2);
    expect(factorCount([0.133, 0.001, 0.007, 0.311])).toBe(0);
    expect(factorCount([null, 0.9, null])).toBe(2);
  });

  test("GIVEN small cards among other sections WHEN laid out THEN those that follow each other share a row, in order", () => {
    const rows = rowsOf([card("a"), card("b"), figure("c"), list("d"), card("e"), figure("f")]);
    expect(rows.map((r) => r.map((s) => s.id))).toEqual([["a", "b"], ["c"], ["d"], ["e"], ["f"]]);
    expect(rowsOf([])).toEqual([]);
  });

  test("GIVEN a field that may be left out WHEN its default is read THEN it is empty, and others keep theirs", () => {
    const field = { name: "device", type: "number" as const };
    expect(pageDefault({ ...field, default: "None" })).toBe("");
    expect(pageDefault({ ...field, default: "2000" })).toBe("2000");
    expect(pageDefault({ ...field, default: "2000", page: "50" })).toBe("50");
    expect(pageDefault(field)).toBe("");
  });

  test("GIVEN a small card WHEN its count is chosen THEN the first count, unless it is the only value", () => {
    const s = (values: Record<string, number>, style: FactsSection["style"] = "card"): FactsSection => ({ id: "x", title: "x", kind: "facts", style, values, units: { n: "count", m: "count", b: "B" } });
    expect(cardCount(s({ b: 1, n: 2, m: 3 }))).toBe("n");
    expect(cardCount(s({ n: 2 }))).toBeUndefined();
    expect(cardCount(s({ b: 1, n: 2 }, "tiles"))).toBeUndefined();
  });
});
