/** Tensors of a bundle, checked before they are used. */

import type { Numbers, Tensor, Tensors } from "./bundle";
import { PageError } from "./errors";

export const AGAIN = "Ask the publisher for a new page.";

/** A tensor that must be there, and must be finite. */
export function named(tensors: Tensors, name: string): Tensor {
  const found = tensors[name];
  if (!found) throw new PageError(`The model lacks the tensor ${name}.`, AGAIN);
  if (found.numbers instanceof Float32Array || found.numbers instanceof Float64Array) {
    if (!found.numbers.every(Number.isFinite)) throw new PageError(`${name} is not all finite numbers.`, AGAIN);
  }
  return found;
}

/** The numbers of a tensor that must have this shape. */
export function shaped(tensors: Tensors, name: string, ...shape: number[]): Numbers {
  const found = named(tensors, name);
  if (found.shape.join() !== shape.join()) {
    throw new PageError(`The tensor ${name} has the shape ${found.shape.join(" × ")}, not ${shape.join(" × ")}.`, AGAIN);
  }
  return found.numbers;
}

/** The cosine of one row of a table with every row. */
export function cosines(table: Numbers, width: number, row: number): Float64Array {
  const own = table.subarray(row * width, (row + 1) * width);
  const lengths = new Float64Array(table.length / width);
  const found = new Float64Array(table.length / width);
  for (let other = 0; other < found.length; other++) {
    let product = 0;
    let square = 0;
    for (let d = 0; d < width; d++) {
      const value = table[other * width + d]!;
      product += own[d]! * value;
      square += value * value;
    }
    found[other] = product;
    lengths[other] = Math.sqrt(square);
  }
  return found.map((product, other) => {
    const length = lengths[row]! * lengths[other]!;
    return length ? product / length : 0;
  });
}
