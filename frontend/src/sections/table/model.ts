// Rows of a table section in the order and choice of a TableState: sorting, filters and trees by @tanstack/table-core, nothing drawn.
import {
  createTable, getCoreRowModel, getExpandedRowModel, getFilteredRowModel, getSortedRowModel,
  type ColumnDef, type Row as EngineRow, type Table,
} from "@tanstack/table-core";
import type { Column, Scalar, TableSection } from "../../api/types";
import type { Range, TableState } from "../../state/codec";
import { BLOCK, pagedOf, type Order, type RowChoice } from "./pages";

/** A row to draw: `index` into the section's data, `key` in links and figures, `id` in the tree. */
export interface Row {
  index: number;
  key: string;
  id: string;
  depth: number;
  branch: boolean;
  open: boolean;
  last: boolean;
}

export interface Shown {
  rows: Row[];
  /** rows that pass the filters, opened or not */
  count: number;
  /** all rows there are */
  of: number;
  filtered: boolean;
  /** sums of the columns that add up to the total, over the rows that pass; where some do not */
  sums: Record<string, number | null>;
  /** of a table in pages: the order its rows are of, and the one that is being requested; `rows` lacks those that have not come */
  order?: Order;
  waiting?: Order | null;
}

interface Engine {
  table: Table<number>;
  size: number;
  roots: number[];
  children: Map<number, number[]>;
  parents: number[];
  last: number[];
  defaultOpen: Set<string>;
  words: string[] | null;
}

const TEXTUAL = new Set(["text", "code", "symbol", "tree", "shapes", "badge"]);
const AUTO_OPEN = 24;
const engines = new WeakMap<TableSection, Engine>();

export const cell = (s: TableSection, column: string, index: number): Scalar => s.data[column]?.[index] ?? null;
export const rowCount = (s: TableSection): number => s.pages?.rows ?? Math.max(0, ...s.columns.map((c) => s.data[c.name]?.length ?? 0));
/** The values of a column; of a table in pages some that stand for all of them. */
export const columnValues = (s: TableSection, column: string): readonly Scalar[] => (s.pages ? s.pages.profile?.[column] : s.data[column]) ?? [];
export const keyOf = (s: TableSection, index: number): string => (s.key ? String(cell(s, s.key, index) ?? "") : String(index));
export const idOf = (s: TableSection, index: number): string => (s.tree ? String(cell(s, s.tree.id, index) ?? index) : String(index));
export const textual = (c: Column): boolean => TEXTUAL.has(c.show ?? "number");

/** A text without abbreviation: of a column that has a longer form in another column, that form. */
export const wholeText = (s: TableSection, c: Column, index: number): string => String((c.full && cell(s, c.full, index)) || (cell(s, c.name, index) ?? ""));

/** The order a table is in: the reader's, else the section's. */
export function sortOf(s: TableSection, state: TableState): { column: string; descending: boolean } | null {
  if (state.sort && s.columns.some((c) => c.name === state.sort!.column)) return state.sort;
  return s.sort ? { column: s.sort.column, descending: s.sort.descending ?? true } : null;
}

/** What lets a row pass: the text, kept values, bounds of numbers, and keys picked elsewhere (null: all). */
interface Filter {
  needle: string;
  keep: [string, string[]][];
  ranges: [string, Range][];
  picked: ReadonlySet<string> | null;
}

function filterOf(s: TableSection, state: TableState, find: string, picked: ReadonlySet<string> | null): Filter {
  return {
    needle: find.trim().toLowerCase(),
    keep: Object.entries(state.keep).filter(([column, values]) => values.length && s.data[column]),
    ranges: Object.entries(state.ranges).filter(([column]) => s.data[column]),
    picked,
  };
}

const active = (f: Filter): boolean => f.needle !== "" || f.keep.length > 0 || f.ranges.length > 0 || f.picked !== null;

/** Is the number inside? An unknown one never is. */
const within = (value: Scalar, { above, below }: Range): boolean => typeof value === "number" && (above === null || value > above) && (below === null || value < below);

const passesAll = (s: TableSection, engine: Engine, index: number, f: Filter): boolean =>
  matches(s, engine, index, f.needle) && f.keep.every(([c, values]) => values.includes(String(cell(s, c, index)))) &&
  f.ranges.every(([c, range]) => within(cell(s, c, index), range)) && (f.picked === null || f.picked.has(keyOf(s, index)));

/** Keys of the rows that pass the table's own filters; null when nothing is filtered. */
export function passingKeys(s: TableSection, state: TableState, find: string): Set<string> | null {
  const f = filterOf(s, state, find, null);
  if (!active(f)) return null;
  const paged = pagedOf(s);
  if (paged) {
    const { order, waiting } = paged.orderOf(choiceOf(s, state, f), "points");
    return waiting ? null : new Set(Object.values(order.passing).flat());
  }
  const engine = engineOf(s);
  const out = new Set<string>();
  for (let i = 0; i < engine.size; i++) if (passesAll(s, engine, i, f)) out.add(keyOf(s, i));
  return out;
}

const PICKED = "\u0001picked";

/** Keys of the rows whose efficiency covers only a part of them. */
export function partialKeys(s: TableSection): Set<string> {
  if (s.pages) return new Set(s.pages.partial ?? []);
  const out = new Set<string>();
  for (const c of s.columns) {
    if (c.show !== "efficiency") continue;
    for (const [at, mark] of Object.entries(s.marks?.[c.name] ?? {})) if (mark.state === "partial" && at !== "total") out.add(keyOf(s, Number(at)));
  }
  return out;
}

const shownBefore = new WeakMap<TableSection, { of: string; picked: ReadonlySet<string> | null; shown: Shown }>();

/** The rows to draw, in order, for a state, the text that filters, and the keys picked elsewhere. The last answer is kept: several parts of a page ask. */
export function shownRows(s: TableSection, state: TableState, find: string, picked: ReadonlySet<string> | null = null): Shown {
  if (pagedOf(s)) return pagedRows(s, state, find, picked);
  const of = JSON.stringify([state.sort, state.keep, state.ranges, state.opened, find]);
  const known = shownBefore.get(s);
  if (known?.of === of && known.picked === picked) return known.shown;
  const shown = findRows(s, state, find, picked);
  shownBefore.set(s, { of, picked, shown });
  return shown;
}

/** What a state asks of the rows on the server. */
function choiceOf(s: TableSection, state: TableState, f: Filter): RowChoice {
  const own = state.sort && s.columns.some((c) => c.name === state.sort!.column) ? state.sort : null;
  const opened = s.tree ? (active(f) ? { base: "d" as const, ids: [] } : state.opened) : null; // filters open what holds a row that passes
  return { sort: own, needle: f.needle, keep: f.keep, ranges: f.ranges, picked: f.picked, opened };
}

/** What the present state asks of a table in pages: to save it. */
export const choiceNow = (s: TableSection, state: TableState, find: string, picked: ReadonlySet<string> | null): RowChoice => choiceOf(s, state, filterOf(s, state, find, picked));

const FLAT = { depth: 0, branch: false, open: false };
const drawnBefore = new WeakMap<Order, { news: number; rows: Row[] }>();

function pagedRows(s: TableSection, state: TableState, find: string, picked: ReadonlySet<string> | null): Shown {
  const paged = pagedOf(s)!;
  const { order, waiting } = paged.orderOf(choiceNow(s, state, find, picked), "rows");
  const { choice } = order;
  const filtered = active(choice);
  let known = drawnBefore.get(order);
  if (known?.news !== paged.news.value) {
    const outside = new Set(s.last ?? []);
    const rows = new Array<Row>(order.length);
    order.places.forEach((index, at) => { rows[at] = { index, key: keyOf(s, index), id: idOf(s, index), ...(order.twigs.get(index) ?? FLAT), last: outside.has(keyOf(s, index)) }; });
    drawnBefore.set(order, (known = { news: paged.news.value, rows }));
  }
  const sums = Object.fromEntries(Object.entries(order.sums).map(([name, v]) => [name, typeof v === "number" ? v : null]));
  return { rows: known.rows, count: order.count, of: order.of, filtered, sums, order, waiting };
}

/** Requests the rows of a table in pages between two places, and a block beyond. */
export function ensureRows(s: TableSection, shown: Shown, from: number, to: number): void {
  if (shown.order) pagedOf(s)?.ensure(shown.order, from, to + BLOCK / 2);
}

/** The place of the row with that key among the shown ones; -1 where it is not, or has not come. */
export function placeOf(s: TableSection, shown: Shown, key: string): number {
  return shown.order ? (pagedOf(s)?.placeOf(shown.order, key) ?? -1) : shown.rows.findIndex((r) => r.key === key);
}

const ADDED_UP = new Set(["number", "bar", "stack", "share"]);
const additive = new WeakMap<TableSection, Map<string, boolean>>();

/** Columns whose rows add up to the total: for them a sum over some of the rows means something. */
export const additiveOf = (s: TableSection): string[] => s.pages?.additive ?? [...addingUp(s).keys()];

/** Those columns, and whether the rows outside the sum are in their total nevertheless. */
function addingUp(s: TableSection): Map<string, boolean> {
  let found = additive.get(s);
  if (!found) {
    const every = s.tree ? [] : Array.from({ length: rowCount(s) }, (_, i) => i);
    additive.set(s, (found = new Map()));
    for (const c of s.tree || !s.total ? [] : s.columns) {
      const outside = [false, true].find((all) => addsUp(c, numbersOf(s, c.name, every, all), s.total![c.name]));
      if (outside !== undefined) found.set(c.name, outside);
    }
    const inside = every.filter((i) => !(s.last?.length && s.last.includes(keyOf(s, i))));
    for (const name of s.adds ?? []) if (inside.length && inside.every((i) => typeof cell(s, name, i) === "number")) found.set(name, false);
  }
  return found;
}

/** Two values other than 0 prove it. Whole numbers may each be rounded, as long as that makes no more than a hundred-thousandth. */
function addsUp(c: Column, values: number[] | null, total: Scalar | undefined): boolean {
  if (!ADDED_UP.has(c.show ?? "number") || c.per || typeof total !== "number" || !values) return false;
  if (((c.unit === "ratio" || c.unit === "%") && c.show !== "share") || values.filter((v) => v !== 0).length < 2) return false;
  const [off, size] = [Math.abs(added(values) - total), Math.abs(total)];
  const rounded = values.every(Number.isInteger) ? 0.5 * values.length : 0;
  return off <= Math.max(1e-9 * size, 1e-12, Math.min(rounded, 1e-5 * size));
}

const added = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0);

/** What is known of a column over some rows, without those outside the sum unless `all`; null where a value of it is no number. */
function numbersOf(s: TableSection, column: string, rows: readonly number[], all: boolean): number[] | null {
  const outside = new Set(all ? [] : s.last ?? []);
  const known = rows.filter((i) => cell(s, column, i) !== null && !(outside.size && outside.has(keyOf(s, i)))).map((i) => cell(s, column, i));
  return known.every((v): v is number => typeof v === "number") ? known : null;
}

function sumsOf(s: TableSection, rows: readonly number[]): Record<string, number | null> {
  return Object.fromEntries([...addingUp(s)].map(([name, all]) => {
    const values = numbersOf(s, name, rows, all);
    return [name, values?.length ? added(values) : null];
  }));
}

function findRows(s: TableSection, state: TableState, find: string, picked: ReadonlySet<string> | null): Shown {
  const engine = engineOf(s);
  const f = filterOf(s, state, find, picked);
  const filtered = active(f);
  const sort = sortOf(s, state);
  const columns = new Set([...f.keep, ...f.ranges].map(([column]) => column));
  const tests = [...columns].map((id) => ({ id, value: { keep: f.keep.find(([c]) => c === id)?.[1] ?? null, range: f.ranges.find(([c]) => c === id)?.[1] ?? null } }));
  engine.table.setOptions((before) => ({
    ...before,
    state: {
      ...before.state,
      sorting: sort ? [{ id: sort.column, desc: sort.descending }] : [],
      globalFilter: f.needle,
      columnFilters: f.picked ? [...tests, { id: PICKED, value: f.picked }] : tests,
      expanded: filtered && s.tree ? true : openedIds(s, engine, state),
    },
  }));
  const model = engine.table.getExpandedRowModel().rows;
  const rows = model.map((row) => drawn(s, row, false));
  const passes = engine.last.filter((index) => passesAll(s, engine, index, f));
  for (const index of passes) rows.push({ index, key: keyOf(s, index), id: idOf(s, index), depth: 0, branch: false, open: false, last: true });
  const count = engine.table.getFilteredRowModel().flatRows.length + passes.length;
  const sums = filtered ? sumsOf(s, rows.map((r) => r.index)) : {};
  return { rows, count: Math.min(count, engine.size), of: engine.size + (s.truncated ?? 0), filtered, sums };
}

/** Ids to open for `*` on a row: it and all below; of a tree in pages, which has not come as a whole, it or the next level below. */
export function below(s: TableSection, shown: Shown, at: number): string[] {
  const row = shown.rows[at]!;
  if (pagedOf(s)) {
    if (!row.open) return row.branch ? [row.id] : [];
    const ids: string[] = [];
    for (let i = at + 1; i < shown.rows.length && (shown.rows[i]?.depth ?? row.depth) > row.depth; i++) if (shown.rows[i]!.branch && !shown.rows[i]!.open) ids.push(shown.rows[i]!.id);
    return ids;
  }
  const { index } = row;
  const { children } = engineOf(s);
  const out: string[] = [];
  const todo = [index];
  while (todo.length) {
    const at = todo.pop()!;
    const inner = children.get(at) ?? [];
    if (inner.length) out.push(idOf(s, at));
    todo.push(...inner);
  }
  return out;
}

/** The tree state after opening or closing `ids`. */
export function withOpen(s: TableSection, state: TableState, ids: readonly string[], open: boolean): TableState["opened"] {
  if (pagedOf(s)) { // whoever asks names rows that are the other way round
    const turned = new Set(state.opened.ids);
    for (const id of ids) if (!turned.delete(id)) turned.add(id);
    return { base: state.opened.base, ids: [...turned] };
  }
  const engine = engineOf(s);
  const base = state.opened.base;
  const toggled = new Set(state.opened.ids);
  for (const id of ids) {
    const natural = base === "a" || (base === "d" && engine.defaultOpen.has(id));
    if (natural === open) toggled.delete(id);
    else toggled.add(id);
  }
  return { base, ids: [...toggled] };
}

/** Makes every ancestor of the row with that key visible; the ids to open, empty if it already is. */
export function pathTo(s: TableSection, shown: Shown, key: string): string[] {
  if (!s.tree) return [];
  if (shown.order) return shown.order.paths.get(key) ?? [];
  const engine = engineOf(s);
  let at = -1;
  for (let i = 0; i < engine.size; i++) if (keyOf(s, i) === key) { at = i; break; }
  const out: string[] = [];
  while (at >= 0 && (at = engine.parents[at] ?? -1) >= 0) out.push(idOf(s, at));
  return out;
}

/** What the parent's row says in a column of a tree; null at a root. */
export function parentText(s: TableSection, column: string, index: number): string | null {
  const paged = pagedOf(s);
  if (paged) return paged.aboveOf(index);
  const parent = engineOf(s).parents[index] ?? -1;
  return parent < 0 ? null : String(cell(s, column, parent) ?? "");
}

/** The values of a column with how often each stands there, most frequent first; rows outside the sum do not count. */
export function valueCounts(s: TableSection, column: string): [string, number][] {
  if (s.pages) return s.pages.values?.[column] ?? [];
  const counts = new Map<string, number>();
  const outside = new Set(s.last ?? []);
  for (const [i, value] of (s.data[column] ?? []).entries()) if (value !== null && !(outside.size && outside.has(keyOf(s, i)))) counts.set(String(value), (counts.get(String(value)) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
}

function drawn(s: TableSection, row: EngineRow<number>, last: boolean): Row {
  const branch = row.subRows.length > 0;
  return { index: row.original, key: keyOf(s, row.original), id: row.id, depth: row.depth, branch, open: branch && row.getIsExpanded(), last };
}

function openedIds(s: TableSection, engine: Engine, state: TableState): Record<string, boolean> {
  if (!s.tree) return {};
  const { base, ids } = state.opened;
  const toggled = new Set(ids);
  const out: Record<string, boolean> = {};
  for (const index of engine.children.keys()) {
    const id = idOf(s, index);
    const natural = base === "a" || (base === "d" && engine.defaultOpen.has(id));
    if (natural !== toggled.has(id)) out[id] = true;
  }
  return out;
}

function matches(s: TableSection, engine: Engine, index: number, needle: string): boolean {
  if (!needle) return true;
  engine.words ??= Array.from({ length: engine.size }, () => "");
  const known = engine.words[index];
  const text = known || s.columns.filter(textual).map((c) => String(cell(s, c.name, index) ?? "")).join("\u0001").toLowerCase() + "\u0001";
  if (!known) engine.words[index] = text;
  return text.includes(needle) || needle.split(/\s+/).every((word) => text.includes(word));
}

function engineOf(s: TableSection): Engine {
  const found = engines.get(s);
  if (found) return found;
  const size = rowCount(s);
  const lastKeys = new Set(s.last ?? []);
  const { roots, children, parents } = family(s, size);
  const last = lastKeys.size ? roots.filter((i) => lastKeys.has(keyOf(s, i))) : [];
  const inside = last.length ? roots.filter((i) => !last.includes(i)) : roots;
  const engine: Engine = { size, roots: inside, children, parents, last, words: null, defaultOpen: autoOpen(s, inside, children), table: undefined as unknown as Table<number> };
  const columns: ColumnDef<number>[] = s.columns.map((c) => ({
    id: c.name,
    accessorFn: (index: number) => (textual(c) && typeof cell(s, c.name, index) === "boolean" ? String(cell(s, c.name, index)) : cell(s, c.name, index) ?? undefined),
    sortUndefined: "last",
    sortingFn: textual(c) ? "alphanumeric" : "basic",
    filterFn: (row, id, { keep, range }: { keep: string[] | null; range: Range | null }) =>
      (!keep || keep.includes(String(cell(s, id, row.original)))) && (!range || within(cell(s, id, row.original), range)),
  }));
  columns.push({ id: PICKED, accessorFn: (index: number) => keyOf(s, index), filterFn: (row, _id, keys: ReadonlySet<string>) => keys.has(keyOf(s, row.original)) });
  engine.table = createTable<number>({
    data: inside,
    columns,
    getSubRows: (index) => children.get(index),
    getRowId: (index) => idOf(s, index),
    getCoreRowModel: getCoreRowModel(),
    getFilteredRowModel: getFilteredRowModel(),
    getSortedRowModel: getSortedRowModel(),
    getExpandedRowModel: getExpandedRowModel(),
    filterFromLeafRows: true,
    globalFilterFn: (row, _id, needle: string) => matches(s, engine, row.original, needle),
    getColumnCanGlobalFilter: (column) => column.id === s.columns[0]?.name,
    onStateChange: () => undefined,
    renderFallbackValue: null,
    state: {},
  });
  engine.table.setOptions((before) => ({ ...before, state: { ...engine.table.initialState } }));
  engines.set(s, engine);
  return engine;
}

/** Roots and children in the order of the data. A parent that is not there makes its row a root; a cycle is cut the same way. */
function family(s: TableSection, size: number): { roots: number[]; children: Map<number, number[]>; parents: number[] } {
  const children = new Map<number, number[]>();
  if (!s.tree) return { roots: Array.from({ length: size }, (_, i) => i), children, parents: [] };
  const at = new Map<string, number>();
  for (let i = 0; i < size; i++) at.set(idOf(s, i), i);
  const parents = Array.from({ length: size }, (_, i) => {
    const parent = cell(s, s.tree!.parent, i);
    const p = parent === null ? undefined : at.get(String(parent));
    return p === undefined || p === i ? -1 : p;
  });
  const safe = new Uint8Array(size);
  for (let i = 0; i < size; i++) {
    const path: number[] = [];
    const on = new Set<number>();
    let k = i;
    while (k >= 0 && !safe[k] && !on.has(k)) {
      path.push(k);
      on.add(k);
      k = parents[k]!;
    }
    if (k >= 0 && on.has(k)) parents[k] = -1;
    for (const p of path) safe[p] = 1;
  }
  const roots: number[] = [];
  parents.forEach((p, i) => {
    if (p < 0) roots.push(i);
    else if (children.has(p)) children.get(p)!.push(i);
    else children.set(p, [i]);
  });
  return { roots, children, parents };
}

/** Opens the heaviest rows first while the table stays short enough to see at once. */
function autoOpen(s: TableSection, roots: number[], children: Map<number, number[]>): Set<string> {
  const open = new Set<string>();
  if (!s.tree) return open;
  const by = s.sort?.column ?? s.columns.find((c) => !textual(c))?.name ?? "";
  const weight = (i: number): number => Number(cell(s, by, i) ?? 0) || 0;
  let visible = roots.length;
  const fringe = roots.filter((i) => children.has(i));
  const heaviest = Math.max(0, ...roots.map(weight));
  while (fringe.length) {
    fringe.sort((a, b) => weight(a) - weight(b));
    const at = fringe.pop()!;
    const inner = children.get(at)!;
    if (visible + inner.length > AUTO_OPEN || weight(at) < heaviest * 0.04) continue;
    open.add(idOf(s, at));
    visible += inner.length;
    fringe.push(...inner.filter((i) => children.has(i)));
  }
  return open;
}
