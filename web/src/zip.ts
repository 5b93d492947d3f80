/** Read zip files: bundles, whose members are stored as they are, and people's exports. */

import { PageError } from "./errors";

export interface ZipEntry {
  name: string;
  stored: boolean;
  encrypted: boolean;
  size: number;
  packed: Uint8Array<ArrayBuffer>;
  /** The content, unpacked; at most `most` bytes, whatever the headers say. */
  read(most: number): Promise<Uint8Array<ArrayBuffer>>;
}

const END = 0x06054b50;
const LISTED = 0x02014b50;
const LOCAL = 0x04034b50;
const MOST_ENTRIES = 10_000;
const AGAIN = "get the file again";

export function isZip(bytes: Uint8Array): boolean {
  return bytes[0] === 0x50 && bytes[1] === 0x4b && (bytes[2] === 3 || bytes[2] === 5);
}

export function notAZip(name: string): PageError {
  return new PageError(`${name} is not a zip, or is damaged`, AGAIN);
}

/** All entries of a zip. Names are decoded as UTF-8. */
export function readZip(bytes: Uint8Array<ArrayBuffer>, zip: string): ZipEntry[] {
  try {
    return entriesOf(bytes, zip);
  } catch (error) {
    if (error instanceof PageError) throw error;
    throw notAZip(zip); // an offset beyond its end
  }
}

function entriesOf(bytes: Uint8Array<ArrayBuffer>, zip: string): ZipEntry[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const end = endOfDirectory(view);
  const count = view.getUint16(end + 10, true);
  if (count > MOST_ENTRIES) throw new PageError(`${zip} has more than ${MOST_ENTRIES} entries`, AGAIN);
  const found: ZipEntry[] = [];
  let at = view.getUint32(end + 16, true);
  for (let number = 0; number < count; number++) {
    if (view.getUint32(at, true) !== LISTED) throw new RangeError("not an entry");
    const nameLength = view.getUint16(at + 28, true);
    const name = new TextDecoder().decode(bytes.subarray(at + 46, at + 46 + nameLength));
    found.push(entry(bytes, view, at, name));
    at += 46 + nameLength + view.getUint16(at + 30, true) + view.getUint16(at + 32, true);
  }
  return found;
}

function endOfDirectory(view: DataView): number {
  const least = Math.max(0, view.byteLength - 22 - 0xffff); // a comment may follow
  for (let at = view.byteLength - 22; at >= least; at--) {
    if (view.getUint32(at, true) === END) return at;
  }
  throw new RangeError("no directory");
}

function entry(bytes: Uint8Array<ArrayBuffer>, view: DataView, at: number, name: string): ZipEntry {
  const method = view.getUint16(at + 10, true);
  const packedSize = view.getUint32(at + 20, true);
  const local = view.getUint32(at + 42, true);
  if (view.getUint32(local, true) !== LOCAL) throw new RangeError("no content");
  const begin = local + 30 + view.getUint16(local + 26, true) + view.getUint16(local + 28, true);
  if (begin + packedSize > bytes.length) throw new RangeError("cut short");
  const packed = bytes.subarray(begin, begin + packedSize);
  const encrypted = (view.getUint16(at + 8, true) & 1) === 1;
  return {
    name,
    stored: method === 0,
    encrypted,
    size: view.getUint32(at + 24, true),
    packed,
    async read(most) {
      if (encrypted) throw new PageError(`${name} is encrypted`, "give a zip without a password");
      if (method === 0) return limited(packed, most, name);
      if (method === 8) return inflate(packed, most, name);
      throw new PageError(`${name} is compressed in a way that is not supported`, "unpack the zip first");
    },
  };
}

function limited(content: Uint8Array<ArrayBuffer>, most: number, name: string): Uint8Array<ArrayBuffer> {
  if (content.length > most) throw tooLarge(name, most);
  return content;
}

async function inflate(packed: Uint8Array<ArrayBuffer>, most: number, name: string) {
  const reader = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
  const pieces: Uint8Array[] = [];
  let size = 0;
  try {
    for (let next = await reader.read(); !next.done; next = await reader.read()) {
      size += next.value.length;
      if (size > most) throw tooLarge(name, most);
      pieces.push(next.value);
    }
  } catch (error) {
    await reader.cancel().catch(() => undefined);
    if (error instanceof PageError) throw error;
    throw new PageError(`${name} is damaged`, AGAIN);
  }
  const whole = new Uint8Array(size);
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}

function tooLarge(name: string, most: number): PageError {
  return new PageError(`${name} unpacks to more than ${most.toLocaleString("en")} bytes`, "export a shorter period");
}
