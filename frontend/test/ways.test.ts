import { describe, expect, test } from "vitest";
import { emptyView } from "../src/state/codec";
import { commandOf, markdownOf, pythonOf } from "../src/state/ways";

// The same values stand in tests/unit/web/test_links.py.
const VIEW = { ...emptyView(), page: "kernels", run: "a b", worker: "rank0", step: "12-15", query: { group_by: "name", empty: "" } };

describe("a view in other forms", () => {
  test("GIVEN a view with options WHEN it is written as a command and a line of Python THEN names are quoted, what is left open is not there", () => {
    expect(commandOf(VIEW)).toBe("tb-sol analyze kernels LOGDIR --run 'a b' --worker rank0 --step 12-15 --group-by name --format text");
    expect(pythonOf(VIEW)).toBe('next(c for c in sol.open("LOGDIR", run="a b").captures if c.worker == "rank0").analyze("kernels", step="12-15", group_by="name")');
    expect(commandOf({ ...emptyView(), run: "it's" })).toBe("tb-sol analyze overview LOGDIR --run 'it'\"'\"'s' --format text");
    expect(pythonOf(emptyView())).toBe('sol.open("LOGDIR").analyze("overview")');
  });

  test("GIVEN a headline with marks WHEN it is a link THEN its words end no link, and neither does its address", () => {
    expect(markdownOf("Kernels", "**`gemm[1]`** takes\n9 ms", "http://h/#sol&p.sol.q.x=(a)")).toBe("[Kernels: gemm\\[1\\] takes 9 ms](http://h/#sol&p.sol.q.x=%28a%29)");
  });
});
