/**
 * Score items from a person's history, as the Python library does.
 *
 * fedease, fedslist   score(j) = Σ_c Σ_i weight_c(age of i) · B[c, i, j] over the history's items i
 * fedhist             score(j) = Q[j, 0] + ⟨Σ_i weight(age of i) · E[i], Q[j, 1:]⟩
 * fedsasrec           `transformer.ts`
 * two models          `blend.ts`
 *
 * The newest item of a history has age 0. In the first three methods a score is a sum over the history, so every part
 * of it can be shown.
 */

import { Blend } from "./blend";
import type { Bundle, ModelEntry, Numbers, Tensor, Tensors } from "./bundle";
import { PageError } from "./errors";
import type { Model, Parts } from "./scoring";
import { AGAIN, cosines, named } from "./tensors";
import { TransformerHistory } from "./transformer";

const METHODS = ["fedease", "fedslist", "fedhist", "fedsasrec"];
const SECOND = "second/"; // begins the names of the second model's tensors

export function modelOf({ manifest, tensors }: Bundle): Model {
  if (!Object.keys(tensors).length) throw new PageError("The model has not been trained yet.", AGAIN);
  const { second, items } = manifest;
  if (!second) return singleModel(manifest, tensors, items);
  const [own, others]: [Tensors, Tensors] = [{}, {}];
  for (const [name, tensor] of Object.entries(tensors)) {
    if (name.startsWith(SECOND)) others[name.slice(SECOND.length)] = tensor;
    else own[name] = tensor;
  }
  return new Blend(singleModel(manifest, own, items), singleModel(second, others, items), second.weight);
}

function singleModel({ method, plugins, options }: ModelEntry, tensors: Tensors, items: number): Model {
  if (plugins.length || !METHODS.includes(method)) {
    throw new PageError(
      `Models of ${[method, ...plugins].join("+")} need personal parameters, which a page does not have.`,
      `Use solera device on your own machine, or a page of ${METHODS.join(", ")}.`,
    );
  }
  if (Number(options["decay_days"] ?? 0)) {
    throw new PageError("The model needs the dates of a history, which this page does not use.", AGAIN);
  }
  if (method === "fedsasrec") return new TransformerHistory(tensors, options, items);
  if (method === "fedhist") return new FadingHistory(tensors, decaysOf(options["decays"]), items);
  const decays = method === "fedease" ? [Number(options["recency"] ?? 1)] : decaysOf(options["decays"]);
  const weights = "levels" in tensors ? compact(tensors, items) : "neighbours" in tensors ? solved(tensors) : null;
  if (!weights) return new WholeMatrix(named(tensors, "weights"), decays, items);
  if (weights.sources.some((source) => source < 0 || source >= items * decays.length)) {
    throw new PageError("The model has weights of items that do not exist.", AGAIN);
  }
  return new SparseWeights(weights, decays, items);
}

function decaysOf(option: unknown): number[] {
  const listed = typeof option === "string" ? option.split(",") : Array.isArray(option) ? option : [0.6, 0.95];
  return listed.map(Number);
}

/** Weights item by item: those of item j are at offsets[j] … offsets[j + 1], each with its source and scale. */
interface Sparse {
  offsets: Int32Array;
  sources: Numbers;
  values: Numbers;
  scales: Numbers | null;
}

/** The compact form: counts and scales per item; then sources, and levels of 8 bits. */
function compact(tensors: Tensors, items: number): Sparse {
  const counts = named(tensors, "counts").numbers;
  const scales = named(tensors, "scales").numbers;
  const sources = named(tensors, "sources").numbers;
  const values = named(tensors, "levels").numbers;
  const offsets = new Int32Array(items + 1);
  counts.forEach((count, row) => {
    offsets[row + 1] = (offsets[row] ?? 0) + count;
  });
  const fits = counts.length === items && scales.length === items && sources.length === values.length;
  if (!fits || offsets[items] !== values.length || counts.some((count) => count < 0)) {
    throw new PageError("The model has weights that do not fit their counts.", AGAIN);
  }
  return { offsets, sources, values, scales };
}

/** The solved form: k sources and weights per item, where 0 fills up items with fewer. */
function solved(tensors: Tensors): Sparse {
  const { shape, numbers: sources } = named(tensors, "neighbours");
  const [items = 0, each = 0] = shape;
  const values = named(tensors, "weights").numbers;
  if (values.length !== sources.length) throw new PageError("Weights and neighbours do not fit.", AGAIN);
  return { offsets: Int32Array.from({ length: items + 1 }, (_, row) => row * each), sources, values, scales: null };
}

/** Channel c of item i is source i · channels + c. */
class SparseWeights implements Model {
  constructor(
    private readonly weights: Sparse,
    private readonly decays: number[],
    private readonly items: number,
  ) {}

  scores(history: number[]): Float64Array {
    const memory = new Float64Array(this.items * this.decays.length);
    history.forEach((row, place) => {
      this.decays.forEach((decay, channel) => {
        const at = row * this.decays.length + channel;
        memory[at] = (memory[at] ?? 0) + decay ** (history.length - 1 - place);
      });
    });
    return this.times(memory);
  }

  private times(memory: Float64Array): Float64Array {
    const { offsets, sources, values, scales } = this.weights;
    const found = new Float64Array(this.items);
    for (let item = 0; item < this.items; item++) {
      let sum = 0;
      for (let at = offsets[item]!, end = offsets[item + 1]!; at < end; at++) {
        sum += memory[sources[at]!]! * values[at]!;
      }
      found[item] = scales ? sum * scales[item]! : sum;
    }
    return found;
  }

  parts(history: number[], item: number): Parts {
    const { offsets, sources, values, scales } = this.weights;
    const channels = this.decays.length;
    const places = new Map(history.map((row, place) => [row, place]));
    const ofHistory = new Float64Array(history.length);
    for (let at = offsets[item]!, end = offsets[item + 1]!; at < end; at++) {
      const source = sources[at]!;
      const place = places.get(Math.floor(source / channels));
      if (place === undefined) continue;
      const weight = this.decays[source % channels]! ** (history.length - 1 - place);
      ofHistory[place]! += weight * values[at]! * (scales ? scales[item]! : 1);
    }
    return { popular: 0, ofHistory };
  }

  similar(item: number): Float64Array {
    return this.scores([item]);
  }
}

/** All weights [channels · items, items]: channel c of item i is row c · items + i. */
class WholeMatrix implements Model {
  private readonly weights: Numbers;

  constructor(
    weights: Tensor,
    private readonly decays: number[],
    private readonly items: number,
  ) {
    if (weights.shape.join() !== [decays.length * items, items].join()) {
      throw new PageError("The model has weights of another number of items.", AGAIN);
    }
    this.weights = weights.numbers;
  }

  scores(history: number[]): Float64Array {
    const found = new Float64Array(this.items);
    history.forEach((row, place) => {
      this.decays.forEach((decay, channel) => {
        const weight = decay ** (history.length - 1 - place);
        const begin = (channel * this.items + row) * this.items;
        for (let item = 0; item < this.items; item++) found[item]! += weight * this.weights[begin + item]!;
      });
    });
    return found;
  }

  parts(history: number[], item: number): Parts {
    const ofHistory = Float64Array.from(history, (row, place) =>
      this.decays.reduce((sum, decay, channel) => {
        const weight = decay ** (history.length - 1 - place);
        return sum + weight * this.weights[(channel * this.items + row) * this.items + item]!;
      }, 0),
    );
    return { popular: 0, ofHistory };
  }

  similar(item: number): Float64Array {
    return this.scores([item]);
  }
}

/** Two vectors per item: inputs E [items, d], which form the memory, and Q [items, 1 + d], first a bias. */
class FadingHistory implements Model {
  private readonly inputs: Numbers;
  private readonly vectors: Numbers;
  private readonly size: number;

  constructor(
    tensors: Tensors,
    private readonly decays: number[],
    private readonly items: number,
  ) {
    const inputs = named(tensors, "inputs");
    const vectors = named(tensors, "items");
    this.size = inputs.shape[1] ?? 0;
    if (inputs.shape[0] !== items || vectors.shape.join() !== [items, 1 + this.size].join()) {
      throw new PageError("The model has vectors of another number of items.", AGAIN);
    }
    this.inputs = inputs.numbers;
    this.vectors = vectors.numbers;
  }

  /** The weight of every place of a history, by decay. */
  private fading(length: number): Float64Array[] {
    return this.decays.map((decay) => {
      const powers = Float64Array.from({ length }, (_, place) => decay ** (length - 1 - place));
      const root = Math.sqrt(powers.reduce((sum, each) => sum + each, 0));
      return powers.map((each) => each / root);
    });
  }

  private decayOf(dimension: number): number {
    return Math.floor((dimension * this.decays.length) / this.size);
  }

  scores(history: number[]): Float64Array {
    const fading = this.fading(history.length);
    const memory = new Float64Array(this.size);
    history.forEach((row, place) => {
      for (let d = 0; d < this.size; d++) {
        memory[d]! += fading[this.decayOf(d)]![place]! * this.inputs[row * this.size + d]!;
      }
    });
    return Float64Array.from({ length: this.items }, (_, item) => {
      const begin = item * (1 + this.size);
      let sum = this.vectors[begin]!;
      for (let d = 0; d < this.size; d++) sum += memory[d]! * this.vectors[begin + 1 + d]!;
      return sum;
    });
  }

  parts(history: number[], item: number): Parts {
    const fading = this.fading(history.length);
    const begin = item * (1 + this.size);
    const ofHistory = Float64Array.from(history, (row, place) => {
      let sum = 0;
      for (let d = 0; d < this.size; d++) {
        const input = fading[this.decayOf(d)]![place]! * this.inputs[row * this.size + d]!;
        sum += input * this.vectors[begin + 1 + d]!;
      }
      return sum;
    });
    return { popular: this.vectors[begin]!, ofHistory };
  }

  similar(item: number): Float64Array {
    return cosines(this.vectors, 1 + this.size, item);
  }
}
