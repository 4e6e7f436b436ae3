// One ES module and one stylesheet, no hashes in names, nothing minified: a reader can open what TensorBoard serves.
import { defineConfig } from "vite";

export default defineConfig({
  base: "./",
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
