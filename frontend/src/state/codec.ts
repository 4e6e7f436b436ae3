// The view as key-value pairs of the address and back. Defaults are left out; a bad value is dropped, the others are kept.
//
//   v=1            version, present as soon as anything else is
//   page run worker span step capture device    the selection; base base_worker base_span the baseline; find = text filter of the main table
//   q.FIELD        query fields of the page's analysis
//   t.ID.s         sort: `-column` descending, `column` ascending
//   t.ID.f         text filter                     t.ID.c.COLUMN  list of values to keep
//   t.ID.n.COLUMN  numbers to keep, in base units: `100000~` above, `~5` below, `1~2` between
//   t.ID.h         list of `+column`, `-column`    t.ID.k         selected row's key
//   t.ID.x         opened rows of a tree: d, a or n (start from default, all, none), then the rows that differ
//   f.ID           zoom and selected areas of a figure: a short text that the figure understands
//   of the timeline: t window, ev event, area, pin hide open rows, lay layout, al alignment, q search, mk marks, cp critical path, y scrolled to
import { joinIds, joinList, splitIds, splitList } from "./lists";

export interface Sort {
  column: string;
  descending: boolean;
}

export interface Opened {
  base: "d" | "a" | "n";
  ids: string[];
}

/** Numbers that pass a filter: above `above` and below `below`, null for no bound; base units. */
export interface Range {
  above: number | null;
  below: number | null;
}

export interface TableState {
  sort: Sort | null;
  find: string;
  keep: Record<string, string[]>;
  ranges: Record<string, Range>;
  columns: Record<string, boolean>;
  opened: Opened;
  row: string;
}

export interface View {
  page: string;
  run: string;
  worker: string;
  span: string;
  step: string;
  /** what names the kernels that graph launches replay, "" what lies beside the trace */
  capture: string;
  device: string;
  /** the baseline: its run, and where they are not the same as of the recording shown, its worker and span */
  base: string;
  base_worker: string;
  base_span: string;
  find: string;
  query: Record<string, string>;
  tables: Record<string, TableState>;
  figures: Record<string, string>;
  /** of the timeline, by key */
  timeline: Record<string, string>;
}

export type Pairs = Record<string, string>;

export const HOME = "overview";
const VERSION = "1";
const ID = /^[A-Za-z0-9_-]{1,80}$/;
const PLAIN = ["page", "run", "worker", "span", "step", "capture", "device", "base", "base_worker", "base_span", "find"] as const;
export const TIMELINE_KEYS = ["t", "ev", "area", "pin", "hide", "open", "lay", "al", "q", "mk", "cp", "y"] as const;

/** No baseline is chosen. */
export const NO_BASE = { base: "", base_worker: "", base_span: "" } as const;
export const emptyTable = (): TableState => ({ sort: null, find: "", keep: {}, ranges: {}, columns: {}, opened: { base: "d", ids: [] }, row: "" });
export const emptyView = (): View => ({
  page: HOME, run: "", worker: "", span: "", step: "", capture: "", device: "", ...NO_BASE, find: "", query: {}, tables: {}, figures: {}, timeline: {},
});

/** The pairs of a view, in a fixed order, without what is at its default. */
export function encode(view: View): Pairs {
  const out: Pairs = {};
  for (const name of PLAIN) if (view[name] !== "" && !(name === "page" && view.page === HOME)) out[name] = view[name];
  for (const [name, value] of sorted(view.query)) if (value !== "") out[`q.${name}`] = value;
  for (const [id, table] of sorted(view.tables)) Object.assign(out, encodeTable(id, table));
  for (const [id, zoom] of sorted(view.figures)) if (zoom) out[`f.${id}`] = zoom;
  for (const key of TIMELINE_KEYS) if (view.timeline[key]) out[key] = view.timeline[key]!;
  return Object.keys(out).length ? { v: VERSION, ...out } : out;
}

/** The view of some pairs: unknown keys are ignored, bad values dropped one by one, never an error. */
export function decode(pairs: Pairs): View {
  const view = emptyView();
  if (pairs["v"] !== undefined && pairs["v"] !== VERSION) return view;
  for (const name of PLAIN) if (pairs[name]) view[name] = pairs[name]!;
  if (!ID.test(view.page)) view.page = HOME;
  for (const key of TIMELINE_KEYS) if (pairs[key]) view.timeline[key] = pairs[key]!;
  for (const [key, value] of Object.entries(pairs)) {
    const [head, id, field, ...rest] = key.split(".");
    if (value === "" || id === undefined || !ID.test(id)) continue;
    if (head === "q" && field === undefined) view.query[id] = value;
    else if (head === "f" && field === undefined) view.figures[id] = value;
    else if (head === "t" && field !== undefined && id !== "__proto__") {
      if (!Object.hasOwn(view.tables, id)) view.tables[id] = emptyTable();
      decodeTable(view.tables[id]!, field, rest.join("."), value);
    }
  }
  for (const [id, table] of Object.entries(view.tables)) if (!Object.keys(encodeTable(id, table)).length) delete view.tables[id];
  return view;
}

function encodeTable(id: string, table: TableState): Pairs {
  const out: Pairs = {};
  const at = `t.${id}.`;
  if (table.sort) out[`${at}s`] = (table.sort.descending ? "-" : "+") + table.sort.column;
  if (table.find) out[`${at}f`] = table.find;
  for (const [column, values] of sorted(table.keep)) if (values.length) out[`${at}c.${column}`] = joinList([...values].sort());
  for (const [column, range] of sorted(table.ranges)) if (column && rangeText(range)) out[`${at}n.${column}`] = rangeText(range);
  const columns = sorted(table.columns).map(([name, shown]) => (shown ? "+" : "-") + name);
  if (columns.length) out[`${at}h`] = joinList(columns);
  if (table.opened.base !== "d" || table.opened.ids.length) out[`${at}x`] = table.opened.base + joinIds(table.opened.ids);
  if (table.row) out[`${at}k`] = table.row;
  return out;
}

function decodeTable(table: TableState, field: string, rest: string, value: string): void {
  if (field === "c" && rest) table.keep[rest] = splitList(value);
  else if (field === "n" && rest) {
    const range = readRange(value);
    if (range) table.ranges[rest] = range;
  } else if (rest) return;
  else if (field === "s" && /^[+-]./s.test(value)) table.sort = { column: value.slice(1), descending: value[0] === "-" };
  else if (field === "f") table.find = value;
  else if (field === "k") table.row = value;
  else if (field === "x" && /^[dan]/.test(value)) table.opened = { base: value[0] as Opened["base"], ids: splitIds(value.slice(1)) };
  else if (field === "h") {
    for (const item of splitList(value)) if (/^[+-]./s.test(item)) table.columns[item.slice(1)] = item[0] === "+";
  }
}

const rangeText = ({ above, below }: Range): string => (above === null && below === null ? "" : `${above ?? ""}~${below ?? ""}`);

function readRange(text: string): Range | null {
  const [low, high, ...more] = text.split("~");
  const ends = [low, high].map((t) => (t ? Number(t) : null));
  if (high === undefined || more.length || ends.every((e) => e === null) || ends.some((e) => e !== null && !Number.isFinite(e))) return null;
  return { above: ends[0]!, below: ends[1]! };
}

const sorted = <T>(record: Record<string, T>): [string, T][] => Object.entries(record).sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));

/** Two views are the same if their addresses are. */
export const sameView = (a: View, b: View): boolean => JSON.stringify(encode(a)) === JSON.stringify(encode(b));
