/**
 * A blend of two models: (1 − w) · a + w · b, where a and b are the models' scores with mean 0 and standard
 * deviation 1 over all items. Such a score is no sum over the history, so it has no parts.
 */

import { type Model, standardised } from "./scoring";

export class Blend implements Model {
  constructor(
    private readonly first: Model,
    private readonly second: Model,
    private readonly weight: number,
  ) {}

  scores(history: number[]): Float64Array {
    return this.mixed(this.first.scores(history), this.second.scores(history));
  }

  parts(): null {
    return null;
  }

  similar(item: number): Float64Array {
    return this.mixed(this.first.similar(item), this.second.similar(item));
  }

  private mixed(first: Float64Array, second: Float64Array): Float64Array {
    const [one, other] = [standardised(first), standardised(second)];
    return one.map((score, row) => (1 - this.weight) * score + this.weight * other[row]!);
  }
}
