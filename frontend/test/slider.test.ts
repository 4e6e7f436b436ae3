import { describe, expect, test } from "vitest";
import { placeOf } from "../src/ui/slider";

describe("slider", () => {
  test("GIVEN a value among its values WHEN placed THEN its index", () => {
    expect(["1", "2", "4", "8"].map((v) => placeOf(v, ["1", "2", "4", "8"]))).toEqual([0, 1, 2, 3]);
  });

  test("GIVEN a value that is none of them WHEN placed THEN the index of the next larger one, else the end", () => {
    expect(placeOf("3", ["1", "2", "4", "8"])).toBe(2);
    expect(placeOf("12", ["1", "2", "4", "8"])).toBe(3);
    expect(placeOf("", ["1", "2"])).toBe(0);
    expect(placeOf("7", [])).toBe(0);
  });
});
