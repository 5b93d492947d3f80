/**
 * Read a signed bundle (docs/reference/bundle-format.md): the signature first, then the digests of the other
 * members, then what they hold. Nothing is used before it has been checked.
 */

import { PageError } from "./errors";
import { cleanText } from "./text";
import { readZip } from "./zip";

export interface Item {
  id: string;
  title: string;
  year: number | null;
  genres: string[];
}

/** What a manifest says of a model. */
export interface ModelEntry {
  method: string;
  plugins: string[];
  options: Record<string, unknown>;
  precision: "single" | "double";
}

export interface Manifest extends ModelEntry {
  kind: string;
  format: number;
  library: string;
  catalogue_version: number;
  items: number;
  /** The other model of a blend, and its weight. */
  second?: ModelEntry & { weight: number };
  trained: Record<string, unknown>;
  sha256: Record<string, string>;
}

export type Numbers = Float32Array | Float64Array | Int32Array | Uint16Array | Int8Array;
export interface Tensor {
  shape: number[];
  numbers: Numbers;
}
export type Tensors = Record<string, Tensor>;

export interface Bundle {
  manifest: Manifest;
  digest: string;
  fingerprint: string;
  bytes: number;
  items: Item[];
  tensors: Tensors;
}

const MANIFEST = "manifest.json";
const SIGNATURE = "manifest.sig";
const CATALOGUE = "catalogue.json";
const TENSORS = "shared.safetensors";
const FORMATS = [1, 2, 3, 4, 5]; // 2: compact weights; 3: genres, weights of either form; 4: two models; 5: ids
const AGAIN = "Get the page again from its publisher.";

export async function readBundle(bytes: Uint8Array<ArrayBuffer>): Promise<Bundle> {
  const member = membersOf(bytes);
  const text = member(MANIFEST);
  const key = member(SIGNATURE).slice(0, 32);
  await checkSignature(key, member(SIGNATURE).slice(32), text);
  const manifest = manifestOf(text);
  for (const name of [CATALOGUE, TENSORS]) {
    if ((await sha256(member(name))) !== manifest.sha256[name]) {
      throw new PageError(`The model was changed after it was signed: ${name} differs.`, AGAIN);
    }
  }
  return {
    manifest,
    digest: await sha256(text),
    fingerprint: await fingerprintOf(key),
    bytes: bytes.length,
    items: catalogueOf(member(CATALOGUE), manifest.items),
    tensors: tensorsOf(member(TENSORS)),
  };
}

function membersOf(bytes: Uint8Array<ArrayBuffer>): (name: string) => Uint8Array<ArrayBuffer> {
  const wrong = new PageError("The model in this page is not a bundle, or is incomplete.", AGAIN);
  let entries;
  try {
    entries = readZip(bytes, "the model");
  } catch {
    throw wrong;
  }
  const names = entries.map((each) => each.name).sort();
  const plain = entries.every((each) => each.stored && !each.encrypted && each.size === each.packed.length);
  const total = entries.reduce((sum, each) => sum + each.packed.length, 0);
  if (!plain || total > bytes.length || names.join() !== [CATALOGUE, MANIFEST, SIGNATURE, TENSORS].join()) throw wrong;
  const found = new Map(entries.map((each) => [each.name, each.packed]));
  if (found.get(SIGNATURE)?.length !== 96) throw wrong;
  return (name) => found.get(name) as Uint8Array<ArrayBuffer>;
}

async function checkSignature(
  key: Uint8Array<ArrayBuffer>,
  signature: Uint8Array<ArrayBuffer>,
  text: Uint8Array<ArrayBuffer>,
) {
  if (globalThis.crypto?.subtle === undefined) {
    throw new PageError(
      "This browser cannot check the model's signature at this address.",
      "Open the page from your disk, from https:// or from localhost.",
    );
  }
  let publicKey: CryptoKey;
  try {
    publicKey = await crypto.subtle.importKey("raw", key, "Ed25519", false, ["verify"]);
  } catch {
    throw new PageError(
      "This browser cannot check the model's signature: it does not support Ed25519.",
      "Update the browser: Chrome 137, Firefox 129, Safari 17 and later can.",
    );
  }
  if (!(await crypto.subtle.verify("Ed25519", publicKey, signature, text))) {
    throw new PageError("The model was changed after it was signed.", AGAIN);
  }
}

function manifestOf(text: Uint8Array): Manifest {
  let manifest: Manifest | null = null;
  try {
    manifest = JSON.parse(new TextDecoder().decode(text)) as Manifest;
  } catch {
    // told below
  }
  if (manifest?.kind !== "solera bundle") throw new PageError("The model is signed, but is not a bundle.", AGAIN);
  if (!FORMATS.includes(manifest.format)) {
    throw new PageError(
      `The model has format ${manifest.format}, which this page cannot read.`,
      "Make the page again with the newest Solera.",
    );
  }
  return manifest;
}

/** Rows of [id, title, year or null] or [id, title, year or null, [genre, …]]. */
function catalogueOf(content: Uint8Array, count: number): Item[] {
  const rows = JSON.parse(new TextDecoder().decode(content)) as [string, string, number | null, string[]?][];
  const items = rows.map(([id, title, year, genres]) => ({
    id: cleanText(String(id)),
    title: cleanText(String(title)),
    year,
    genres: (genres ?? []).map((each) => cleanText(String(each))),
  }));
  if (items.length !== count || new Set(items.map((each) => each.id)).size !== count) {
    throw new PageError(`The catalogue does not have ${count} items.`, AGAIN);
  }
  return items;
}

const KINDS: Record<string, (buffer: ArrayBuffer) => Numbers> = {
  F32: (buffer) => new Float32Array(buffer),
  F64: (buffer) => new Float64Array(buffer),
  I32: (buffer) => new Int32Array(buffer),
  U16: (buffer) => new Uint16Array(buffer),
  I8: (buffer) => new Int8Array(buffer),
};

/** The tensors of a safetensors file: the header's length in 8 bytes, a JSON header, then little-endian numbers. */
function tensorsOf(content: Uint8Array<ArrayBuffer>): Tensors {
  const length = Number(new DataView(content.buffer, content.byteOffset).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(content.subarray(8, 8 + length))) as Record<
    string,
    { dtype: string; shape: number[]; data_offsets: [number, number] }
  >;
  const found: Tensors = {};
  for (const [name, { dtype, shape, data_offsets: range }] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const make = KINDS[dtype];
    if (make === undefined) throw new PageError(`The tensor ${name} has the type ${dtype}.`, AGAIN);
    const [begin, end] = range.map((each) => 8 + length + each) as [number, number];
    const numbers = make(content.slice(begin, end).buffer);
    if (numbers.length !== shape.reduce((product, each) => product * each, 1)) {
      throw new PageError(`The tensor ${name} does not have its shape.`, AGAIN);
    }
    found[name] = { shape, numbers };
  }
  return found;
}

async function sha256(content: Uint8Array<ArrayBuffer>): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", content));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** For people to compare: 32 hexadecimal digits in groups of four. */
async function fingerprintOf(key: Uint8Array<ArrayBuffer>): Promise<string> {
  const digits = (await sha256(key)).slice(0, 32);
  return digits.match(/.{4}/g)?.join(" ") ?? "";
}
