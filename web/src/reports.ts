/**
 * Threshold reports, the device's side: src/solera/privacy/reports in TypeScript.
 *
 * A module of its own with the cryptography that it needs. Only `contribute.tsx` loads it.
 */

import { Aes128Gcm, CipherSuite, DhkemX25519HkdfSha256, HkdfSha256 } from "@hpke/core";
import { ristretto255_oprf } from "@noble/curves/ed25519.js";
import { hkdf } from "@noble/hashes/hkdf.js";
import { sha512 } from "@noble/hashes/sha2.js";

type Bytes = Uint8Array<ArrayBuffer>;

export const ITEM = 0;
export const PAIR = 1;
export const ORDERED = 2;
const PADDING = 3;
const MEASUREMENT_BYTES = 10;
const POINT_BYTES = 16;
const ELEMENT_BYTES = 32;
const PROOF_BYTES = 64;
const PRIME = (1n << 256n) + 297n;
const SHARE_BYTES = 33;
export const REPORT_BYTES = 91;

/** What devices, helper and server agree on for an epoch. */
export interface Terms {
  federation: string;
  epoch: number;
  leastDevices: number;
  /** Of every device, padding among them. */
  reports: number;
}

/** An item, or a pair of items; of an ordered pair how far apart, ⌈log₂ places⌉. */
export interface Measurement {
  kind: number;
  first: number;
  second: number;
  lag: number;
}

/** Public keys of both operators. */
export interface Operators {
  helper: Uint8Array;
  server: Uint8Array;
}

/** All items and pairs of a history, oldest item first in it, in the order in which they are reported. */
export function measurements(history: Iterable<number>, newest: number, ordered = false): Measurement[] {
  const items = [...new Set(history)];
  const found: Measurement[] = [];
  for (let place = items.length - 1; place >= 0; place--) {
    const item = items[place]!;
    found.push({ kind: ITEM, first: item, second: item, lag: 0 });
    for (let other = place + 1; other < Math.min(place + newest, items.length); other++) {
      const second = items[other]!;
      if (ordered) found.push({ kind: ORDERED, first: item, second, lag: 32 - Math.clz32(other - place - 1) });
      else found.push({ kind: PAIR, first: Math.min(item, second), second: Math.max(item, second), lag: 0 });
    }
  }
  return found;
}

export function encoded({ kind, first, second, lag }: Measurement): Bytes {
  const data = new Uint8Array(MEASUREMENT_BYTES);
  const view = new DataView(data.buffer);
  view.setUint8(0, kind);
  view.setUint32(1, first);
  view.setUint32(5, second);
  view.setUint8(9, lag);
  return data;
}

/** What goes once: the item or the pair, in whichever order. */
export function identity({ first, second }: Measurement): string {
  return `${Math.min(first, second)} ${Math.max(first, second)}`;
}

/** Bytes that no other terms have. */
export function context(terms: Terms): Bytes {
  const numbers = new DataView(new ArrayBuffer(12));
  numbers.setBigUint64(0, BigInt(terms.epoch));
  numbers.setUint16(8, terms.leastDevices);
  numbers.setUint16(10, terms.reports);
  const text = new TextEncoder();
  return joined([text.encode("solera reports 1\0"), new Uint8Array(numbers.buffer), text.encode(terms.federation)]);
}

/** The report of an encoded measurement, of which the device has the output of the function. */
export async function report(terms: Terms, measurement: Bytes, output: Uint8Array, point: Uint8Array): Promise<Bytes> {
  const salt = context(terms);
  const secret = derive(output, salt, "secret", 32);
  const stream = derive(secret, salt, "report", 48 * terms.leastDevices);
  let share = 0n;
  const z = number(point);
  for (let power = terms.leastDevices - 1; power >= 0; power--) {
    const coefficient = power ? number(stream.subarray(48 * power, 48 * (power + 1))) : number(secret);
    share = (share * z + coefficient) % PRIME;
  }
  const key = await crypto.subtle.importKey("raw", stream.subarray(16, 48), "AES-GCM", false, ["encrypt"]);
  const ciphertext = await crypto.subtle.encrypt({ name: "AES-GCM", iv: new Uint8Array(12) }, key, measurement);
  return joined([stream.subarray(0, 16), point, bytesOf(share, SHARE_BYTES), new Uint8Array(ciphertext)]);
}

/**
 * One night of one device. All random choices but the seals' are made from a key of the device's, so that a
 * night that is done again sends the same.
 */
export class Night {
  private readonly inputs: Bytes[];
  private readonly blinded: { blind: Uint8Array; blinded: Uint8Array }[];

  /** What goes tonight, at most so many measurements as the terms have room for. */
  constructor(
    private readonly terms: Terms,
    private readonly key: Uint8Array,
    taken: readonly Measurement[],
  ) {
    if (taken.length > terms.reports) throw new RangeError("more measurements than a message has room for");
    this.inputs = taken.map(encoded);
    for (let place = taken.length; place < terms.reports; place++) {
      const drawn = this.drawn(`padding ${place}`, new Uint8Array(), MEASUREMENT_BYTES - 1);
      this.inputs.push(joined([Uint8Array.of(PADDING), drawn]));
    }
    this.blinded = this.inputs.map((input) =>
      ristretto255_oprf.voprf.blind(input, (length) => this.drawn("blind", input, length ?? 32)),
    );
  }

  /** For the helper, to evaluate. */
  get request(): Bytes {
    return joined(this.blinded.map((each) => each.blinded));
  }

  /** The sealed reports, given the helper's answer. Throws if it is of another key than the helper has announced. */
  async message(answer: Uint8Array, operators: Operators): Promise<Bytes> {
    const evaluated = answer.subarray(0, -PROOF_BYTES);
    if (evaluated.length !== ELEMENT_BYTES * this.inputs.length) throw new RangeError("the answer has another length");
    const items = this.blinded.map((each, place) => ({
      input: this.inputs[place]!,
      evaluated: evaluated.subarray(ELEMENT_BYTES * place, ELEMENT_BYTES * (place + 1)),
      ...each,
    }));
    const outputs = ristretto255_oprf.voprf.finalizeBatch(items, operators.helper, answer.subarray(-PROOF_BYTES));
    const kem = new DhkemX25519HkdfSha256();
    const suite = new CipherSuite({ kem, kdf: new HkdfSha256(), aead: new Aes128Gcm() });
    const server = await kem.deserializePublicKey(operators.server);
    const info = context(this.terms);
    const sealed: Uint8Array[] = [];
    for (const [place, input] of this.inputs.entries()) {
      const point = this.drawn("point", input, POINT_BYTES);
      const plain = await report(this.terms, input, outputs[place]!, point);
      const { enc, ct } = await suite.seal({ recipientPublicKey: server, info }, plain);
      sealed.push(new Uint8Array(enc), new Uint8Array(ct));
    }
    return joined(sealed);
  }

  private drawn(purpose: string, data: Uint8Array, length: number): Bytes {
    const info = joined([new TextEncoder().encode(purpose), data]);
    return new Uint8Array(hkdf(sha512, this.key, context(this.terms), info, length));
  }
}

function derive(secret: Uint8Array, salt: Uint8Array, purpose: string, length: number): Bytes {
  return new Uint8Array(hkdf(sha512, secret, salt, new TextEncoder().encode(purpose), length));
}

function joined(parts: readonly Uint8Array[]): Bytes {
  const all = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let place = 0;
  for (const part of parts) {
    all.set(part, place);
    place += part.length;
  }
  return all;
}

function number(data: Uint8Array): bigint {
  return data.reduce((found, byte) => (found << 8n) | BigInt(byte), 0n);
}

function bytesOf(value: bigint, length: number): Bytes {
  const data = new Uint8Array(length);
  for (let place = length - 1; place >= 0; place--, value >>= 8n) data[place] = Number(value & 255n);
  return data;
}
