/** Transformers and blends: known values, refused tensors, and time. */

import { expect, test } from "vitest";
import { standardised } from "../src/scoring";
import { type Bundle, type Manifest, readBundle, type Tensors } from "../src/bundle";
import { modelOf } from "../src/model";
import { erf } from "../src/transformer";
import { bytes } from "./example";

const MILLISECONDS = 250; // on a machine that does other things, too; `npm run measure` has the figures of the page

test("erf has its known values", () => {
  const known: [number, number][] = [
    [0, 0],
    [0.1, 0.1124629160182849],
    [0.5, 0.5204998778130465],
    [1, 0.8427007929497149],
    [2.5, 0.999593047982555],
    [4, 0.9999999845827421],
    [9, 1],
  ];
  for (const [x, y] of known) {
    expect(erf(x)).toBeCloseTo(y, 14);
    expect(erf(-x)).toBeCloseTo(-y, 14);
  }
});

test("standardised scores have mean 0 and deviation 1, and equal ones are 0", () => {
  expect([...standardised(Float64Array.of(0, 4, 4, 0))]).toEqual([-1, 1, 1, -1]);
  expect([...standardised(Float64Array.of(7, 7, 7))]).toEqual([0, 0, 0]);
});

test("only the latest items of a history are read", async () => {
  const model = modelOf(await readBundle(bytes("fedsasrec.bundle"))); // reads 30 items
  const history = Array.from({ length: 45 }, (_, place) => (place * 7) % 80);
  expect(model.scores(history)).toEqual(model.scores(history.slice(-30)));
  expect(model.scores(history)).not.toEqual(model.scores(history.slice(-29)));
});

test("a blend has the weight of its manifest", async () => {
  const { manifest, ...rest } = await readBundle(bytes("blend.bundle"));
  const weighted = (weight: number) => modelOf({ ...rest, manifest: { ...manifest, second: { ...manifest.second!, weight } } });
  const single = async (name: string) => standardised(modelOf(await readBundle(bytes(`${name}.bundle`))).scores([3, 1, 4]));
  expect(weighted(0).scores([3, 1, 4])).toEqual(await single("fedslist"));
  expect(weighted(1).scores([3, 1, 4])).toEqual(await single("fedsasrec"));
});

test("networks with other shapes or options are refused", async () => {
  const bundle = await readBundle(bytes("fedsasrec.bundle"));
  const refused = (options: object, tensors: object, message: RegExp) => {
    const manifest = { ...bundle.manifest, options: { ...bundle.manifest.options, ...options } };
    expect(() => modelOf({ ...bundle, manifest, tensors: { ...bundle.tensors, ...tensors } as Tensors })).toThrow(message);
  };
  const places = bundle.tensors["places"]!;
  refused({ block: "mamba" }, {}, /does not know/);
  refused({ heads: 5 }, {}, /does not know/);
  refused({ layers: 3 }, {}, /lacks the tensor block2_/);
  refused({ block: "hstu" }, {}, /lacks the tensor block0_in/);
  refused({ decay_days: 30 }, {}, /dates of a history/);
  refused({}, { norm_scale: places }, /norm_scale has the shape 31 × 12, not 12/);
  refused({}, { places: { ...places, numbers: places.numbers.map(() => NaN) } }, /not all finite/);
});

/** A network of random numbers, as large as one for MovieLens-1M. */
function large(block: "sasrec" | "ligr" | "hstu"): Bundle {
  const [items, width, maxLength] = [3706, 64, 200];
  const tensors: Tensors = {};
  let seed = 1;
  const put = (name: string, ...shape: number[]) => {
    const numbers = new Float32Array(shape.reduce((product, each) => product * each, 1));
    for (let at = 0; at < numbers.length; at++) {
      seed = (seed * 16807) % 2147483647;
      numbers[at] = seed / 2147483647 - 0.5;
    }
    tensors[name] = { shape, numbers };
  };
  const linear = (name: string, inward: number, outward: number) => {
    put(name, outward, inward);
    put(`${name}_bias`, outward);
  };
  const norm = (name: string) => ["_scale", "_shift"].forEach((each) => put(name + each, width));
  put("items", items, width);
  put("places", maxLength + 1, width);
  for (const name of ["block0_", "block1_"]) {
    if (block === "hstu") {
      put(`${name}in`, 4 * width, width);
      put(`${name}distance_bias`, maxLength + 1);
      linear(`${name}out`, width, width);
      continue;
    }
    norm(`${name}attention`);
    linear(`${name}attention_in`, width, 3 * width);
    linear(`${name}attention_out`, width, width);
    norm(`${name}perceptron`);
    linear(`${name}perceptron_in`, width, (block === "ligr" ? 8 : 4) * width);
    linear(`${name}perceptron_out`, 4 * width, width);
    if (block === "ligr") ["attention_gate", "perceptron_gate"].forEach((each) => linear(name + each, width, width));
  }
  norm("norm");
  const manifest = { method: "fedsasrec", plugins: [], items, options: { block, layers: 2, heads: 2 } } as unknown as Manifest;
  return { manifest, tensors } as unknown as Bundle;
}

test.each(["sasrec", "ligr", "hstu"] as const)("%s scores a history of 500 films in time", (block) => {
  const model = modelOf(large(block));
  const history = Array.from({ length: 500 }, (_, place) => place * 7);
  const times = Array.from({ length: 8 }, () => {
    const begin = process.cpuUsage(); // not disturbed by other programs
    expect(model.scores(history).every(Number.isFinite)).toBe(true);
    return process.cpuUsage(begin).user / 1000;
  });
  expect(Math.min(...times)).toBeLessThan(MILLISECONDS);
});
