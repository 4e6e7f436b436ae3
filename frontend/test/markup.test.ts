import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { pieces, plain } from "../src/markup";

describe("markup", () => {
  test("GIVEN bold and code WHEN cut THEN pieces in order", () => {
    expect(pieces("Step **1 211 ms** in `a*b` now")).toEqual([
      { kind: "text", text: "Step " },
      { kind: "bold", text: "1 211 ms" },
      { kind: "text", text: " in " },
      { kind: "code", text: "a*b" },
      { kind: "text", text: " now" },
    ]);
  });

  test("GIVEN html, links and lone marks WHEN cut THEN they stay text", () => {
    for (const text of ["<script>alert(1)</script>", "[a](javascript:x)", "2 ** 3", "a ` b", "****", "**a"]) expect(pieces(text)).toEqual([{ kind: "text", text }]);
  });

  test("GIVEN any text without marks WHEN cut THEN it comes back whole", () => {
    fc.assert(fc.property(fc.string({ unit: "grapheme" }), (text) => {
      const bare = text.replace(/[*`]/g, "");
      expect(plain(bare)).toBe(bare);
    }));
  });
});
