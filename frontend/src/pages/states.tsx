// States shown instead of a page: nothing recorded yet, reading, not available, not found, failed.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { ApiError, Where } from "../api/client";
import type { Progress, Runs, Span, Unavailable, Worker } from "../api/types";
import { cancel, catalog, chosen, info, pages, rescan, runsWith } from "../state/data";
import { type Failure, REMEDY } from "../state/failures";
import { entriesOf } from "../state/family";
import { fieldOfReport } from "../state/fields";
import type { Choice } from "../state/select";
import { emptyView } from "../state/codec";
import { pageView, view } from "../state/view";
import { human, NARROW, number } from "../units";
import { Copy } from "../ui/copy";
import { Notice, Skeleton } from "../ui/controls";
import { Icon } from "../ui/icons";
import { ViewLink } from "../ui/link";
import { Middle, Text } from "../ui/text";
import { Fields, ofPage } from "./fields";
import { isMemoryOnly } from "./kind";
import { hasTabs } from "./tabs";
import { argumentSnippet, captureSnippet, recordSnippet, Snippet } from "./code";

const sentence = (text: string): string => (text[0]?.toUpperCase() ?? "") + text.slice(1);
const ms = (value: number | undefined): string => human((value ?? 0) * 1e6, "ns");
const plural = (n: number, word: string): string => `${number(n, 0)} ${n === 1 ? word : word.endsWith("y") ? word.slice(0, -1) + "ies" : word + "s"}`;

/** Shows its children after a delay, so that quick answers do not flicker. */
export function Delayed({ delay = 150, children }: { delay?: number; children: ComponentChildren }): JSX.Element | null {
  const [on, setOn] = useState(false);
  useEffect(() => {
    const timer = window.setTimeout(() => setOn(true), delay);
    return () => window.clearTimeout(timer);
  }, []);
  return on ? <>{children}</> : null;
}

const KINDS: [string, string][] = [["*.pt.trace.json, .gz", "PyTorch profiler"], ["any .json with traceEvents", "found by content"], ["*.sol.jsonl, .gz", "SOL capture"], ["memory snapshots", "with or without a trace"]];

export function Empty({ runs }: { runs: Runs }): JSX.Element {
  const { scan, rejected = [] } = runs;
  const roots = scan.roots ?? [];
  const trace = recordSnippet(roots[0] ?? "runs/my-run");
  const capture = captureSnippet(roots[0] ?? "runs/my-run");
  const scanning = scan.state === "scanning";
  const lines = rejected.map((r) => [r.file, r.size ? human(r.size, "B") : "", r.what ?? "", r.note ?? ""].join("\t")).join("\n");
  return (
    <div class="state">
      <div class="card split-card">
        <div class="split-main">
          <h1>{scanning ? "Looking for recordings" : "No recording in this logdir yet"}</h1>
          <p class="prose">
            {scanning
              ? `Scanned ${plural(scan.files ?? 0, "file")} in ${plural(scan.directories ?? 0, "directory")} so far.`
              : `Scanned ${plural(scan.files ?? 0, "file")} in ${plural(scan.directories ?? 0, "directory")} in ${ms(scan.elapsed_ms)} and found no profiler trace and no SOL capture. New files appear here on their own.`}
          </p>
          {(runs.notes ?? []).map((text) => <Notice notice={{ level: "info", text }} />)}
          {scan.stopped && <Notice notice={{ level: "warn", text: `The scan stopped early: ${scan.stopped}` }} />}
          {(scan.errors ?? []).map((e) => <Notice notice={{ level: "error", text: typeof e === "string" ? e : [e.message, e.hint].filter(Boolean).join(" ") }} />)}
          <div class="ways">
            <div>
              <h2>Record a few steps with the profiler</h2>
              <p class="form-note">Every operator and kernel of a few steps, with its time.</p>
              <Snippet code={trace.code} mark={trace.mark} />
            </div>
            <div>
              <h2>Or record the whole job with a SOL capture</h2>
              <p class="form-note">The time of every iteration, and the work of one in a hundred. Cheap enough to leave on; one run may have both.</p>
              <Snippet code={capture.code} mark={capture.mark} />
            </div>
          </div>
        </div>
        <div class="split-side">
          <PagesWithoutRecording />
          <h2>What counts as a recording</h2>
          <ul class="side-list">{KINDS.map(([what, note]) => <li><Icon name="file" /><span>{what}</span><span class="note">{note}</span></li>)}</ul>
          <h2>Scanned folders</h2>
          <ul class="side-list">{roots.map((root) => <li><Icon name="folder" /><span class="mono"><Middle text={root} /></span>{roots.length === 1 && <span class="note">{plural(scan.files ?? 0, "file")}, {plural(scan.directories ?? 0, "directory")}</span>}</li>)}</ul>
          <button type="button" class="button" onClick={() => void rescan()}><Icon name="again" />Scan again</button>
        </div>
      </div>
      {rejected.length > 0 && (
        <div class="card table-card">
          <div class="card-head">
            <div class="card-title"><h2>Files that are no recording</h2><span class="subtitle">{rejected.length} of {plural(scan.files ?? rejected.length, "file")}</span></div>
            <div class="card-tools"><Copy class="text-button accent" what="the list" text={() => lines}>Copy as text</Copy></div>
          </div>
          <div class="table-scroll">
            <table class="table plain">
              <thead><tr><th scope="col">File</th><th scope="col" class="right">Size</th><th scope="col">What it is</th><th scope="col" /></tr></thead>
              <tbody>
                {rejected.slice(0, 300).map((r) => (
                  <tr><td><span class="symbol"><Icon name="file" size={14} /><span class="mono"><Middle text={r.file} /></span></span></td><td class="right">{typeof r.size === "number" ? human(r.size, "B") : "—"}</td><td>{r.what}</td><td class="quiet">{r.note}</td></tr>
                ))}
              </tbody>
            </table>
          </div>
          {rejected.length > 300 && <div class="table-foot">{rejected.length - 300} more</div>}
        </div>
      )}
    </div>
  );
}

/** Links to the pages that need no recording. */
function PagesWithoutRecording(): JSX.Element | null {
  const pages = catalog.value.filter((a) => a.alone);
  if (!pages.length) return null;
  return (
    <>
      <h2>Without a recording</h2>
      <ul class="side-list wrapped">{pages.map((a) => <li><Icon name={a.icon ?? a.name} /><ViewLink view={pageView(a.name)} class="link">{a.title}</ViewLink><span class="note">{a.question}</span></li>)}</ul>
    </>
  );
}

const STATE: Record<string, string> = { new: "not read yet", queued: "queued", loading: "reading", ready: "ready", error: "failed" };

export function Loading({ progress, since }: { progress: Progress | null; since: number }): JSX.Element {
  const c = chosen.value;
  const p = progress ?? {};
  const seconds = p.elapsed_s ?? (performance.now() - since) / 1000;
  const rate = p.bytes && seconds > 0.3 ? p.bytes / seconds : 0;
  const left = rate && p.total && p.bytes && p.bytes < p.total ? (p.total - p.bytes) / rate : null;
  const share = p.total ? Math.min(1, (p.bytes ?? 0) / p.total) : 0;
  const files = p.of ? [] : (c?.run.workers ?? []).flatMap((w) => w.spans.map((s) => ({ w, s }))).filter(({ s, w }) => (w === c?.worker && s === c.span) || s.state === "loading" || s.state === "queued" || s.state === "error").slice(0, 12);
  const bits = [
    p.total ? `${human(p.bytes ?? 0, "B")} of ${human(p.total, "B")}` : "",
    rate ? human(rate, "B/s") : "",
    left !== null ? `about ${Math.max(1, Math.round(left))}${NARROW}s left` : "",
    p.events ? `${number(p.events, 0)} events` : "",
    p.queue_position ? `place ${p.queue_position} in the queue` : "",
  ].filter(Boolean);
  return (
    <div class="loading">
      <div class="card" role="status" aria-live="polite">
        <div class="loading-head">
          <h1>Reading {p.of ? `the baseline ${p.of}` : c ? c.run.name : "the recording"}</h1>
          <span class="quiet">{bits.join(", ")}{bits.length ? ". " : ""}The first open is slow, the next takes under a second.</span>
          <button type="button" class="button" onClick={() => void cancel()}>Cancel</button>
        </div>
        <div class="progress" role="progressbar" aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.round(share * 100)} aria-label="Bytes read"><span style={{ width: `${share * 100}%` }} /></div>
        <ul class="files">{files.map(({ w, s }) => <FileLine w={w} s={s} share={w === c?.worker && s === c?.span ? share : s.state === "ready" ? 1 : 0} stage={w === c?.worker && s === c?.span ? p.stage : undefined} />)}</ul>
      </div>
      <Skeleton />
    </div>
  );
}

function FileLine({ w, s, share, stage }: { w: Worker; s: Span; share: number; stage?: string | undefined }): JSX.Element {
  const bad = s.state === "error";
  return (
    <li class={bad ? "bad" : s.state === "ready" ? "done" : ""}>
      <span class="mono"><Middle text={w.name} tip={s.file ?? s.name} /></span>
      <span class="progress small"><span style={{ width: `${share * 100}%` }} /></span>
      <span class="file-size">{s.size ? human(s.size, "B") : ""}</span>
      <span class="quiet">{bad ? s.error?.message : stage || STATE[s.state ?? "new"]}</span>
    </li>
  );
}

/** In a page that was saved as a file: what is not in it, and the same page as it is there. */
export function NotInFile({ error }: { error: ApiError }): JSX.Element {
  const there = info.value?.available !== false;
  return (
    <div class="page">
      {!hasTabs() && <div class="page-head"><h1>{info.value?.title}</h1></div>}
      <div class="state">
        <div class="card">
          <h2>{there ? error.body.message : "This page is not in this file."}</h2>
          <p class="prose">{error.body.hint}</p>
          {there && <ViewLink view={pageView(view.value.page)} class="link">Show the page as it is in this file</ViewLink>}
        </div>
      </div>
    </div>
  );
}

export function NotAvailable({ r }: { r: Unavailable }): JSX.Element {
  const argument = r.argument || /`([^`]+)`/.exec(r.record_it_with)?.[1] || "";
  const recorded = chosen.value?.span.kind === "sol_capture" && !!chosen.value.span.companion; // the trace that the hint speaks of is there
  const snippet = argument && !(recorded && argument === "profile=True") ? argumentSnippet(argument, chosen.value?.span.kind === "sol_capture") : null;
  const can = entriesOf(catalog.value).filter((a) => a.available !== false && a.name !== r.analysis && a.group !== "foot");
  return (
    <>
      <div class="page-head"><div>{!hasTabs() && <h1>{r.title}</h1>}<p class="headline">{r.fields ? "Not available for this choice." : "Not available for this recording."}</p></div>{r.fields && <Chosen r={r} />}</div>
      <div class="state">
        <div class="card split-card">
          <div class="split-main">
            <h2 class="large"><Text text={sentence(r.because)} /></h2>
            {r.record_it_with && <p class="prose"><Text text={sentence(r.record_it_with)} /></p>}
            <p class="prose">No estimate is shown instead.</p>
            {snippet && <><h2>Record the next run with</h2><Snippet code={snippet.code} mark={snippet.mark} /></>}
          </div>
          <div class="split-side">
            <OtherRecording />
            {!!can.length && <h2>Pages that this recording has data for</h2>}
            <ul class="side-list wrapped">{can.map((a) => <li><Icon name={a.icon ?? a.name} /><ViewLink view={pageView(a.name)} class="link">{a.title}</ViewLink><span class="note">{a.question}</span></li>)}</ul>
            <RunsWithPage name={r.analysis} />
          </div>
        </div>
      </div>
    </>
  );
}

/** The fields whose values led to a page without data, to choose others. */
function Chosen({ r }: { r: Unavailable }): JSX.Element {
  const asked = view.value.query;
  return <Fields fields={ofPage(info.value?.fields).filter((f) => r.fields?.[f.name]).flatMap((f) => fieldOfReport(f, r.fields?.[f.name], asked[f.name] !== undefined) ?? [])} />;
}

/** The same page of the other recording of this worker. */
function OtherRecording(): JSX.Element | null {
  const other = chosen.value?.span.companion;
  if (!other) return null;
  const memory = isMemoryOnly(chosen.value!.span);
  const trace = chosen.value?.span.kind === "sol_capture";
  return (
    <>
      <h2>Other recording of this worker</h2>
      <ul class="side-list"><li><Icon name="file" /><ViewLink view={{ ...view.value, worker: other.worker, span: other.span, step: "", query: {}, tables: {}, figures: {} }} class="link">{memory ? "This page of the recording that also shows this memory" : trace ? "This page of the profiler trace" : "This page of the SOL capture"}</ViewLink><span class="note">{other.span}</span></li></ul>
    </>
  );
}

/** Other runs that have been read and have data for this page. */
function RunsWithPage({ name }: { name: string }): JSX.Element | null {
  const [found, setFound] = useState<Where[]>([]);
  useEffect(() => {
    let live = true;
    void runsWith(name).then((others) => { if (live) setFound(others); });
    return () => { live = false; };
  }, [name]);
  if (!found.length) return null;
  return (
    <>
      <h2>Runs that have data for this page</h2>
      <ul class="side-list">{found.map((w) => <li><Icon name="folder" /><ViewLink view={{ ...pageView(name), run: w.run, worker: w.worker ?? "", span: w.span ?? "", step: "", capture: "" }} class="link">{w.run || "."}</ViewLink><span class="note">{w.worker}</span></li>)}</ul>
    </>
  );
}

export function NotFound({ absent }: { absent: Extract<Choice, { state: "absent" }> }): JSX.Element {
  const to = (name: string) => ({ ...view.value, ...(absent.what === "run" ? { run: name, worker: "", span: "", step: "", capture: "" } : absent.what === "worker" ? { worker: name, span: "", step: "" } : { span: name }) });
  return (
    <div class="state">
      <div class="card pad">
        <h1>Not found here</h1>
        <p class="prose">
          This link shows the {absent.what} <code>{absent.name}</code>{absent.within && <> of <code>{absent.within}</code></>}, and this logdir has none of that name. No other one is shown instead.
        </p>
        <h2>{absent.near.length ? "Similar names" : `There is no ${absent.what} here yet`}</h2>
        <ul class="side-list">{absent.near.map((name) => <li><Icon name="folder" /><ViewLink view={to(name)} class="link"><span class="mono">{name || "."}</span></ViewLink></li>)}</ul>
        <div class="buttons"><button type="button" class="button" onClick={() => void rescan()}><Icon name="again" />Scan again</button><ViewLink view={emptyView()} class="button">Start from the first run</ViewLink></div>
      </div>
    </div>
  );
}

export function Failed({ error, what, retry }: { error: ApiError; what: string; retry: () => void }): JSX.Element {
  const { code, message, hint, file, field } = error.body;
  const details = [`${what}: ${message}`, hint, file && `file: ${file}`, field && `field: ${field}`, `code: ${code}, status ${error.status}`].filter(Boolean).join("\n");
  return (
    <div class="state">
      <div class="card pad failed" role="alert">
        <h1><Icon name="error" />{what}</h1>
        <p class="prose"><Text text={sentence(message)} /></p>
        {hint && <p class="prose"><Text text={sentence(hint)} /></p>}
        {file && <p class="prose quiet">File <code>{file}</code></p>}
        <div class="buttons"><button type="button" class="button primary" onClick={retry}>Try again</button><Copy what="the details" text={() => details}>Copy details</Copy></div>
      </div>
      {pages.value.state === "ready" && <p class="quiet center">Other pages are not touched by this.</p>}
    </div>
  );
}

/** In place of a page whose analysis the server could not load. */
export function NotLoaded({ failure: { name, reason } }: { failure: Failure }): JSX.Element {
  return (
    <div class="state">
      <div class="card pad failed" role="alert">
        <h1><Icon name="error" />Analysis "{name}" failed to load</h1>
        <p class="prose"><code>{reason}</code></p>
        <p class="prose"><Text text={REMEDY} /></p>
        <div class="buttons"><Copy what="the error" text={() => `${name}: ${reason}`}>Copy error</Copy></div>
      </div>
      <p class="quiet center">The other pages work.</p>
    </div>
  );
}
