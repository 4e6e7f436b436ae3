// Fetches the runs, the analyses of the chosen recording and the report of the page, and polls while a recording is read; never while
// the page is hidden.
import { batch, computed, effect, signal, type Signal } from "@preact/signals";
import * as api from "../api/client";
import { inFile } from "../api/file";
import type { Analyses, AnalysisInfo, FieldNow, Progress, Report, Runs, Unavailable } from "../api/types";
import { choose, type Chosen } from "./select";
import { type Failure, failuresOf } from "./failures";
import { onVisible } from "./host";
import { change, page, view } from "./view";

/** An answer of the server. `key` names the request; while `state` is waiting, `value` may still be that of the request before (`of`). */
export interface Fetched<T> {
  key: string;
  state: "idle" | "waiting" | "loading" | "ready" | "error";
  value: T | null;
  of: string;
  error: api.ApiError | null;
  progress: Progress | null;
  since: number;
}

const idle = <T>(): Fetched<T> => ({ key: "", state: "idle", value: null, of: "", error: null, progress: null, since: 0 });

export const runs = signal<Fetched<Runs>>(idle());
export const pages = signal<Fetched<Analyses>>(idle());
export const report = signal<Fetched<Report | Unavailable>>(idle());
export const catalog = signal<AnalysisInfo[]>([]);
/** Analyses that the server could not load. */
export const failures = signal<Failure[]>([]);
export const visible = signal(true);
const attempt = signal(0);

export const choice = computed(() => (runs.value.value ? choose(runs.value.value, view.value) : null));
export const chosen = computed<Chosen | null>(() => (choice.value?.state === "chosen" ? choice.value.chosen : null));
export const where = computed<api.Where | null>(() => {
  const c = chosen.value;
  return c ? { run: c.run.name, worker: c.worker.name, span: c.span.name, ...(view.value.capture && { capture: view.value.capture }) } : null;
});
const whereKey = computed(() => (where.value ? JSON.stringify([where.value.run, where.value.worker, where.value.span, where.value.capture, view.value.device, attempt.value]) : ""));
export const info = computed<AnalysisInfo | null>(() => pages.value.value?.analyses.find((a) => a.name === page.value) ?? catalog.value.find((a) => a.name === page.value) ?? null);
/** Why the present page cannot be computed of any recording: its analysis could not be loaded. */
export const failure = computed(() => failures.value.find((f) => f.name === page.value) ?? null);
/** The present page answers without a recording. */
export const needsNoRecording = computed(() => info.value?.alone === true);
/** The key of the chosen recording once it is read: its report can be requested. */
const readyKey = computed(() => (pages.value.state === "ready" && pages.value.key === whereKey.value ? whereKey.value : ""));
/** Query values that the page starts with where they differ from those of a script. */
const pageDefaults = computed(() => {
  const fields = info.value?.fields ?? [];
  return Object.fromEntries(fields.filter((f) => f.page !== undefined && f.page !== f.default).map((f) => [f.name, f.page!]));
});
/** The baseline that the present page is set against, none where it takes none. */
export const baseline = computed((): Record<string, string> => {
  const { base, base_worker, base_span } = view.value;
  return info.value?.compares && (base || base_worker || base_span) ? { base, base_worker, base_span } : {};
});
const query = computed(() => ({ ...pageDefaults.value, ...view.value.query, ...(view.value.step && { step: view.value.step }), ...(view.value.device && { device_limits: view.value.device }), ...baseline.value }));
/** Whether the report is requested without a recording: it needs none, and none is chosen, or the chosen one is still being read or cannot be. */
const askWithoutRecording = computed(() => needsNoRecording.value && (!!runs.value.value || runs.value.state === "error") && !(whereKey.value && ["idle", "waiting"].includes(pages.value.state)));
const reportKey = computed(() => (!failure.value && (readyKey.value || askWithoutRecording.value) ? JSON.stringify([page.value, readyKey.value || attempt.value, query.value]) : ""));

/** When the shown recording was read, and whether its file has changed since. */
export const stamp = signal("");
export const stale = computed(() => {
  const span = chosen.value?.span;
  return !!span && stamp.value !== "" && stamp.value !== `${span.file ?? span.name}:${span.size}:${span.mtime}` && stamp.value.startsWith(`${span.file ?? span.name}:`);
});

const OTHERS = 6;
/** ms after a change of a field until the report is requested: a slider passes many values on its way. */
const SETTLES = 90;

/** Runs that have data for a page. Requests at most six, whose recordings have been read already. */
export async function runsWith(name: string): Promise<api.Where[]> {
  const shown = where.peek();
  const read = (runs.peek().value?.runs ?? []).flatMap((r) => r.workers.slice(0, 1).flatMap((w) => w.spans.slice(-1).map((s) => ({ run: r.name, worker: w.name, span: s.name, ready: s.state === "ready" }))));
  const ask = read.filter((r) => r.ready && r.run !== shown?.run).slice(0, OTHERS);
  const found = await Promise.all(ask.map(async ({ run, worker, span }) => {
    try {
      const { analyses } = await api.getAnalyses({ run, worker, span });
      return analyses.some((a) => a.name === name && a.available !== false) ? [{ run, worker, span }] : [];
    } catch (error) {
      if (error instanceof api.ApiError) return []; // a run that does not answer is not offered
      throw error;
    }
  }));
  return found.flat();
}

/** Requests everything about the shown recording again. */
export function readAgain(): void {
  remembered.clear();
  batch(() => {
    attempt.value++;
    stamp.value = "";
  });
}

const remembered = new Map<string, Report | Unavailable>();

/** What a report was requested with: rows of its large tables are requested with the same. */
export interface ReportRequest {
  name: string;
  where: api.Where | null;
  query: Record<string, string>;
}

const requests = new WeakMap<object, ReportRequest>();
/** Remembers what a report was requested with. */
export const noteRequest = (value: Report | Unavailable, request: ReportRequest): void => void requests.set(value, request);
export const requestOf = (value: Report | Unavailable): ReportRequest | null => requests.get(value) ?? null;

/** The query fields of the last report of a page with a card of fields; where its first report failed, those of the report at its defaults. */
export const lastFields = signal<{ page: string; fields: Record<string, FieldNow> }>({ page: "", fields: {} });

effect(() => {
  const value = report.value.value;
  if (value?.available) lastFields.value = { page: value.analysis, fields: value.fields ?? {} };
});

/** Requests the report at the defaults of a page whose first request failed, for its fields. */
async function fetchDefaultFields(name: string, w: api.Where | null): Promise<void> {
  if (lastFields.peek().page === name || !info.peek()?.fields?.some((f) => f.group)) return;
  try {
    const value = await api.getReport(name, w, pageDefaults.peek());
    if (value.available) lastFields.value = { page: name, fields: value.fields ?? {} };
  } catch (error) {
    if (!(error instanceof api.ApiError)) throw error; // then the fields of the catalog are shown
  }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const timer = window.setTimeout(done, ms);
    signal.addEventListener("abort", () => { window.clearTimeout(timer); done(); }, { once: true });
  });
}

async function untilVisible(signal: AbortSignal): Promise<void> {
  while (!visible.peek() && !signal.aborted) await pause(400, signal);
}

/** Whether a report covers only some of the workers of a run, as the others are still being read. */
const unfinished = (value: unknown): boolean => !!(value as { reading?: unknown } | null)?.reading;

/** Requests until the answer is final, and stores progress and early answers in the meantime. */
async function poll<T>(slot: Signal<Fetched<T>>, key: string, ask: (signal: AbortSignal, again: boolean) => Promise<T>, stop: AbortSignal): Promise<T | null> {
  slot.value = { ...slot.peek(), key, state: "waiting", error: null, progress: null, since: performance.now() };
  for (let again = false; !stop.aborted; again = true) {
    await untilVisible(stop);
    try {
      const value = await ask(stop, again);
      if (stop.aborted) return null;
      slot.value = { ...slot.peek(), key, of: key, state: "ready", value, progress: null };
      if (!unfinished(value)) return value;
      await pause(600, stop);
    } catch (error) {
      if (stop.aborted) return null;
      if (!(error instanceof api.ApiError)) throw error;
      if (!error.loading) {
        slot.value = { ...slot.peek(), key, state: "error", error, progress: null };
        return null;
      }
      slot.value = { ...slot.peek(), key, state: "loading", error, progress: error.progress };
      await pause(150, stop); // the server itself waits for news
    }
  }
  return null;
}

/** Reads the list of runs once more; the page keeps what it shows. */
export async function refreshRuns(): Promise<void> {
  try {
    const value = await api.getRuns();
    runs.value = { ...runs.peek(), key: "runs", of: "runs", state: "ready", value, error: null };
  } catch (error) {
    if (!(error instanceof api.ApiError)) throw error;
    runs.value = { ...runs.peek(), key: "runs", state: "error", error };
  }
}

/** TensorBoard's reload, or the button: look for new files, then read the list. */
export async function rescan(): Promise<void> {
  try {
    await api.postRescan();
  } catch (error) {
    if (!(error instanceof api.ApiError)) throw error;
  }
  for (let i = 0; i < 40; i++) {
    await refreshRuns();
    if (runs.peek().value?.scan.state !== "scanning") return;
    await new Promise((done) => window.setTimeout(done, 250));
  }
}

let stopPages = new AbortController();

/** Stops reading the chosen recording, and polling for it: the next request would start it again. */
export async function cancel(): Promise<void> {
  const w = where.peek();
  if (!w) return;
  stopPages.abort();
  const error = new api.ApiError({ code: "stopped", message: "The recording was not read to its end.", hint: "Nothing was kept of it. It can be read again at any time." }, 0);
  pages.value = { ...pages.peek(), state: "error", error, progress: null };
  await api.postCancel(w).catch(() => undefined);
}

async function pollRuns(): Promise<void> {
  const never = new AbortController().signal;
  runs.value = { ...idle(), key: "runs", state: "waiting", since: performance.now() };
  for (;;) {
    await untilVisible(never);
    await refreshRuns();
    const now = runs.peek();
    if (now.state === "error" || inFile) return;
    const scanning = now.value!.scan.state === "scanning";
    const reading = pages.peek().state === "loading";
    const empty = !now.value!.runs.length;
    await pause(scanning ? 500 : reading ? 1000 : empty ? 4000 : 10_000, never);
  }
}

/** Starts all requests of the page. Called once. */
export function startData(): void {
  onVisible((now) => { visible.value = now; });
  void pollRuns();
  api.getAnalyses(null).then((all) => batch(() => { catalog.value = all.analyses; failures.value = failuresOf(all.failed); }), () => undefined);

  effect(() => {
    const key = whereKey.value;
    stopPages.abort();
    if (!key) return;
    stopPages = new AbortController();
    const w = where.peek()!;
    const span = chosen.peek()!.span;
    const device = view.peek().device;
    void poll(pages, key, (s, again) => api.getAnalyses(w, device, s, again ? "0.8" : ""), stopPages.signal).then((value) => {
      if (!value) return;
      catalog.value = value.analyses;
      stamp.value = `${span.file ?? span.name}:${span.size}:${span.mtime}`;
    });
  });

  let stopReport = new AbortController();
  const leave = (): void => {
    const { state, value } = report.peek();
    if (!stopReport.signal.aborted && (state === "loading" || (state === "ready" && unfinished(value)))) api.postLeave();
  };
  window.addEventListener("pagehide", leave);
  effect(() => {
    const key = reportKey.value;
    leave();
    stopReport.abort();
    if (!key) return;
    stopReport = new AbortController();
    const known = remembered.get(key);
    if (known) {
      report.value = { ...idle(), key, of: key, state: "ready", value: known };
      return;
    }
    const [name, w, q] = [page.peek(), readyKey.peek() ? where.peek() : null, query.peek()];
    const moved = report.peek().value?.analysis === name && info.peek()?.fields?.some((f) => f.group);
    const ask = async (s: AbortSignal): Promise<Report | Unavailable> => {
      if (moved) await pause(SETTLES, s);
      const value = await api.getReport(name, w, q, s);
      noteRequest(value, { name, where: w, query: q });
      return value;
    };
    void poll(report, key, ask, stopReport.signal).then((value) => {
      if (!value) return void (report.peek().state === "error" && report.peek().key === key && fetchDefaultFields(name, w));
      if (!value.available || !value.provisional) remembered.set(key, value);
      if (remembered.size > 12) remembered.delete(remembered.keys().next().value!);
    });
  });

  // The address names what is shown, so that the same link shows it again when newer runs have come.
  effect(() => {
    const c = chosen.value;
    if (!c) return;
    const full = { run: c.run.name, worker: c.run.workers.length > 1 ? c.worker.name : view.peek().worker, span: c.worker.spans.length > 1 ? c.span.name : view.peek().span };
    if (full.run !== view.peek().run || full.worker !== view.peek().worker || full.span !== view.peek().span) change(full, "quiet");
  });
}
