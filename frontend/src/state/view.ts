// The one view: read from the address, changed by the page, written back to the address.
import { computed, signal } from "@preact/signals";
import { decode, emptyTable, emptyView, encode, HOME, NO_BASE, sameView, type TableState, TIMELINE_KEYS, type View } from "./codec";
import * as host from "./host";
import type { Link } from "../api/types";

export const view = signal<View>(decode(host.readAddress()));
export const page = computed(() => view.value.page);

/** push: a new place, Back returns from it. replace: the same place, written when typing pauses. quiet: the same place, at once. */
export type How = "push" | "replace" | "quiet";

let waiting = 0;
let owed = false;

/** Makes `next` the view and the address. */
export function go(next: View, how: How): void {
  if (sameView(next, view.value)) return;
  if (how === "push") flush();
  view.value = next;
  window.clearTimeout(waiting);
  if (how === "replace") waiting = window.setTimeout(flush, 300);
  else write(how === "push");
  owed = owed || how === "replace";
}

function flush(): void {
  window.clearTimeout(waiting);
  if (owed) write(false);
}

function write(push: boolean): void {
  owed = !host.writeAddress(encode(view.value), push);
}

export const change = (part: Partial<View>, how: How): void => go({ ...view.value, ...part }, how);

/** Starts following the address: back, forward, edits by hand, links of other tabs. */
export function followAddress(): void {
  host.onAddress((pairs) => {
    if (owed && !Object.keys(pairs).length) return flush(); // first visit: our tab has only now become the active one
    window.clearTimeout(waiting);
    owed = false;
    const next = decode(pairs);
    if (!sameView(next, view.value)) view.value = next;
  });
}

// -- tables ---------------------------------------------------------------------------------------------------------------

export const tableOf = (id: string): TableState => (Object.hasOwn(view.value.tables, id) ? view.value.tables[id]! : emptyTable());

export function changeTable(id: string, part: Partial<TableState>, how: How): void {
  change({ tables: { ...view.value.tables, [id]: { ...tableOf(id), ...part } } }, how);
}

export function changeFigure(id: string, text: string, how: How = "replace"): void {
  change({ figures: { ...view.value.figures, [id]: text } }, how);
}

export function changeTimeline(part: Record<string, string>, how: How): void {
  change({ timeline: { ...view.value.timeline, ...part } }, how);
}

// -- places ---------------------------------------------------------------------------------------------------------------

/** Another page of the same selection. */
export function pageView(name: string): View {
  const { run, worker, span, step, capture, device, base, base_worker, base_span } = view.value;
  return { ...emptyView(), page: name, run, worker, span, step, capture, device, base, base_worker, base_span };
}

/**
 * What a link of a report leads to. `find` filters the main table; step, device_limits, run, worker and span change the selection;
 * keys of the address that begin with `t.` or `f.` set a table or a figure, those of the timeline its window, event and rows.
 */
export function linkView(link: Link): View {
  const { find = "", step, device_limits: device, run, worker, span, ...rest } = link.query ?? {};
  const placed = (key: string): boolean => /^[tf]\./.test(key) || (link.analysis === "timeline" && (TIMELINE_KEYS as readonly string[]).includes(key));
  const query = Object.fromEntries(Object.entries(rest).filter(([key]) => !placed(key)));
  const { tables, figures, timeline } = decode(Object.fromEntries(Object.entries(rest).filter(([key]) => placed(key))));
  const next = { ...pageView(link.analysis || HOME), find, query, tables, figures, timeline };
  const other = run !== undefined && run !== next.run;
  if (run !== undefined || worker !== undefined || span !== undefined) Object.assign(next, NO_BASE); // another recording is shown
  if (other) Object.assign(next, { run, worker: "", span: "", step: "", capture: "" });
  if (worker !== undefined) Object.assign(next, { worker, span: "" });
  if (span !== undefined) next.span = span;
  if (step !== undefined) next.step = step;
  if (device !== undefined) next.device = device;
  return next;
}

export const addressOf = (next: View): string => host.addressOf(encode(next));
export const here = (): string => addressOf(view.value);
