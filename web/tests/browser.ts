/** A real Chromium, and the page in it. */

import { existsSync, readFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import { type AddressInfo } from "node:net";
import { extname, join } from "node:path";
import { pathToFileURL } from "node:url";
import type { Browser, BrowserContext, BrowserContextOptions, Page } from "playwright-core";

export interface Opened {
  context: BrowserContext;
  page: Page;
  /** Addresses that the page asked for after itself. */
  requests: string[];
  /** Errors and warnings of the console. */
  complaints: string[];
}

/** Open an address, or a file, as somebody who was never here. */
export async function open(browser: Browser, where: string, options: BrowserContextOptions = {}): Promise<Opened> {
  const context = await browser.newContext(options);
  context.setDefaultTimeout(60_000);
  const page = await context.newPage();
  const [requests, complaints]: string[][] = [[], []];
  context.on("request", (request) => requests!.push(request.url()));
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) complaints!.push(message.text());
  });
  page.on("pageerror", (error) => complaints!.push(error.message));
  await page.goto(where.startsWith("http") ? where : pathToFileURL(where).href);
  await page.waitForSelector("html[data-ready]");
  requests!.splice(0, 1); // the page itself
  return { context, page, requests: requests!, complaints: complaints! };
}

const TYPES: Record<string, string> = {
  ".html": "text/html",
  ".js": "text/javascript",
  ".svg": "image/svg+xml",
  ".webmanifest": "application/manifest+json",
};

/** A web server for a folder. */
export async function serve(folder: string): Promise<{ server: Server; address: string }> {
  const server = createServer((request, response) => {
    const name = (request.url ?? "/").split("?")[0]!.replace(/\/$/, "/index.html");
    const file = join(folder, name);
    if (!existsSync(file)) return response.writeHead(404).end();
    return response.writeHead(200, { "Content-Type": TYPES[extname(file)] ?? "text/plain" }).end(readFileSync(file));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { server, address: `http://127.0.0.1:${(server.address() as AddressInfo).port}/` };
}
