// The only file that talks to the server, or, in a page that was saved as a file, to what it holds. Every address is relative: path prefixes
// and proxies work by that.
import { holds, inFile, savedAnswer, tilesIn } from "./file";
import type { EventDetail, EventPage, ExportSize, Flows, Hits, Names, TimelineShape } from "./timeline";
import type { Analyses, ErrorBody, Found, Progress, Report, Runs, Summaries, TablePage, Unavailable } from "./types";

/** What a recording is addressed by; empty parts are left out. */
export interface Where {
  run: string;
  worker?: string;
  span?: string;
  /** what names the kernels that graph launches replay */
  capture?: string;
}

/** An error of a request: the error object of the server, or of the network. */
export class ApiError extends Error {
  constructor(
    readonly body: ErrorBody,
    readonly status: number,
    readonly progress: Progress | null = null,
  ) {
    super(body.message);
  }

  /** The recording is being read: ask again. */
  get loading(): boolean {
    return this.body.code === "still_loading";
  }
}

/** `path?name=value` with empty values left out. */
export function address(path: string, query: Record<string, string | undefined>): string {
  const parts = Object.entries(query).filter(([, v]) => v !== undefined && v !== "");
  const text = parts.map(([k, v]) => `${encodeURIComponent(k)}=${encodeURIComponent(v!)}`).join("&");
  return text ? `${path}?${text}` : path;
}

async function reach(url: string, init: RequestInit): Promise<Response> {
  try {
    // "still reading" is an answer to the page, not a failure that the browser should log
    return await fetch(url, { ...init, headers: { ...init.headers, Prefer: "respond-async" } });
  } catch (cause) {
    if (init.signal?.aborted) throw cause;
    throw new ApiError({ code: "unreachable", message: "The server does not answer.", hint: "Is it still running? Try again when it is." }, 0);
  }
}

async function ask<T>(url: string, init: RequestInit): Promise<T> {
  if (inFile) return fromFile<T>(url);
  return bodyOf<T>(await reach(url, init));
}

function fromFile<T>(url: string): T {
  const found = savedAnswer(url);
  if ("error" in found) throw new ApiError(found.error, 404);
  return found.value as T;
}

async function bodyOf<T>(reply: Response): Promise<T> {
  const text = await reply.text();
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    throw new ApiError({ code: "not_json", message: `The server answered ${reply.status} without JSON.`, hint: text.slice(0, 200) }, reply.status);
  }
  if (reply.ok && reply.status !== 202) return body as T;
  const failed = body as { error?: ErrorBody; progress?: Progress };
  throw new ApiError(failed.error ?? { code: "error", message: `The server answered ${reply.status}.` }, reply.status, failed.progress ?? null);
}

const get = <T>(url: string, signal?: AbortSignal): Promise<T> => ask<T>(url, signal ? { signal } : {});
const where = (w: Where): Record<string, string | undefined> => ({ run: w.run, worker: w.worker, span: w.span, capture: w.capture });

export const getRuns = (signal?: AbortSignal): Promise<Runs> => get<Runs>("api/v1/runs", signal);
export const getAnalyses = (w: Where | null, device = "", signal?: AbortSignal, wait = ""): Promise<Analyses> =>
  get<Analyses>(address("api/v1/analyses", w ? { ...where(w), device_limits: device, wait } : {}), signal);
export const getReport = (name: string, w: Where | null, query: Record<string, string>, signal?: AbortSignal): Promise<Report | Unavailable> =>
  get<Report | Unavailable>(address(`api/v1/analysis/${encodeURIComponent(name)}`, { ...(w && where(w)), ...query, tables: "pages" }), signal);
export const getFound = (w: Where, text: string, device: string, signal?: AbortSignal): Promise<Found> =>
  get<Found>(address("api/v1/search", { ...where(w), q: text, device_limits: device }), signal);
export const getSummaries = (signal?: AbortSignal): Promise<Summaries> => get<Summaries>("api/v1/summaries", signal);
/** Where the whole report can be saved from. */
export const reportAddress = (name: string, w: Where | null, query: Record<string, string>): string => address(`api/v1/analysis/${encodeURIComponent(name)}`, { ...(w && where(w)), ...query });

/** What is asked of the rows of a table; a list stands for a parameter that is given several times. */
export type RowsQuery = Record<string, string | string[]>;

export function rowsAddress(name: string, w: Where | null, query: Record<string, string>, rows: RowsQuery): string {
  const plain = Object.fromEntries(Object.entries(rows).filter((e): e is [string, string] => typeof e[1] === "string"));
  const lists = Object.entries(rows).flatMap(([k, v]) => (typeof v === "string" ? [] : v.map((one) => `&${k}=${encodeURIComponent(one)}`)));
  return address(`api/v1/table/${encodeURIComponent(name)}`, { ...(w && where(w)), ...query, ...plain }) + lists.join("");
}

/** What is too long for an address: keys of the rows that alone may pass, ids of rows of a tree that are open or closed unlike the others. */
export interface RowsBody {
  picked?: readonly string[];
  toggled?: readonly string[];
}

/** Rows of a large table. */
export function getRows(name: string, w: Where | null, query: Record<string, string>, rows: RowsQuery, body: RowsBody, signal: AbortSignal): Promise<TablePage> {
  const url = rowsAddress(name, w, query, rows);
  if (!body.picked && !body.toggled) return get<TablePage>(url, signal);
  return ask<TablePage>(url, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" }, signal });
}
export const postCancel = (w: Where): Promise<unknown> => ask(address("api/v1/cancel", where(w)), { method: "POST" });
/** Says that this page waits no more, also while it is being closed. */
export const postLeave = (): boolean => inFile || navigator.sendBeacon("api/v1/leave");
export const postRescan = (): Promise<unknown> => ask("api/v1/rescan", { method: "POST" });
export const traceAddress = (w: Where): string => address("api/v1/trace", where(w));
export const exportAddress = (w: Where, form: "hatchet" | "html", more: Record<string, string> = {}): string => address("api/v1/export", { ...where(w), form, ...more });

// -- timeline -------------------------------------------------------------------------------------------------------------

/** `where` of one recording, or of several workers of one run: lists in the same order. */
export interface Places {
  run: string;
  workers: readonly string[];
  spans: readonly string[];
  /** what names the kernels that graph launches replay */
  capture?: string;
  /** how several workers are aligned, "" as the server chooses */
  al?: string;
  /** layout of the rows, where the server makes other tracks for it */
  lay?: string;
}

/** Query of a route of the timeline; undefined and "" are left out. */
type TimelineQuery = Record<string, string | number | undefined>;

export function timelineAddress(route: string, at: Places, query: TimelineQuery): string {
  const texts = Object.fromEntries(Object.entries(query).map(([k, v]) => [k, v === undefined ? undefined : String(v)]));
  const lists = [...at.workers.map((w) => ["worker", w]), ...at.spans.map((s) => ["span", s])].filter(([, v]) => v);
  const url = address(`api/v1/timeline${route && `/${route}`}`, { run: at.run, capture: at.capture, ...(at.al && { al: at.al }), ...(at.lay && { lay: at.lay }), ...texts });
  return url + lists.map(([k, v]) => `&${k}=${encodeURIComponent(v!)}`).join("");
}

export const getTimeline = (at: Places, signal?: AbortSignal): Promise<TimelineShape> => get<TimelineShape>(timelineAddress("", at, {}), signal);
export const getTimelineNames = (at: Places, fp: string, signal?: AbortSignal): Promise<Names> => get<Names>(timelineAddress("names", at, { fp }), signal);
export const getEvent = (at: Places, query: TimelineQuery, signal?: AbortSignal): Promise<EventDetail> => get<EventDetail>(timelineAddress("event", at, query), signal);
export const getEvents = (at: Places, query: TimelineQuery, signal?: AbortSignal): Promise<EventPage> => get<EventPage>(timelineAddress("events", at, query), signal);
export const getFlows = (at: Places, query: TimelineQuery, signal?: AbortSignal): Promise<Flows> => get<Flows>(timelineAddress("flows", at, query), signal);

const PATH = { kind: "path" };
/** Whether the critical path can be had: a saved page may hold none. */
export const hasPath = (): boolean => holds(timelineAddress("flows", { run: "", workers: [], spans: [] }, PATH));
/** The critical path inside of a window; of a saved page all that it has. */
export const getPath = (at: Places, query: TimelineQuery, signal?: AbortSignal): Promise<Flows> => getFlows(at, inFile ? PATH : { ...PATH, ...query }, signal);
export const getHits = (at: Places, query: TimelineQuery, signal?: AbortSignal): Promise<Hits> => get<Hits>(timelineAddress("search", at, query), signal);

async function bytes(url: string, init: RequestInit): Promise<ArrayBuffer> {
  const reply = await reach(url, init);
  return reply.ok && reply.status !== 202 ? reply.arrayBuffer() : bodyOf<never>(reply);
}

/** Tiles of the timeline, in bytes; of a saved page those that it has. */
export async function getTiles(at: Places, query: TimelineQuery, signal: AbortSignal): Promise<ArrayBuffer> {
  const url = timelineAddress("tiles", at, query);
  return inFile ? tilesIn(url) : bytes(url, { signal });
}
/** How large a trace file will be. */
export const getExportSize = (at: Places, query: TimelineQuery, signal?: AbortSignal): Promise<ExportSize> => get<ExportSize>(timelineAddress("export", at, { ...query, size: 1 }), signal);
/** A window of the timeline as a trace file. */
export const getTimelineFile = (at: Places, query: TimelineQuery): Promise<ArrayBuffer> => bytes(timelineAddress("export", at, query), {});
