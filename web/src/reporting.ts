/**
 * A device in a browser that takes part in threshold reports: its ledger, and the sender.
 *
 * As src/solera/privacy/reports/measurements.py and src/solera/federation/reports/sending.py do it.
 */

import { hmac } from "@noble/hashes/hmac.js";
import { sha256 } from "@noble/hashes/sha2.js";
import { encoded, type Measurement, measurements, Night, PAIR, type Terms } from "./reports";

const WAIT = 1000; // milliseconds between two attempts

/** What the owner has agreed to. */
export interface Agreement {
  /** Address of the helper. */
  helper: string;
  /** Public key of the server, in hexadecimal digits. */
  server: string;
  federation: string;
  leastDevices: number;
  newest: number;
  /** Whether pairs tell which item was first, and how far apart. */
  ordered: boolean;
}

/** An item or pair that was taken for an epoch; null where an item of it was deleted since. */
export interface Taken {
  digest: string;
  epoch: number;
  gone: boolean;
  measurement: Measurement | null;
}

/** All that is kept. The keys cannot be read by scripts. */
export interface Kept {
  key: Uint8Array<ArrayBuffer>;
  pair: CryptoKeyPair;
  taken: Taken[];
}

export async function fresh(): Promise<Kept> {
  const pair = await crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, false, ["sign", "verify"]);
  return { key: crypto.getRandomValues(new Uint8Array(32)), pair, taken: [] };
}

/** What has gone to one federation. Everything is saved before anything leaves. */
export class Ledger {
  constructor(
    readonly kept: Kept,
    private readonly save: (kept: Kept) => Promise<void>,
  ) {}

  /** The first candidates that were never taken. An epoch is taken once; one that was not sent is dropped. */
  async take(epoch: number, candidates: Iterable<Measurement>, limit: number): Promise<Measurement[]> {
    this.kept.taken = this.kept.taken.filter((each) => each.gone || each.epoch >= epoch);
    if (!this.kept.taken.some((each) => each.epoch === epoch)) {
      const known = new Set(this.kept.taken.map((each) => each.digest));
      let room = limit;
      for (const measurement of candidates) {
        if (!room) break;
        const digest = this.digest(measurement);
        if (known.has(digest)) continue;
        known.add(digest);
        this.kept.taken.push({ digest, epoch, gone: false, measurement });
        room--;
      }
    }
    await this.save(this.kept);
    const own = this.kept.taken.filter((each) => each.epoch === epoch);
    own.sort((a, b) => (a.digest < b.digest ? -1 : 1)); // their order tells nothing
    return own.flatMap(({ measurement }) => measurement ?? []);
  }

  /** All of an epoch counts as sent from here on. */
  async went(epoch: number): Promise<void> {
    for (const each of this.kept.taken) if (each.epoch === epoch) each.gone = true;
    await this.save(this.kept);
  }

  /** Forget the items that are no longer in the history. Digests stay, so that nothing goes twice. */
  async keepOnly(items: ReadonlySet<number>): Promise<void> {
    const held = ({ measurement }: Taken) => !measurement || (items.has(measurement.first) && items.has(measurement.second));
    this.kept.taken = this.kept.taken
      .filter((each) => each.gone || held(each))
      .map((each) => (held(each) ? each : { ...each, measurement: null }));
    await this.save(this.kept);
  }

  private digest({ first, second }: Measurement): string {
    const [low, high] = [Math.min(first, second), Math.max(first, second)];
    return hex(hmac(sha256, this.kept.key, encoded({ kind: PAIR, first: low, second: high, lag: 0 })).subarray(0, 16));
  }
}

/** Send what is new of a history, oldest item first in it; the epoch. Throws if the helper asks for something else. */
export async function send(agreed: Agreement, ledger: Ledger, history: number[], attempts = 3): Promise<number> {
  const said = (await (await ask(agreed.helper + "/v1/reports", {}, attempts)).json()) as Record<string, unknown>;
  if (said["server"] !== agreed.server) throw new Error("the helper relays to another server than you have agreed to");
  if (said["federation"] !== agreed.federation) throw new Error(`the helper is now of ${String(said["federation"])}`);
  const terms: Terms = {
    federation: agreed.federation,
    epoch: Number(said["epoch"]),
    leastDevices: Number(said["least_devices"]),
    reports: Number(said["reports"]),
  };
  if (!(terms.leastDevices >= agreed.leastDevices)) throw new Error(`the server would read what ${terms.leastDevices} devices report`);
  const taken = await ledger.take(terms.epoch, measurements(history, agreed.newest, agreed.ordered), terms.reports);
  const night = new Night(terms, ledger.kept.key, taken);
  const path = `/v1/reports/${terms.epoch}`;
  const post = async (to: string, body: Uint8Array<ArrayBuffer>) =>
    ask(agreed.helper + to, { method: "POST", body, headers: await signed(ledger.kept.pair, to, body) }, attempts);
  const answer = new Uint8Array(await (await post(`${path}/request`, night.request)).arrayBuffer());
  const keys = { helper: unhex(String(said["helper"])), server: unhex(agreed.server) };
  const message = await night.message(answer, keys);
  await ledger.went(terms.epoch);
  await post(`${path}/message`, message);
  return terms.epoch;
}

/** The public key, as the helper's operator needs it. */
export async function publicLine({ publicKey }: CryptoKeyPair): Promise<string> {
  const text = new TextEncoder();
  const parts = [text.encode("ecdsa-sha2-nistp256"), text.encode("nistp256"), new Uint8Array(await crypto.subtle.exportKey("raw", publicKey))];
  const sized = parts.flatMap((each) => [0, 0, 0, each.length, ...each]);
  return `ecdsa-sha2-nistp256 ${base64(Uint8Array.from(sized))} page`;
}

async function ask(url: string, request: RequestInit, attempts: number): Promise<Response> {
  for (let attempt = 1; ; attempt++) {
    const answer = await fetch(url, request).catch((error: unknown) => error as Error);
    if (answer instanceof Response && answer.ok) return answer;
    if (answer instanceof Response && answer.status < 500) {
      const said = (await answer.json().catch(() => ({}))) as { error?: string };
      throw new Error(said.error ?? `the helper answers ${answer.status}`);
    }
    if (attempt >= attempts) throw answer instanceof Response ? new Error("the helper cannot answer now") : answer;
    await new Promise((resolve) => setTimeout(resolve, WAIT));
  }
}

let nonces = 0;

/** The headers of one POST: src/solera/federation/web/signing.py. */
async function signed(pair: CryptoKeyPair, path: string, body: Uint8Array<ArrayBuffer>): Promise<Record<string, string>> {
  const digest = `sha-256=:${base64(new Uint8Array(await crypto.subtle.digest("SHA-256", body)))}:`;
  const spki = base64(new Uint8Array(await crypto.subtle.exportKey("spki", pair.publicKey)));
  const name = spki.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  const now = Date.now();
  const params =
    `("@method" "@path" "content-digest");created=${Math.floor(now / 1000)};nonce="${now * 1000 + (nonces++ % 1000)}"` +
    `;keyid="${name}";alg="ecdsa-p256-sha256";tag="reports"`;
  const base = [`"@method": POST`, `"@path": ${path}`, `"content-digest": ${digest}`, `"@signature-params": ${params}`].join("\n");
  const made = await crypto.subtle.sign({ name: "ECDSA", hash: "SHA-256" }, pair.privateKey, new TextEncoder().encode(base));
  return {
    "content-digest": digest,
    "signature-input": `sig=${params}`,
    signature: `sig=:${base64(new Uint8Array(made))}:`,
  };
}

function base64(data: Uint8Array): string {
  return btoa(Array.from(data, (byte) => String.fromCharCode(byte)).join(""));
}

function hex(data: Uint8Array): string {
  return Array.from(data, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function unhex(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(text.match(/../g) ?? [], (digits) => parseInt(digits, 16));
}
