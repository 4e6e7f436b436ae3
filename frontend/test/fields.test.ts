// Query fields as a report tells of them.
import { describe, expect, it } from "vitest";
import type { QueryField } from "../src/api/types";
import { fitted, opensWith } from "../src/state/fields";

const text: QueryField = { name: "device", type: "text", default: "" };
const choice: QueryField = { name: "by", type: "choice", default: "auto", choices: ["auto", "module", "operator", "phase"] };

describe("a field of a report", () => {
  it("stays as it is where the report tells nothing", () => {
    expect(fitted(text, undefined, false)).toBe(text);
    expect(fitted(choice, { value: "x" }, false)).toBe(choice);
  });

  it("is a choice of what the recording has, and opens with what is shown", () => {
    const found = fitted(text, { value: "CUDA 1", values: ["CUDA 1", "CUDA 0"] }, false)!;
    expect([found.type, found.choices, opensWith(found)]).toEqual(["choice", ["CUDA 1", "CUDA 0"], "CUDA 1"]);
    const by = fitted(choice, { values: ["auto", "phase"] }, false)!;
    expect([by.choices, opensWith(by)]).toEqual([["auto", "phase"], "auto"]);
  });

  it("is left out where there is nothing to choose, unless it was asked for", () => {
    expect(fitted(text, { value: "CUDA 0", values: ["CUDA 0"] }, false)).toBeNull();
    expect(fitted(text, { value: "CUDA 0", values: ["CUDA 0"] }, true)).not.toBeNull();
  });
});
