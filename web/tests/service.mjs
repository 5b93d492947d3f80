/** The service of a device, as `solera device open` starts it. */

import { spawn } from "node:child_process";
import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/**
 * Start the service of a copy of a device.
 * @param {string} device
 */
export async function openDevice(device) {
  const scratch = mkdtempSync(join(tmpdir(), "solera-device-"));
  const folder = join(scratch, "films");
  cpSync(device, folder, { recursive: true });
  const child = spawn("python", ["-m", "solera", "device", "open", folder, "--no-browser", "--json"]);
  let said = "";
  /** @type {string} */
  const link = await new Promise((resolve, reject) => {
    child.stdout.on("data", (text) => {
      said += String(text);
      const found = /"link": "([^"]+)"/.exec(said);
      if (found) resolve(found[1] ?? "");
    });
    child.stderr.on("data", (text) => process.stderr.write(String(text)));
    child.on("exit", () => reject(new Error(`the service ended: ${said}`)));
  });
  const stop = async () => {
    const ended = new Promise((resolve) => child.on("exit", resolve));
    if (child.exitCode === null && child.signalCode === null && child.kill()) await ended;
    rmSync(scratch, { recursive: true, force: true });
  };
  return { folder, link, address: link.split("#")[0] ?? "", process: child, stop };
}
