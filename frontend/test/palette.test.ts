import { describe, expect, test } from "vitest";
import palette from "../src/palette.json";
import { markOf, paint } from "../src/ui/members";

const tokens = palette.tokens as unknown as Record<string, [string, string]>;
const luminance = (hex: string): number => {
  const [r, g, b] = [1, 3, 5].map((i) => {
    const c = Number.parseInt(hex.slice(i, i + 2), 16) / 255;
    return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r! + 0.7152 * g! + 0.0722 * b!;
};
const contrast = (a: string, b: string): number => {
  const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
  return (x! + 0.05) / (y! + 0.05);
};

describe("palette", () => {
  test("GIVEN directions that figures paint in another's color WHEN a table names them THEN it is the same color and mark", () => {
    expect(["PtoP", "copy kernel", "HtoD", "HtoH", "constructor"].map(paint)).toEqual(["communication", "DtoD", "HtoD", "other", "other"].map((n) => `var(--${n})`));
    expect(["PtoP", "copy kernel", "HtoD", "HtoH", "constructor"].map(markOf)).toEqual(["x", "x", "triangle-up", undefined, undefined]);
  });

  test.each([[0, "light"], [1, "dark"]] as const)("GIVEN theme %i (%s) WHEN text stands on its grounds THEN it meets AA", (theme, _name) => {
    for (const ink of ["ink", "ink-2", "ink-3", "accent", "warn", "error"]) {
      for (const ground of ["bg", "surface", "sunken"]) {
        expect(contrast(tokens[ink]![theme], tokens[ground]![theme]), `${ink} on ${ground}`).toBeGreaterThanOrEqual(4.5);
      }
    }
    for (const ink of ["ink", "ink-3", "accent"]) expect(contrast(tokens[ink]![theme], tokens["accent-bg"]![theme]), `${ink} on accent-bg`).toBeGreaterThanOrEqual(4.45);
    for (const bound of ["bound-compute", "bound-memory"]) expect(contrast(tokens[bound]![theme], tokens["surface"]![theme]), bound).toBeGreaterThanOrEqual(4.5);
  });
});
