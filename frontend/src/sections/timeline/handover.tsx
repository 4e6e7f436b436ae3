// The card that saves a part of a timeline as a trace file, or opens it in Perfetto.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import * as api from "../../api/client";
import { human } from "../../units";
import { Switch } from "../../ui/controls";
import { downloadFrom } from "../../ui/download";
import { Popover } from "../../ui/popover";
import { methodOf } from "./align";
import type { TimelineModel } from "./model";
import { handOver, PERFETTO } from "./perfetto";
import { rangesOf, withBelow } from "./rows";
import type { Span } from "./viewport";

type Part = "view" | "area" | "all";

/** Events from which on a part is proposed instead of everything: about 200 MB of text. */
const MANY = 1_000_000;

function queryOf(model: TimelineModel, part: Part, split: boolean): { query: Record<string, string>; span: Span | null } {
  const [now, area] = [model.window.value, model.area.value];
  const span = part === "view" ? now : part === "area" ? area : null;
  const tracks = part === "area" && area?.paths.length ? rangesOf(withBelow(model.tracksOf(area), model.tracks.value)) : "";
  return { span, query: { ...(span && { start_ns: String(Math.floor(span.start)), end_ns: String(Math.ceil(span.end)) }), ...(tracks && { tracks }), ...(split && { split_overlaps: "1" }) } };
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
  const { query, span } = queryOf(model, part, false);
  const workers = model.shape.value?.alignment ?? [];
  const who = workers.length > 1 ? `${workers.length} workers` : (model.at.workers[0] ?? "");
  const name = `${who.replace(" ", "_") || "timeline"}.pt.trace.json.gz`;
  const lead = Math.max(0, ...model.tracks.value.filter((t) => t.events > 0).map((t) => -t.first_ns)); // times of a file for Perfetto begin at 0
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
    api.getTimelineFile(model.at, { ...queryOf(model, part, true).query, fp: model.shape.peek()!.fingerprint }).then((buffer) => send(tab, buffer, origin), (error: unknown) => setState(error instanceof Error ? error.message : String(error)));
  };
  const own = offline ? new URL(offline, document.baseURI).href : "";
  const choices = [{ value: "view", text: "View" }, ...(area ? [{ value: "area", text: "Selection" }] : []), { value: "all", text: "Everything" }];
  return (
    <div class="tl-menu tl-file">
      <Switch label="What to write" value={part} choices={choices} onPick={(value) => { setPart(value as Part); setReady(null); setState(""); }} />
      <p class="quiet">{span ? `${human(span.end - span.start, "ns")} of ${human(model.all.value.end, "ns")}` : `all ${human(model.shape.value?.events ?? 0, "count")} events`}{part === "all" && large ? ": more than Perfetto may open; the view is a smaller part." : ""}</p>
      {workers.length > 1 && <p class="quiet">{workers.length} workers in one file ({methodOf(model)}); processes carry their worker's name.</p>}
      <button type="button" class="button" onClick={() => downloadFrom(api.timelineAddress("export", model.at, query), name)}>Save as a trace file</button>
      <button type="button" class="button" onClick={() => open(own || PERFETTO)}>{ready ? "Open it now" : "Open in Perfetto"}</button>
      {own && !ready && <button type="button" class="button" onClick={() => open(PERFETTO)}>Open at ui.perfetto.dev</button>}
      <p class="quiet" role="status">{TEXT[state] ?? (state || (own ? HERE : OUTSIDE))}</p>
    </div>
  );
}
