import { expect, test } from "vitest";
import { failuresOf } from "../src/state/failures";

test("GIVEN a catalog with analyses that failed to load WHEN listed THEN each has its name and reason, in alphabetical order", () => {
  expect(failuresOf({ steps: "ImportError: b", kernels: "SyntaxError: a" })).toEqual([{ name: "kernels", reason: "SyntaxError: a" }, { name: "steps", reason: "ImportError: b" }]);
});

test("GIVEN a catalog without the field WHEN listed THEN nothing failed", () => {
  expect(failuresOf(undefined)).toEqual([]);
});
