/** Before all tests: Python makes the example (tools/page/make_example.py), unless SOLERA_EXAMPLE names one. */

import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export default function setup() {
  if (process.env["SOLERA_EXAMPLE"]) return undefined;
  const folder = mkdtempSync(join(tmpdir(), "solera-example-"));
  execFileSync(process.env["PYTHON"] ?? "python", ["../tools/page/make_example.py", folder], { stdio: "inherit" });
  process.env["SOLERA_EXAMPLE"] = folder;
  return () => rmSync(folder, { recursive: true });
}
