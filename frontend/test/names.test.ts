import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { distinctParts, shortest } from "../src/sections/table/names";

const shown = (names: string[]): Record<string, string | undefined> => {
  const parts = distinctParts(names);
  return Object.fromEntries(names.map((n) => [n, parts.has(n) ? n.slice(...parts.get(n)!) : undefined]));
};

describe("the part of a name that tells it apart", () => {
  test("GIVEN kernels that begin and end alike WHEN compared THEN the part is the tile, or the type, in whole words", () => {
    const tile = (t: string): string => `sm90_xmma_gemm_bf16bf16_bf16f32_tn_n_tilesize${t}_warpgroupsize1x1x1_execute_kernel__5x_cublas`;
    expect(shown([tile("128x128x64"), tile("64x256x64")])).toEqual({ [tile("128x128x64")]: "tilesize128x128x64", [tile("64x256x64")]: "tilesize64x256x64" });
    const op = (t: string): string => `vectorized_elementwise_kernel<${t}>`;
    expect(shown([op("AddFunctor"), op("MulFunctor")])).toEqual({ [op("AddFunctor")]: "AddFunctor", [op("MulFunctor")]: "MulFunctor" });
  });

  test("GIVEN names that their first letters tell apart, and one name alone WHEN compared THEN they need no part", () => {
    expect(shown(["reduce_kernel<MeanOps>", "indexSelectLargeIndex", "reduce_max_kernel<long long>"])).toEqual({ "reduce_kernel<MeanOps>": undefined, indexSelectLargeIndex: undefined, "reduce_max_kernel<long long>": undefined });
    expect(shown(["vectorized_elementwise_kernel<AddFunctor>"])).toEqual({ "vectorized_elementwise_kernel<AddFunctor>": undefined });
  });

  test("GIVEN one name that goes on where another ends WHEN compared THEN both have a part of at least one letter", () => {
    const [short, long] = ["elementwise_kernel_with_index", "elementwise_kernel_with_index_second"];
    expect(shown([short, long])).toEqual({ [short]: "index", [long]: "index_second" });
  });

  test("GIVEN many kernels in which several parts vary WHEN compared THEN no two look the same in the narrowest cell", () => {
    const gemms = ["128x64", "64x64", "256x128"].flatMap((tile) => ["16x6", "32x3"].flatMap((k) => ["nn", "nt", "tn"].flatMap((t) => [1, 4].map((n) => `cutlass_80_tensorop_s1688gemm_${tile}_${k}_${t}_align${n}`))));
    const sorts = ["Histogram", "ExclusiveSum", "Onesweep"].flatMap((what) => ["int", "float"].map((t) => `DeviceRadixSort${what}Kernel<Policy800> · ${t}`));
    const loops = ["CUDAFunctor_add", "FillFunctor", "compare_scalar_kernel"].flatMap((f) => ["float", "4, float", "int"].map((t) => `vectorized_elementwise_kernel<${f}> · ${t}`));
    const names = [...gemms, ...sorts, ...loops];
    const parts = distinctParts(names);
    expect(new Set(names.map((n) => shortest(n, parts.get(n)))).size).toBe(names.length);
  });

  test("GIVEN any two names that begin alike WHEN compared THEN both have a part in them, and up to its end they differ", () => {
    const rest = fc.string({ maxLength: 30 });
    fc.assert(fc.property(fc.constantFrom("x".repeat(30), "void kernel<int, "), rest, rest, (head, a, b) => {
      fc.pre(a !== b);
      const parts = distinctParts([head + a, head + b]);
      const [one, two] = [head + a, head + b].map((name) => {
        const [from, to] = parts.get(name)!;
        expect(from >= 0 && from < to && to <= name.length && to - from <= 64).toBe(true);
        return name.slice(0, to);
      });
      expect(one).not.toBe(two);
      if (!head.startsWith("xx")) expect(shortest(head + a, parts.get(head + a))).not.toBe(shortest(head + b, parts.get(head + b)));
    }), { numRuns: 2000 });
  });
});
