import { readFileSync } from "node:fs";
import { build, type Plugin } from "vite";
import { defineConfig } from "vitest/config";

const licence = (name: string) => `${name}:\n${readFileSync(`node_modules/${name}/LICENSE`, "utf8").trim()}`;
const preact = readFileSync("node_modules/preact/LICENSE", "utf8").trim();

const banner = (licences: string) => ({ output: { postBanner: `/*! Solera, Apache-2.0. Contains ${licences}\n*/` } });

/** The script of the page that sends threshold reports, with the cryptography that no other page needs. */
function contribute(): Plugin {
  let outDir = "";
  return {
    name: "contribute",
    apply: "build", // Vitest runs it otherwise, too
    configResolved: (config) => void (outDir = config.build.outDir),
    closeBundle: async () => {
      const used = ["preact", "@hpke/core", "@noble/curves", "@noble/hashes"];
      const lib = { entry: "src/contribute.tsx", formats: ["iife" as const], name: "contribute", fileName: () => "contribute.js", cssFileName: "app" };
      await build({
        configFile: false,
        logLevel: "warn",
        publicDir: false,
        define: { "process.env.NODE_ENV": '"production"' },
        oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
        build: { outDir, emptyOutDir: false, target: "es2022", lib, rolldownOptions: banner(used.map(licence).join("\n\n")) },
      });
    },
  };
}

// One script and one style, which `solera bundle page` puts into the page. No part of them is loaded from elsewhere.
export default defineConfig({
  plugins: [contribute()],
  define: { "process.env.NODE_ENV": '"production"' },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../src/solera/device/page_assets",
    emptyOutDir: true,
    target: "es2022",
    lib: { entry: "src/main.tsx", formats: ["iife"], name: "solera", fileName: () => "app.js", cssFileName: "app" },
    rolldownOptions: banner(`Preact:\n${preact}`),
  },
  test: { globalSetup: "tests/setup.ts", testTimeout: 120_000, hookTimeout: 120_000 },
});
