// The only file that talks to the server. Every address is relative: path prefixes and proxies work by that.
import type { Analyses, ErrorBody, Found, Progress, Report, Runs, Summaries, TablePage, Unavailable } from "./types";

/** What a recording is addressed by; empty parts are left out. */
export interface Where {
  run: string;
  worker?: string;
  span?: string;
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

async function ask<T>(url: string, init: RequestInit): Promise<T> {
  let reply: Response;
  try {
    // "still reading" is an answer to the page, not a failure that the browser should log
    reply = await fetch(url, { ...init, headers: { ...init.headers, Prefer: "respond-async" } });
  } catch (cause) {
    if (init.signal?.aborted) throw cause;
    throw new ApiError({ code: "unreachable", message: "The server does not answer.", hint: "Is it still running? Try again when it is." }, 0);
  }
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
const where = (w: Where): Record<string, string | undefined> => ({ run: w.run, worker: w.worker, span: w.span });

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
export const postLeave = (): boolean => navigator.sendBeacon("api/v1/leave");
export const postRescan = (): Promise<unknown> => ask("api/v1/rescan", { method: "POST" });
export const traceAddress = (w: Where): string => address("api/v1/trace", where(w));
export const exportAddress = (w: Where, form: "hatchet"): string => address("api/v1/export", { ...where(w), form });
