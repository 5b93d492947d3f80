/**
 * fedsasrec: score items by the state of a transformer after the history, ⟨h, E[j]⟩.
 *
 *   x_0 = P[0],   x_t = √d · E[s_t] + P[t],   x ← block(x) for every layer,   h = norm(x) at the last place
 *
 * The three kinds of blocks are those of src/solera/core/transformer.py. A place attends to itself and to earlier
 * places. Only the last place of the last layer is needed, so no other is computed there.
 *
 * Activations are rows of doubles, one after the other in one array.
 */

import type { Numbers, Tensors } from "./bundle";
import { PageError } from "./errors";
import type { Model } from "./scoring";
import { AGAIN, cosines, named, shaped } from "./tensors";

/** Turn the rows x into the next layer's rows from `first` on. */
type Block = (x: Float64Array, first: number) => Float64Array;
type Rows = (x: Float64Array) => Float64Array;

/** What the blocks are made of. */
interface Network {
  tensors: Tensors;
  width: number;
  heads: number;
  maxLength: number;
}

const BLOCKS: Record<string, (network: Network, name: string) => Block> = {
  sasrec: sasrecBlock,
  ligr: ligrBlock,
  hstu: hstuBlock,
};
const PERCEPTRON = 4; // width of the perceptron, in multiples of the network's

export class TransformerHistory implements Model {
  private readonly vectors: Numbers;
  private readonly places: Numbers;
  private readonly width: number;
  private readonly maxLength: number;
  private readonly blocks: Block[];
  private readonly norm: Rows;

  constructor(tensors: Tensors, options: Record<string, unknown>, private readonly items: number) {
    this.width = named(tensors, "items").shape[1] ?? 0;
    this.maxLength = (named(tensors, "places").shape[0] ?? 0) - 1;
    this.vectors = shaped(tensors, "items", items, this.width);
    this.places = shaped(tensors, "places", this.maxLength + 1, this.width);
    const heads = Number(options["heads"] ?? 2);
    const block = BLOCKS[String(options["block"] ?? "sasrec")];
    const layers = Number(options["layers"] ?? 2);
    if (!block || !(this.maxLength > 0) || !(layers > 0) || !(heads > 0) || this.width % heads) {
      throw new PageError("The model has options of a network that this page does not know.", AGAIN);
    }
    const network = { tensors, width: this.width, heads, maxLength: this.maxLength };
    this.blocks = Array.from({ length: layers }, (_, layer) => block(network, `block${layer}_`));
    this.norm = norm(network, "norm");
  }

  scores(history: number[]): Float64Array {
    const { vectors, width } = this;
    const state = this.state(history.slice(-this.maxLength));
    const found = new Float64Array(this.items);
    for (let item = 0, at = 0; item < this.items; item++, at += width) {
      let sum = 0;
      for (let d = 0; d < width; d++) sum += state[d]! * vectors[at + d]!;
      found[item] = sum;
    }
    return found;
  }

  /** The state after a history of at most `maxLength` items. */
  private state(history: number[]): Float64Array {
    const { vectors, places, width, blocks } = this;
    let x: Float64Array = Float64Array.from(places.subarray(0, (history.length + 1) * width));
    const root = Math.sqrt(width);
    history.forEach((row, place) => {
      for (let d = 0; d < width; d++) x[(place + 1) * width + d]! += root * vectors[row * width + d]!;
    });
    blocks.forEach((block, layer) => {
      x = block(x, layer === blocks.length - 1 ? history.length : 0);
    });
    return this.norm(x);
  }

  parts(): null {
    return null;
  }

  similar(item: number): Float64Array {
    return cosines(this.vectors, this.width, item);
  }
}

/** x ← x + attention(norm(x));   x ← x + gelu(norm(x) A + a) B + b */
function sasrecBlock(network: Network, name: string): Block {
  const { width } = network;
  const attend = attention(network, name);
  const before = norm(network, `${name}perceptron`);
  const inward = linear(network, `${name}perceptron_in`, width, PERCEPTRON * width);
  const outward = linear(network, `${name}perceptron_out`, PERCEPTRON * width, width);
  return (x, first) => {
    const after = add(attend(x, first), x.subarray(first * width));
    return add(outward(inward(before(after)).map(gelu)), after);
  };
}

/** x ← x + σ(x F + f) ⊙ attention(norm(x));   x ← x + σ(x G + g) ⊙ (silu(norm(x) A) ⊙ (norm(x) C)) B */
function ligrBlock(network: Network, name: string): Block {
  const { width } = network;
  const wide = PERCEPTRON * width;
  const attend = attention(network, name);
  const attentionGate = linear(network, `${name}attention_gate`, width, width);
  const before = norm(network, `${name}perceptron`);
  const perceptronGate = linear(network, `${name}perceptron_gate`, width, width);
  const inward = shaped(network.tensors, `${name}perceptron_in`, 2 * wide, width);
  const gate = times(inward.subarray(0, wide * width), null, width);
  const value = times(inward.subarray(wide * width), null, width);
  const outward = times(shaped(network.tensors, `${name}perceptron_out`, width, wide), null, wide);
  return (x, first) => {
    const own = x.subarray(first * width);
    const after = add(multiply(attend(x, first), attentionGate(own).map(sigmoid)), own);
    const normed = before(after);
    const added = outward(multiply(gate(normed).map(silu), value(normed)));
    return add(multiply(added, perceptronGate(after).map(sigmoid)), after);
  };
}

/** U, V, Q, K = silu(norm(x) A);   x ← x + (norm(silu(Q Kᵀ + bias) V / maxLength) ⊙ U) B + b */
function hstuBlock(network: Network, name: string): Block {
  const { width, maxLength } = network;
  const [gate, value, query, key] = parts(shaped(network.tensors, `${name}in`, 4 * width, width), null, 4, width);
  const bias = Float64Array.from(shaped(network.tensors, `${name}distance_bias`, maxLength + 1));
  const outward = linear(network, `${name}out`, width, width);
  const plain = (x: Float64Array, least: number) => normed(x, width, null, null, least);
  const weigh = (dots: Float64Array, count: number) => {
    for (let at = 0; at < count; at++) dots[at] = silu(dots[at]! + bias[count - 1 - at]!) / maxLength;
  };
  return (x, first) => {
    const all = plain(x, 1e-5);
    const own = all.subarray(first * width);
    const [q, k, v] = [query!(own).map(silu), key!(all).map(silu), value!(all).map(silu)];
    const mixed = attended(q, k, v, network, weigh);
    return add(outward(multiply(plain(mixed, 1e-6), gate!(own).map(silu))), x.subarray(first * width));
  };
}

/** Causal attention by softmax to the normed rows. */
function attention(network: Network, name: string): Block {
  const { width, heads } = network;
  const before = norm(network, `${name}attention`);
  const inward = shaped(network.tensors, `${name}attention_in`, 3 * width, width);
  const bias = shaped(network.tensors, `${name}attention_in_bias`, 3 * width);
  const [query, key, value] = parts(inward, bias, 3, width);
  const outward = linear(network, `${name}attention_out`, width, width);
  const scale = 1 / Math.sqrt(width / heads);
  return (x, first) => {
    const all = before(x);
    const q = query!(all.subarray(first * width));
    return outward(attended(q, key!(all), value!(all), network, (dots, count) => softmax(dots, count, scale)));
  };
}

/**
 * Weighted sums of the values at the places up to that of each query, head by head. The queries are those of the
 * last places. `weigh` turns the products of a query with the first `count` keys into weights.
 */
function attended(
  queries: Float64Array,
  keys: Float64Array,
  values: Float64Array,
  { width, heads }: Network,
  weigh: (dots: Float64Array, count: number) => void,
): Float64Array {
  const found = new Float64Array(queries.length);
  const places = keys.length / width;
  const first = places - queries.length / width;
  const size = width / heads;
  const weights = new Float64Array(places);
  for (let place = first; place < places; place++) {
    for (let head = 0; head < heads; head++) {
      const begin = (place - first) * width + head * size;
      for (let other = 0; other <= place; other++) {
        weights[other] = dot(queries, begin, keys, other * width + head * size, size);
      }
      weigh(weights, place + 1);
      for (let other = 0; other <= place; other++) {
        const weight = weights[other]!;
        const at = other * width + head * size;
        for (let d = 0; d < size; d++) found[begin + d]! += weight * values[at + d]!;
      }
    }
  }
  return found;
}

function softmax(dots: Float64Array, count: number, scale: number): void {
  let most = Number.NEGATIVE_INFINITY;
  for (let at = 0; at < count; at++) most = Math.max(most, dots[at]!);
  let sum = 0;
  for (let at = 0; at < count; at++) sum += dots[at] = Math.exp((dots[at]! - most) * scale);
  for (let at = 0; at < count; at++) dots[at]! /= sum;
}

/** x Wᵀ + b with the tensors of this name. */
function linear({ tensors }: Network, name: string, inward: number, outward: number): Rows {
  return times(shaped(tensors, name, outward, inward), shaped(tensors, `${name}_bias`, outward), inward);
}

/** One function for each of `count` blocks of `width` outputs. */
function parts(weights: Numbers, bias: Numbers | null, count: number, width: number): Rows[] {
  return Array.from({ length: count }, (_, part) => {
    const [begin, end] = [part * width, (part + 1) * width];
    return times(weights.subarray(begin * width, end * width), bias && bias.subarray(begin, end), width);
  });
}

/** x Wᵀ + b for rows x of `inward` numbers. Four sums at a time need not wait for each other. */
function times(weights: Numbers, bias: Numbers | null, inward: number): Rows {
  const doubles = Float64Array.from(weights); // so that the loop reads one kind of array
  const outward = weights.length / inward;
  const start = bias ? Float64Array.from(bias) : new Float64Array(outward);
  return (x) => {
    const rows = x.length / inward;
    const found = new Float64Array(rows * outward);
    for (let row = 0; row < rows; row++) {
      const from = row * inward;
      const to = row * outward;
      let out = 0;
      for (; out + 4 <= outward; out += 4) {
        const at = out * inward;
        let one = start[out]!;
        let two = start[out + 1]!;
        let three = start[out + 2]!;
        let four = start[out + 3]!;
        for (let d = 0; d < inward; d++) {
          const value = x[from + d]!;
          one += value * doubles[at + d]!;
          two += value * doubles[at + inward + d]!;
          three += value * doubles[at + 2 * inward + d]!;
          four += value * doubles[at + 3 * inward + d]!;
        }
        found[to + out] = one;
        found[to + out + 1] = two;
        found[to + out + 2] = three;
        found[to + out + 3] = four;
      }
      for (; out < outward; out++) found[to + out] = start[out]! + dot(x, from, doubles, out * inward, inward);
    }
    return found;
  };
}

function dot(a: Float64Array, atA: number, b: Float64Array, atB: number, length: number): number {
  let even = 0;
  let odd = 0;
  let d = 0;
  for (; d + 2 <= length; d += 2) {
    even += a[atA + d]! * b[atB + d]!;
    odd += a[atA + d + 1]! * b[atB + d + 1]!;
  }
  return d < length ? even + odd + a[atA + d]! * b[atB + d]! : even + odd;
}

function norm({ tensors, width }: Network, name: string): Rows {
  const scale = shaped(tensors, `${name}_scale`, width);
  const shift = shaped(tensors, `${name}_shift`, width);
  return (x) => normed(x, width, scale, shift, 1e-5);
}

/** Rows with mean 0 and variance 1, then scaled and shifted. `least` is added to the variance. */
function normed(
  x: Float64Array,
  width: number,
  scale: Numbers | null,
  shift: Numbers | null,
  least: number,
): Float64Array {
  const found = new Float64Array(x.length);
  for (let begin = 0; begin < x.length; begin += width) {
    let mean = 0;
    for (let d = 0; d < width; d++) mean += x[begin + d]! / width;
    let square = 0;
    for (let d = 0; d < width; d++) square += (x[begin + d]! - mean) ** 2 / width;
    const root = Math.sqrt(square + least);
    for (let d = 0; d < width; d++) {
      const value = (x[begin + d]! - mean) / root;
      found[begin + d] = scale && shift ? value * scale[d]! + shift[d]! : value;
    }
  }
  return found;
}

/** Add b to a, which is changed. */
function add(a: Float64Array, b: Float64Array): Float64Array {
  for (let at = 0; at < a.length; at++) a[at]! += b[at]!;
  return a;
}

/** Multiply a by b, number by number. a is changed. */
function multiply(a: Float64Array, b: Float64Array): Float64Array {
  for (let at = 0; at < a.length; at++) a[at]! *= b[at]!;
  return a;
}

function sigmoid(x: number): number {
  return 1 / (1 + Math.exp(-x));
}

function silu(x: number): number {
  return x / (1 + Math.exp(-x));
}

/** x · P(X ≤ x) for a standard normal X. */
function gelu(x: number): number {
  return 0.5 * x * (1 + erf(x * Math.SQRT1_2));
}

/** 2/√π · exp(−x²) · Σₙ 2ⁿ x²ⁿ⁺¹ / (1 · 3 · … · (2n + 1)): all terms have one sign, so nothing cancels. */
export function erf(x: number): number {
  if (Math.abs(x) > 6) return Math.sign(x); // to the last digit
  let term = x;
  let sum = x;
  for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n++) {
    term *= (2 * x * x) / (2 * n + 1);
    sum += term;
  }
  return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
}
