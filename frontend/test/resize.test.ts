import { describe, expect, test } from "vitest";
import { contentWidth, within } from "../src/sections/table/resize";

describe("widths of columns that a reader chooses", () => {
  test("GIVEN any drag WHEN it ends THEN the column keeps room for a heading's menu and stays in reach", () => {
    expect([within(-300), within(120.4), within(99_999)]).toEqual([48, 120, 1600]);
  });

  test("GIVEN names WHEN the content is fitted THEN the longest is whole, and no column gets narrower than usual", () => {
    const kernel = "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>";
    expect(contentWidth([null, "mul", kernel], 280)).toBeGreaterThan(kernel.length * 7);
    expect(contentWidth(["mul"], 280)).toBe(280);
  });
});
