import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { overlap, scriptOf, sharedArea, wayOff } from "../src/sections/figure/plotly";

const entry = readFileSync(new URL("../plotly/entry.js", import.meta.url), "utf8");
const bundled = [...entry.matchAll(/plotly\.js\/lib\/(\w+)/g)].map(([, kind]) => kind).filter((kind) => kind !== "core");

describe("which Plotly draws a figure", () => {
  it.each(["scatter", ...bundled])("the custom bundle draws %s", (type) => {
    expect(scriptOf([{ type }, {}]).src).toBe("vendor/plotly-custom.min.js");
  });

  it.each(["scattergl", "treemap", "sankey", "violin"])("the whole Plotly draws %s, which the bundle does not hold", (type) => {
    expect(bundled).not.toContain(type);
    expect(scriptOf([{ type: "bar" }, { type }]).src).toBe("vendor/plotly.min.js");
  });
});

describe("labels that collide", () => {
  const box = (left: number, top: number, width: number, height: number) => ({ left, top, right: left + width, bottom: top + height });
  it("a hover box leaves a card by the shortest way that stays in the figure", () => {
    const room = box(0, 0, 600, 400);
    expect(wayOff(box(0, 0, 100, 40), box(300, 100, 200, 200), room)).toEqual({ x: 0, y: 0 });
    expect(wayOff(box(290, 80, 60, 40), box(300, 100, 200, 200), room)).toEqual({ x: 0, y: -26 });
    expect(wayOff(box(290, 150, 60, 40), box(300, 0, 200, 400), room)).toEqual({ x: -56, y: 0 });
    expect(wayOff(box(290, 150, 60, 40), box(10, 10, 580, 380), room)).toBe(null);
  });

  it("boxes share the area of their overlap, and none where they only touch", () => {
    expect(sharedArea(box(0, 0, 100, 16), box(90, 4, 60, 16))).toBe(10 * 12);
    expect(sharedArea(box(0, 0, 100, 16), box(100, 0, 60, 16))).toBe(0);
    expect(sharedArea(box(0, 0, 100, 16), box(300, 300, 60, 16))).toBe(0);
  });

  it("boxes that share an area overlap, boxes that touch do not", () => {
    expect(overlap(box(0, 0, 100, 16), box(90, 4, 60, 16))).toBe(true);
    expect(overlap(box(0, 0, 100, 16), box(100, 0, 60, 16))).toBe(false);
    expect(overlap(box(0, 0, 100, 16), box(0, 16, 100, 16))).toBe(false);
  });
});
