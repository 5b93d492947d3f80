/**
 * Before all tests: Python makes the example (tools/page/make_example.py), unless SOLERA_EXAMPLE names one.
 * SOLERA_PAGE_DATA="ml-100k ml-1m" compares models of these data sets, too.
 */

import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export default function setup() {
  if (process.env["SOLERA_EXAMPLE"]) return undefined;
  const folder = mkdtempSync(join(tmpdir(), "solera-example-"));
  const dataSets = (process.env["SOLERA_PAGE_DATA"] ?? "").split(" ").filter(Boolean);
  execFileSync("python", ["../tools/page/make_example.py", folder, ...dataSets], { stdio: "inherit" });
  process.env["SOLERA_EXAMPLE"] = folder;
  return () => rmSync(folder, { recursive: true });
}
