// Builds tb_sol_plugin/vendor/plotly-custom.min.js. `npm ci && npm run build` here gives the committed file, byte for byte.
import { readFileSync } from "node:fs";
import { build } from "esbuild";

const { version } = JSON.parse(readFileSync(new URL("node_modules/plotly.js/package.json", import.meta.url), "utf8"));

await build({
  entryPoints: ["entry.js"],
  outfile: "../../tb_sol_plugin/vendor/plotly-custom.min.js",
  bundle: true,
  minify: true,
  format: "iife",
  globalName: "TbSolPlotly",
  loader: { ".css": "empty" }, // of maps, which are not in
  define: { global: "window" },
  target: "es2020",
  legalComments: "eof",
  banner: { js: `/* plotly.js v${version}, custom bundle: scatter, bar, heatmap, icicle. Copyright 2012-2026, Plotly, Inc. Licensed under the MIT license. */` },
  logLevel: "error",
});
