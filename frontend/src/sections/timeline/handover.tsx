// The card that saves a part of a timeline as a trace file, or opens it in Perfetto.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import * as api from "../../api/client";
import { human } from "../../units";
import { Switch } from "../../ui/controls";
import { downloadFrom } from "../../ui/download";
import { Popover } from "../../ui/popover";
import { methodOf } from "./align";
import type { TimelineModel } from "./model";
import { handOver, PERFETTO } from "./perfetto";
import { ofWorker, rangesOf, withBelow } from "./rows";
import type { Span } from "./viewport";

type Part = "view" | "area" | "all";

/** Events from which on a part is proposed instead of everything: about 200 MB of text. */
const MANY = 700_000;
const ALL = -1;
/** ms after which the size of another part is asked for. */
const SETTLES = 120;

/** What is written, of the worker at a place or of ALL: where it is asked for, and the window in its own times. null: no row of the selection is its. */
function wanted(model: TimelineModel, part: Part, worker: number): { at: api.Places; query: Record<string, string>; span: Span | null } | null {
  const [now, area, tracks] = [model.window.value, model.area.value, model.tracks.value];
  const chosen = part === "view" ? now : part === "area" ? area : null;
  const by = worker === ALL ? 0 : (model.shape.value?.alignment[worker]?.offset_ns ?? 0);
  const span = chosen && { start: chosen.start - by, end: chosen.end - by };
  const every = part === "area" && area?.paths.length ? withBelow(model.tracksOf(area), tracks) : null;
  const mine = every && (worker === ALL ? every : ofWorker(every, tracks, worker));
  if (mine && !mine.length) return null;
  const at = worker === ALL ? model.at : { ...model.at, al: "", workers: [model.at.workers[worker] ?? ""], spans: [model.at.spans[worker] ?? ""] };
  return { at, span, query: { ...(span && { start_ns: String(Math.floor(span.start)), end_ns: String(Math.ceil(span.end)) }), ...(mine && { tracks: rangesOf(mine) }) } };
}

/** Words for how large a part will be, once the server has said so. */
function useSize(at: api.Places | null, query: Record<string, string>): string {
  const [size, setSize] = useState({ key: "", text: "" });
  const key = at ? JSON.stringify([at, query]) : "";
  useEffect(() => {
    if (!at) return;
    const stop = new AbortController();
    const timer = window.setTimeout(() => {
      const say = (text: string): void => { if (!stop.signal.aborted) setSize({ key, text }); };
      api.getExportSize(at, query, stop.signal).then(({ events, bytes }) => say(`${human(events, "count")} events, \u2248\u202f${human(Number(bytes.toPrecision(2)), "B")} of text, a tenth of it compressed`), () => say(""));
    }, SETTLES);
    return () => { window.clearTimeout(timer); stop.abort(); };
  }, [key]);
  return size.key === key ? size.text : "";
}

const TEXT: Record<string, string> = {
  reading: "The trace is being written…", waiting: "Waiting for Perfetto to answer…", taken: "Perfetto has the trace.", silent: "Perfetto did not answer within 30 seconds: it may not be reachable from here. Save the trace and open it there.",
  closed: "The tab was closed before Perfetto answered.", blocked: "The browser blocked the new tab. The trace is ready: open it now.",
};

const OUTSIDE = "Perfetto is an outside page, loaded from ui.perfetto.dev. The trace is given to its tab and stays in this browser.";
const HERE = "Perfetto is served from here, by a package installed beside this one: nothing is loaded from outside. The trace stays in this browser; ui.perfetto.dev is an outside page.";

export function TraceFile({ model }: { model: TimelineModel }): JSX.Element {
  return (
    <Popover button="Trace file" class="button" label="Save as a trace file, or open in Perfetto" tip="Save the view, the selection or everything as a trace file; open it in Perfetto" align="right" disabled={!model.shape.value}>
      {() => <Card model={model} />}
    </Popover>
  );
}

function Card({ model }: { model: TimelineModel }): JSX.Element {
  const large = (model.shape.value?.events ?? 0) > MANY;
  const area = model.area.value;
  const [part, setPart] = useState<Part>(area ? "area" : large ? "view" : "all");
  const [state, setState] = useState("");
  const [ready, setReady] = useState<ArrayBuffer | null>(null);
  const [worker, setWorker] = useState(ALL);
  const workers = model.shape.value?.alignment ?? [];
  const whole = wanted(model, part, worker);
  const { query, span, at } = whole ?? { query: {}, span: null, at: model.at };
  const size = useSize(whole && at, query);
  const who = worker !== ALL ? (workers[worker]?.worker ?? "") : workers.length > 1 ? `${workers.length} workers` : (model.at.workers[0] ?? "");
  const name = `${who.replace(" ", "_") || "timeline"}.pt.trace.json.gz`;
  const by = worker === ALL ? 0 : (workers[worker]?.offset_ns ?? 0);
  const own = model.tracks.value.filter((t) => t.events > 0 && (worker === ALL || t.worker === worker));
  const lead = Math.max(0, ...own.map((t) => by - t.first_ns)); // times of a file for Perfetto begin at 0
  const offline = model.shape.value?.perfetto;
  const send = async (tab: Window | null, buffer: ArrayBuffer, origin: string): Promise<void> => {
    if (!tab) {
      setReady(buffer);
      return setState("blocked");
    }
    setState("waiting");
    setState(await handOver(tab, { buffer, title: `${model.at.run} ${who}`.trim(), fileName: name, view: span && { start: span.start + lead, end: span.end + lead } }, origin));
  };
  const open = (address: string): void => {
    const tab = window.open(address);
    const origin = new URL(address).origin;
    if (ready) return void send(tab, ready, origin);
    setState("reading");
    api.getTimelineFile(at, { ...query, split_overlaps: 1, ...(worker === ALL && { fp: model.shape.peek()!.fingerprint }) }).then((buffer) => send(tab, buffer, origin), (error: unknown) => setState(error instanceof Error ? error.message : String(error)));
  };
  const here = offline ? new URL(offline, document.baseURI).href : "";
  const again = (): void => { setReady(null); setState(""); };
  const choices = [{ value: "view", text: "View" }, ...(area ? [{ value: "area", text: "Selection" }] : []), { value: "all", text: "Everything" }];
  return (
    <div class="tl-menu tl-file">
      <Switch label="What to write" value={part} choices={choices} onPick={(value) => { setPart(value as Part); again(); }} />
      {workers.length > 1 && (
        <label class="field">Workers{" "}
          <select value={String(worker)} onChange={(e) => { setWorker(Number(e.currentTarget.value)); again(); }}>
            <option value={String(ALL)}>all {workers.length} in one file</option>
            {workers.map((w, k) => <option value={String(k)}>{w.worker || "recording"} alone</option>)}
          </select>
        </label>
      )}
      <p class="quiet">{span ? `${human(span.end - span.start, "ns")} of ${human(model.all.value.end, "ns")}` : "The whole recording"}{size && `: ${size}`}.{part === "all" && large ? " That is more than Perfetto may open; the view is a smaller part." : ""}</p>
      {workers.length > 1 && worker === ALL && <p class="quiet">On one clock ({methodOf(model)}), processes named after their worker: for other viewers. To open a file here again, save one worker alone.</p>}
      {!whole && <p class="warn-text">No row of the selection is of this worker.</p>}
      <button type="button" class="button" disabled={!whole} onClick={() => downloadFrom(api.timelineAddress("export", at, query), name)}>Save as a trace file</button>
      <button type="button" class="button" disabled={!whole} onClick={() => open(here || PERFETTO)}>{ready ? "Open it now" : "Open in Perfetto"}</button>
      {here && !ready && <button type="button" class="button" disabled={!whole} onClick={() => open(PERFETTO)}>Open at ui.perfetto.dev</button>}
      <p class="quiet" role="status">{TEXT[state] ?? (state || (here ? HERE : OUTSIDE))}</p>
    </div>
  );
}
