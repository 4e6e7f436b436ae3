import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { decode, emptyTable, emptyView, encode, HOME, type TableState, TIMELINE_KEYS, type View } from "../src/state/codec";
import { activeTab, readHash, writeHash } from "../src/state/hash";
import { joinIds, joinList, splitIds, splitList } from "../src/state/lists";

const text = fc.string({ unit: fc.oneof(fc.string({ unit: "grapheme", minLength: 1, maxLength: 1 }), fc.constantFrom(..."&=#%/\\,.:;+-~ é<>\"'")), maxLength: 24 }).filter((t) => !/[\ud800-\udfff]/.test(t.replace(/[\ud800-\udbff][\udc00-\udfff]/g, "")));
const filled = text.filter((t) => t !== "");
const id = fc.stringMatching(/^[A-Za-z0-9_-]{1,12}$/).filter((t) => t !== "__proto__");
const column = filled.filter((t) => t !== "__proto__");
const number = fc.oneof(fc.integer(), fc.double({ noNaN: true, noDefaultInfinity: true }).map((v) => v + 0));
const table: fc.Arbitrary<TableState> = fc.record({
  sort: fc.option(fc.record({ column: filled, descending: fc.boolean() })),
  find: text,
  keep: fc.dictionary(column, fc.uniqueArray(text, { minLength: 1, maxLength: 4 }).map((v) => v.sort()), { maxKeys: 3 }),
  ranges: fc.dictionary(column, fc.oneof(fc.record({ above: number, below: fc.constant(null) }), fc.record({ above: fc.constant(null), below: number }), fc.record({ above: number, below: number })), { maxKeys: 3 }),
  columns: fc.dictionary(column, fc.boolean(), { maxKeys: 4 }),
  opened: fc.record({ base: fc.constantFrom("d", "a", "n") as fc.Arbitrary<"d" | "a" | "n">, ids: fc.array(fc.oneof(filled, fc.nat(30).map(String))).map((v) => splitIds(joinIds(v))) }),
  row: text,
});
const view: fc.Arbitrary<View> = fc.record({
  page: id, run: text, worker: text, span: text, step: text, capture: text, device: text, base: text, base_worker: text, base_span: text, find: text,
  query: fc.dictionary(id, filled, { maxKeys: 3 }),
  tables: fc.dictionary(id, table.filter((t) => JSON.stringify(t) !== JSON.stringify(emptyTable())), { maxKeys: 3 }),
  figures: fc.dictionary(id, filled, { maxKeys: 2 }),
  timeline: fc.dictionary(fc.constantFrom(...TIMELINE_KEYS), filled, { maxKeys: 4 }),
});
const plainObject = (v: unknown): unknown => JSON.parse(JSON.stringify(v));

describe("codec", () => {
  test("GIVEN any view WHEN written to a hash and read THEN it is the same view", () => {
    fc.assert(fc.property(view, fc.constantFrom("", "#sol", "#scalars&runFilter=a", "#sol&p.sol.run=old&p.other.x=1"), (v, hash) => {
      expect(plainObject(decode(readHash(writeHash(hash, encode(v)))))).toEqual(plainObject(v));
    }), { numRuns: 400 });
  });

  test("GIVEN any pairs WHEN read and written THEN writing is stable", () => {
    fc.assert(fc.property(fc.dictionary(text, text), (pairs) => {
      const once = encode(decode(pairs));
      expect(encode(decode(once))).toEqual(once);
    }));
  });

  test("GIVEN any hash WHEN read THEN no error, and no key that is not ours", () => {
    fc.assert(fc.property(text, (hash) => {
      const pairs = readHash("#" + hash);
      expect(Object.keys(pairs).every((key) => hash.includes("p.sol.") || key === "")).toBe(true);
    }));
  });

  test("GIVEN the default view WHEN written THEN the hash is only the tab", () => {
    expect(writeHash("", encode(emptyView()))).toBe("#sol");
  });

  test("GIVEN other plugins' tokens WHEN written THEN they stay, and ours come after", () => {
    const hash = writeHash("#scalars&runFilter=a%20b&p.sol.run=old&p.x.y=2", encode({ ...emptyView(), run: "h100/a b" }));
    expect(hash).toBe("#sol&runFilter=a%20b&p.x.y=2&p.sol.v=1&p.sol.run=h100/a%20b");
    expect(activeTab(hash)).toBe("sol");
  });

  test("GIVEN every token written WHEN TensorBoard splits it THEN it has exactly one equals sign", () => {
    fc.assert(fc.property(view, (v) => {
      for (const token of writeHash("", encode(v)).slice(1).split("&").slice(1)) expect(token.split("=").length).toBe(2);
    }));
  });

  test("GIVEN bad values WHEN read THEN only they are dropped", () => {
    const v = decode({ v: "1", page: "../../x", run: "a", "t.ops.s": "time", "t.ops.x": "z1", "t.ops.k": "7", "t.o ps.k": "1", "zz.y": "1" });
    expect(v.page).toBe(HOME);
    expect(v.run).toBe("a");
    expect(Object.keys(v.tables)).toEqual(["ops"]);
    expect(v.tables["ops"]).toEqual({ ...emptyTable(), row: "7" });
  });

  test("GIVEN an unknown version WHEN read THEN all of it is ignored", () => {
    expect(decode({ v: "9", run: "a" })).toEqual(emptyView());
  });

  test("GIVEN a malformed escape WHEN read THEN the other tokens survive", () => {
    expect(readHash("#sol&p.sol.run=%E0%A4%A&p.sol.page=kernels")).toEqual({ page: "kernels" });
  });

  test("GIVEN lists WHEN joined and split THEN the same lists", () => {
    fc.assert(fc.property(fc.array(text), (items) => {
      expect(splitList(joinList(items))).toEqual(items);
    }));
    expect(joinIds(["5", "1", "2", "3", "9", "a,b", "4-6"])).toBe("1-3,5,9,\\4-6,a\\,b");
    expect(splitIds("1-3,5,9,\\4-6,a\\,b")).toEqual(["1", "2", "3", "5", "9", "4-6", "a,b"]);
  });
});
