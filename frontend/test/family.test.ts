import { describe, expect, test } from "vitest";
import type { AnalysisInfo } from "../src/api/types";
import { entriesOf, familyOf, headOf } from "../src/state/family";

const of = (...pairs: [string, string?][]): AnalysisInfo[] => pairs.map(([name, under]) => ({ name, title: name, ...(under !== undefined && { under }) }));
const names = (all: AnalysisInfo[]): string[] => all.map((a) => a.name);

describe("families of pages", () => {
  const all = of(["overview"], ["sizes", "copies"], ["copies", ""], ["single", "copies"], ["kernels"]);

  test("GIVEN views of a page WHEN the page list is made THEN it has only the page, in its place", () => {
    expect(names(entriesOf(all))).toEqual(["overview", "copies", "kernels"]);
  });

  test("GIVEN a page or one of its views WHEN its tabs are asked THEN the page first, its views in the order of the catalog", () => {
    for (const name of ["copies", "single", "sizes"]) expect(names(familyOf(all, name))).toEqual(["copies", "sizes", "single"]);
    expect(names(familyOf(all, "kernels"))).toEqual(["kernels"]);
    expect(familyOf(all, "no such page")).toEqual([]);
    expect(headOf(all, "single")?.name).toBe("copies");
  });

  test("GIVEN a view of an absent page, of itself, or of a view WHEN listed THEN it is a page of its own: nothing gets lost", () => {
    const odd = of(["a", "gone"], ["b", "b"], ["c", "d"], ["d", "e"], ["e"]);
    expect(names(entriesOf(odd))).toEqual(["a", "b", "c", "e"]);
    expect(names(familyOf(odd, "c"))).toEqual(["c"]);
    expect(names(familyOf(odd, "e"))).toEqual(["e", "d"]);
  });
});
