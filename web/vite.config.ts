import { readFileSync } from "node:fs";
import { defineConfig } from "vitest/config";

const preact = readFileSync("node_modules/preact/LICENSE", "utf8").trim();

// One script and one style, which `solera bundle page` puts into the page. No part of them is loaded from elsewhere.
export default defineConfig({
  define: { "process.env.NODE_ENV": '"production"' },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../src/solera/device/page_assets",
    emptyOutDir: true,
    target: "es2022",
    lib: { entry: "src/main.tsx", formats: ["iife"], name: "solera", fileName: () => "app.js", cssFileName: "app" },
    rolldownOptions: { output: { postBanner: `/*! Solera, Apache-2.0. Contains Preact:\n${preact}\n*/` } },
  },
  test: { globalSetup: "tests/setup.ts", testTimeout: 120_000, hookTimeout: 120_000 },
});
