/** Files of the example that Python has made. */

import { readFileSync } from "node:fs";
import { join } from "node:path";

const folder = process.env["SOLERA_EXAMPLE"] ?? "";

export function path(name: string): string {
  return join(folder, name);
}

export function bytes(name: string): Uint8Array<ArrayBuffer> {
  return new Uint8Array(readFileSync(path(name)));
}

export function json<T>(name: string): T {
  return JSON.parse(readFileSync(path(name), "utf8")) as T;
}
