import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { scriptOf } from "../src/sections/figure/plotly";

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
