// Builds the page into the Python package, and compresses it there once and for all.
import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import { defineConfig } from "vite";

const out = "../src/jackalope/doors/http/page";

const compressed = {
  name: "compressed",
  apply: "build",
  async closeBundle() {
    for (const name of await readdir(out, { recursive: true })) {
      if (!/\.(html|js|css|svg)$/.test(name)) continue;
      const body = await readFile(join(out, name));
      await writeFile(join(out, `${name}.gz`), gzipSync(body, { level: 9 }));
      const params = { [constants.BROTLI_PARAM_QUALITY]: 11 };
      await writeFile(join(out, `${name}.br`), brotliCompressSync(body, { params }));
    }
  },
};

export default defineConfig({
  // Relative, so that the page works below any path that a proxy puts it under.
  base: "./",
  plugins: [compressed],
  build: {
    outDir: out,
    emptyOutDir: true,
    target: "es2022",
    // Nothing inside the page itself: its security policy allows files alone.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  test: { include: ["tests/**/*.test.ts"] },
});
