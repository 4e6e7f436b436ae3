// One ES module and one stylesheet, no hashes in names, nothing minified: a reader can open what TensorBoard serves.
import { readFileSync } from "node:fs";
import { defineConfig } from "vite";

const palette = readFileSync(new URL("src/palette.json", import.meta.url), "utf8");

export default defineConfig({
  base: "./",
  define: { "process.env.NODE_ENV": JSON.stringify("production") },
  plugins: [
    {
      name: "palette",
      generateBundle() {
        this.emitFile({ type: "asset", fileName: "palette.json", source: palette });
      },
    },
  ],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../tb_sol_plugin/static",
    emptyOutDir: true,
    target: "es2022",
    minify: false,
    cssMinify: false,
    sourcemap: false,
    modulePreload: false,
    reportCompressedSize: false,
    lib: { entry: "src/index.ts", formats: ["es"], fileName: () => "index.js", cssFileName: "index" },
  },
});
