import { readdirSync, readFileSync, statSync } from "node:fs";
import { join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";

const SRC = fileURLToPath(new URL("../src", import.meta.url));
const files = (folder: string): string[] => readdirSync(folder).flatMap((n) => {
  const path = join(folder, n);
  return statSync(path).isDirectory() ? files(path) : /\.tsx?$/.test(n) ? [path] : [];
});
const sources = files(SRC).map((path) => ({ path: relative(SRC, path), text: readFileSync(path, "utf8") }));
const code = (text: string): string => text.replace(/\/\*[\s\S]*?\*\//g, "").replace(/^\s*\/\/.*$/gm, "");
const filesWith = (pattern: RegExp): string[] => sources.filter((s) => pattern.test(code(s.text))).map((s) => s.path).sort();

/** Rooms by layer: a file imports from its own layer or a lower one. */
const LAYER: Record<string, number> = { "": 0, api: 0, state: 1, ui: 2, sections: 3, pages: 4 };
const room = (path: string): string => (path.includes("/") ? path.split("/")[0]! : "");

describe("architecture", () => {
  test("GIVEN every import WHEN followed THEN it points to its own room or a lower one", () => {
    const wrong: string[] = [];
    for (const { path, text } of sources) {
      if (path === "index.ts") continue;
      for (const [, target] of text.matchAll(/from "(\.[^"]+)"/g)) {
        const to = relative(SRC, resolve(SRC, path, "..", target!));
        if (LAYER[room(to)]! > LAYER[room(path)]!) wrong.push(`${path} -> ${to}`);
      }
    }
    expect(wrong).toEqual([]);
  });

  test("GIVEN the one place for each outside thing WHEN searched THEN nobody else touches it", () => {
    expect(filesWith(/\bfetch\(/)).toEqual(["api/client.ts"]);
    expect(filesWith(/\.Plotly\b/)).toEqual(["sections/figure/plotly.ts"]);
    expect(filesWith(/window\.parent|window\.top|frameElement/)).toEqual(["state/host.ts"]);
    expect(filesWith(/dangerouslySetInnerHTML|innerHTML|insertAdjacentHTML|document\.write/)).toEqual([]);
    expect(filesWith(/https?:\/\//).filter((p) => !p.endsWith("icons.tsx"))).toEqual(["sections/timeline/perfetto.ts"]); // the only outside page, opened by a click
  });
});
