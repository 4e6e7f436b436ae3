import { describe, expect, test } from "vitest";
import { joinLimits, splitLimits } from "../src/state/limits";

describe("device limits", () => {
  test("GIVEN an expression WHEN split and joined THEN its parts, and the same text", () => {
    expect(splitLimits("H100_SXM@1410MHz+sparse")).toEqual({ key: "H100_SXM", clock: "1410", sparse: true });
    expect(splitLimits("+sparse")).toEqual({ key: "", clock: "", sparse: true });
    expect(splitLimits("@1410.5 MHz")).toEqual({ key: "", clock: "1410.5", sparse: false });
    for (const text of ["", "MI300X", "H100_SXM@1410MHz", "H100_SXM+sparse", "@900MHz+sparse"]) expect(joinLimits(splitLimits(text))).toBe(text);
  });

  test("GIVEN what is no expression WHEN split THEN it stays whole, for the server to refuse; a clock may carry its own unit", () => {
    expect(splitLimits("H100@fast+dense")).toEqual({ key: "H100@fast+dense", clock: "", sparse: false });
    expect(joinLimits({ key: "A", clock: "1.41GHz", sparse: false })).toBe("A@1.41GHz");
  });
});
