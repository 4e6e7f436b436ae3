import { describe, expect, test } from "vitest";
import { nameOf } from "../src/api/file";

describe("a page that was saved as a file", () => {
  test("GIVEN an address of an answer WHEN it is looked for THEN recording, order and empty values do not matter", () => {
    expect(nameOf("api/v1/runs")).toBe("api/v1/runs");
    expect(nameOf("api/v1/analysis/kernels?run=a%2Fb&worker=w&span=s&group_by=op%20name&by=&step=3&tables=pages")).toBe("api/v1/analysis/kernels\ngroup_by=op name\nstep=3");
    expect(nameOf("api/v1/analysis/kernels?step=3&group_by=op%20name")).toBe(nameOf("api/v1/analysis/kernels?group_by=op%20name&step=3"));
  });
});
