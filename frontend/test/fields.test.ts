// Query fields as a report tells of them.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { QueryField } from "../src/api/types";
import { fieldOfReport, isNamed, pageDefault, rowsOf, textOfRows, withField, type Row } from "../src/state/fields";

const text: QueryField = { name: "device", type: "text", default: "" };
const choice: QueryField = { name: "by", type: "choice", default: "auto", choices: ["auto", "module", "operator", "phase"] };

describe("a field of a report", () => {
  it("stays as it is where the report lists no values", () => {
    expect(fieldOfReport(text, undefined, false)).toBe(text);
    expect(fieldOfReport(choice, { value: "x" }, false)).toBe(choice);
  });

  it("is a choice of the values that the recording has, with the shown one as default", () => {
    const found = fieldOfReport(text, { value: "CUDA 1", values: ["CUDA 1", "CUDA 0"] }, false)!;
    expect([found.type, found.choices, pageDefault(found)]).toEqual(["choice", ["CUDA 1", "CUDA 0"], "CUDA 1"]);
    const by = fieldOfReport(choice, { values: ["auto", "phase"] }, false)!;
    expect([by.choices, pageDefault(by)]).toEqual([["auto", "phase"], "auto"]);
  });

  it("is left out where there is nothing to choose, unless it is set", () => {
    expect(fieldOfReport(text, { value: "CUDA 0", values: ["CUDA 0"] }, false)).toBeNull();
    expect(fieldOfReport(text, { value: "CUDA 0", values: ["CUDA 0"] }, true)).not.toBeNull();
  });
});

it("GIVEN names out of the logdir WHEN they are a choice THEN they are shown as they are", () => {
  const run = { name: "other_run", type: "text", default: "" } as QueryField;
  expect(isNamed(fieldOfReport(run, { value: "a_b", values: ["a_b", "c"] }, false)!)).toBe(true);
  expect(isNamed({ name: "by", type: "choice", default: "auto" } as QueryField)).toBe(false);
});

it("GIVEN a run that is chosen WHEN another is THEN its worker and span are cleared", () => {
  const run = { name: "other_run", type: "text", default: "" } as QueryField;
  expect(withField({ other_run: "a", other_worker: "w", other_span: "2", by: "module" }, run, "b")).toEqual({ other_run: "b", by: "module" });
  expect(withField({ other_run: "a" }, run, "")).toEqual({});
});

describe("rows of a list", () => {
  const fields = [choice, text, { name: "scale", type: "number", default: "0.5" }, { name: "remove", type: "flag", default: "False" }] as QueryField[];

  it("are JSON in the address, with numbers and switches as such, and without what is so anyway", () => {
    const rows: Row[] = [{ by: "phase", scale: "0.25", remove: "true" }, { by: "auto", scale: "0.5", remove: "false", device: "" }];
    expect(textOfRows(rows, fields)).toBe('[{"by":"phase","scale":0.25,"remove":true},{}]');
    expect(textOfRows([], fields)).toBe("");
    expect(textOfRows([{ scale: "half" }], fields)).toBe('[{"scale":"half"}]'); // the server says what is wrong with it
  });

  it("come back as they were", () => {
    fc.assert(fc.property(fc.array(fc.record({ by: fc.constantFrom("module", "phase"), device: fc.string({ minLength: 1 }), scale: fc.integer({ min: 1, max: 99 }).map(String) })), (rows) => {
      expect(rowsOf(textOfRows(rows, fields))).toEqual(rows);
    }));
  });

  it("are none of what is no list of rows", () => {
    for (const bad of [undefined, "", "[{", "7", "null", '{"by": 1}']) expect(rowsOf(bad)).toEqual([]);
    expect(rowsOf('[null, 7, {"by": {"x": 1}, "scale": 0.5, "set": null}]')).toEqual([{}, {}, { scale: "0.5" }]);
  });
});
