// Large tables whose rows stay on the server: what has come of them, and requests for what is on the screen. The last choice wins.
import { signal, type Signal } from "@preact/signals";
import { ApiError, getRows, rowsAddress, type RowsBody, type RowsQuery } from "../../api/client";
import type { Report, Scalar, TablePage, TableSection } from "../../api/types";
import type { ReportRequest } from "../../state/data";
import { joinList } from "../../state/lists";
import type { Range, TableState } from "../../state/codec";
import { distinctParts } from "./names";

/** Rows that are requested at once. */
export const BLOCK = 100;
/** ms between two requests for rows while a reader scrolls. */
const WAIT_MS = 150;
const KEPT = 6;

/** Which rows, in which order; `null` keys: all. */
export interface RowChoice {
  sort: { column: string; descending: boolean } | null;
  needle: string;
  keep: [string, string[]][];
  ranges: [string, Range][];
  picked: ReadonlySet<string> | null;
  /** of a tree: what is open */
  opened: TableState["opened"] | null;
}

/** How a row of a tree is drawn. */
export interface Twig {
  depth: number;
  branch: boolean;
  open: boolean;
}

/** The rows of one choice: `places[i]` is the row in place i, undefined where it has not come. */
export interface Order {
  choice: RowChoice;
  places: number[];
  /** of a tree, by row */
  twigs: Map<number, Twig>;
  /** rows that pass; `length` of them have a place, the others lie in closed branches */
  count: number;
  length: number;
  of: number;
  sums: Record<string, Scalar>;
  passing: Record<string, string[]>;
  ready: boolean;
  /** why its first page did not come */
  error: ApiError | null;
  /** first places of parts that did not come */
  failed: Map<number, ApiError>;
  asked: Set<number>;
  found: Map<string, number | null>;
  /** of rows that were asked for and lie in closed branches: the ids to open */
  paths: Map<string, string[]>;
  stop: AbortController;
}

/** Whose choice it is: the table's rows, or the points of its figures. */
type Slot = "rows" | "points";

export class Paged {
  /** Counts answers: who reads it is drawn again when one comes. */
  readonly news: Signal<number> = signal(0);
  private readonly orders = new Map<string, Order>();
  private readonly now: Partial<Record<Slot, Order>> = {};
  private shown: Order;
  private parts = new Map<string, { loaded: number; of: Map<string, [number, number]> }>();
  private loaded = 0;
  private last = 0;
  private timer = 0;
  /** the first row that was on the screen: where an order of the same tree is requested first */
  private from = 0;
  private readonly above = new Map<number, string | null>();

  constructor(private readonly s: TableSection, private readonly request: ReportRequest) {
    const pages = s.pages!;
    s.data = Object.fromEntries(s.columns.map((c) => [c.name, new Array<Scalar>(pages.rows)]));
    this.shown = this.make({ sort: null, needle: "", keep: [], ranges: [], picked: null, opened: s.tree ? { base: "d", ids: [] } : null });
    this.take(this.shown, pages.page);
  }

  private make(choice: RowChoice): Order {
    const order: Order = { choice, places: [], twigs: new Map(), count: 0, length: 0, of: 0, sums: {}, passing: {}, ready: false, error: null, failed: new Map(), asked: new Set(), found: new Map(), paths: new Map(), stop: new AbortController() };
    this.orders.set(nameOf(choice), order);
    while (this.orders.size > KEPT) {
      const oldest = [...this.orders].find(([, o]) => o !== this.shown && o !== order && !Object.values(this.now).includes(o));
      if (!oldest) break;
      oldest[1].stop.abort();
      this.orders.delete(oldest[0]);
    }
    return order;
  }

  /** The order of a choice as far as it is known; until its first page has come, the one that was shown before, with `waiting`. */
  orderOf(choice: RowChoice, slot: Slot): { order: Order; waiting: Order | null } {
    void this.news.value;
    const name = nameOf(choice);
    const order = this.orders.get(name) ?? this.make(choice);
    const before = this.now[slot];
    if (before !== order) {
      this.now[slot] = order;
      if (before && !before.ready && !Object.values(this.now).includes(before)) this.drop(before);
    }
    this.orders.delete(name);
    this.orders.set(name, order);
    if (order.ready) {
      if (slot === "rows") this.shown = order;
      return { order, waiting: null };
    }
    if (!order.error && !order.asked.size) this.load(order, this.firstOf(order), BLOCK);
    return { order: this.shown, waiting: order };
  }

  /** Where an order is requested first: at its start, or where the reader is if only a branch was opened or closed. */
  private firstOf(order: Order): number {
    const same = (c: RowChoice): string => nameOf({ ...c, opened: null });
    return order.choice.opened && same(order.choice) === same(this.shown.choice) ? Math.floor(this.from / BLOCK) * BLOCK : 0;
  }

  private drop(order: Order): void {
    order.stop.abort();
    this.orders.delete(nameOf(order.choice));
  }

  /** Requests the rows from `from` to `to` that have not come, soon. */
  ensure(order: Order, from: number, to: number): void {
    window.clearTimeout(this.timer);
    this.from = from;
    const ask = (): void => {
      this.last = performance.now();
      for (let block = Math.floor(Math.max(0, from) / BLOCK) * BLOCK; block < Math.min(to, order.length); block += BLOCK) {
        let first = block;
        const end = Math.min(block + BLOCK, order.length);
        while (first < end && order.places[first] !== undefined) first++;
        if (first < end && !order.asked.has(first) && !order.failed.has(first)) this.load(order, first, end - first);
      }
    };
    const wait = this.last + WAIT_MS - performance.now();
    if (wait <= 0) ask();
    else this.timer = window.setTimeout(ask, wait);
  }

  /** The place of a row in an order: -1 where it does not pass or has not come; then it is requested. */
  placeOf(order: Order, key: string): number {
    const known = order.found.get(key);
    if (known !== undefined) return known ?? -1;
    const column = this.s.data[this.s.key ?? ""];
    if (!column) return -1;
    let place = -1;
    order.places.forEach((index, at) => { if (place < 0 && String(column[index]) === key) place = at; });
    if (place >= 0) order.found.set(key, place);
    else if (!order.asked.has(-1)) this.load(order, -1, BLOCK, key);
    return place;
  }

  /** Requests again what did not come. */
  retry(order: Order): void {
    const failed = order.ready ? [...order.failed.keys()] : [this.firstOf(order)];
    order.failed.clear();
    order.error = null;
    for (const first of failed) this.load(order, first, BLOCK - (first % BLOCK));
    this.news.value++;
  }

  private load(order: Order, offset: number, limit: number, key = ""): void {
    order.asked.add(offset);
    const { name, where, query } = this.request;
    const wanted = { ...queryOf(order.choice), section: this.s.id, version: this.s.pages!.version, limit: String(limit), ...(key ? { key } : { offset: String(offset) }) };
    const done = (): void => { order.asked.delete(offset); this.news.value++; };
    getRows(name, where, query, wanted, bodyOf(order.choice), order.stop.signal).then(
      (page) => {
        this.take(order, page);
        if (key) order.found.set(key, page.at ?? null);
        if (key && page.path?.length) order.paths.set(key, page.path);
        done();
        const [next, end] = [offset + page.length, Math.min(offset + limit, page.shown ?? page.count)];
        if (!key && page.length && next < end) this.load(order, next, end - next); // rows so long that fewer came
      },
      (error: unknown) => {
        if (order.stop.signal.aborted) return;
        const why = error instanceof ApiError ? error : new ApiError({ code: "error", message: String(error) }, 0);
        if (key) order.found.set(key, null);
        else if (order.ready) order.failed.set(offset, why);
        else order.error = why;
        done();
      },
    );
  }

  private take(order: Order, page: TablePage): void {
    const { s } = this;
    (page.rows ?? []).forEach((row, i) => {
      if (i < page.length) order.places[page.offset + i] = row;
      if (page.branch) order.twigs.set(row, { depth: page.depth?.[i] ?? 0, branch: page.branch[i]! > 0, open: page.branch[i] === 2 });
      if (page.above) this.above.set(row, page.above[i] ?? null);
      for (const c of s.columns) s.data[c.name]![row] = page.data?.[c.name]?.[i] ?? null;
    });
    s.marks = merged(s.marks, page.marks);
    s.cell_links = merged(s.cell_links, page.cell_links);
    s.row_links = { ...s.row_links, ...page.row_links };
    Object.assign(order, { count: page.count, length: page.shown ?? page.count, of: page.of, sums: page.sums ?? {}, passing: page.passing ?? {}, ready: true, error: null });
    order.places.length = order.length;
    this.loaded += page.length;
  }

  /** What the parent of a row says in the tree's column. */
  aboveOf = (row: number): string | null => this.above.get(row) ?? null;

  /** The parts that tell the names of a column apart, among those that have come. */
  partsOf(column: string): Map<string, [number, number]> {
    const known = this.parts.get(column);
    if (known?.loaded === this.loaded) return known.of;
    const names: string[] = [];
    this.s.data[column]?.forEach((v) => { if (typeof v === "string") names.push(v); });
    const of = distinctParts(names);
    this.parts.set(column, { loaded: this.loaded, of });
    return of;
  }

  /** Requests all rows of an order that have not come. */
  async loadAll(order: Order): Promise<void> {
    const { name, where, query } = this.request;
    for (let at = 0; at < order.length;) {
      if (order.places[at] !== undefined) { at++; continue; }
      const wanted = { ...queryOf(order.choice), section: this.s.id, version: this.s.pages!.version, limit: "1000", offset: String(at) };
      const page = await getRows(name, where, query, wanted, bodyOf(order.choice), order.stop.signal);
      this.take(order, page);
      if (!page.length) return;
      this.news.value++;
    }
  }

  /** Where all rows of a choice can be saved from as CSV. */
  csvAddress(choice: RowChoice, columns: readonly string[]): string {
    const { name, where, query } = this.request;
    return rowsAddress(name, where, query, { ...queryOf(choice), section: this.s.id, version: this.s.pages!.version, format: "csv", columns: joinList(columns) });
  }
}

const nameOf = (c: RowChoice): string => JSON.stringify([c.sort, c.needle, c.keep, c.ranges, c.picked && [...c.picked], c.opened]);

function bodyOf(c: RowChoice): RowsBody {
  return { ...(c.picked && { picked: [...c.picked] }), ...(c.opened?.ids.length && { toggled: c.opened.ids }) };
}

function queryOf(c: RowChoice): RowsQuery {
  const number = (value: number | null): string => (value === null ? "" : String(value));
  return {
    sort: c.sort ? (c.sort.descending ? "-" : "") + c.sort.column : "",
    find: c.needle,
    ...(c.opened && c.opened.base !== "d" && { open: c.opened.base }),
    keep: c.keep.map(([column, values]) => `${column}:${joinList(values)}`),
    range: c.ranges.map(([column, r]) => `${column}:${number(r.above)}~${number(r.below)}`),
  };
}

type Sparse<T> = Record<string, Record<string, T>>;

function merged<T>(before: Sparse<T> | undefined, more: Sparse<T> | undefined): Sparse<T> {
  const out = { ...before };
  for (const [column, entries] of Object.entries(more ?? {})) out[column] = { ...out[column], ...entries };
  return out;
}

const every = new WeakMap<TableSection, Paged>();

/** The rows that have come of a table in pages; null for one that is whole. */
export const pagedOf = (s: TableSection): Paged | null => (s.pages ? (every.get(s) ?? null) : null);

/** Prepares the tables in pages of a report. Called once per report, before it is drawn. */
export function startPages(report: Report, request: ReportRequest | null): void {
  for (const s of report.sections) if (s.kind === "table" && s.pages && request && !every.has(s)) every.set(s, new Paged(s, request));
}
