// The selected area of a timeline as a report: the same sections as on any page.
import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect } from "preact/hooks";
import * as api from "../../api/client";
import type { Report, TableSection } from "../../api/types";
import { noteRequest } from "../../state/data";
import { tableOf } from "../../state/view";
import { Icon } from "../../ui/icons";
import { Text } from "../../ui/text";
import { moment } from "../../units";
import { cell } from "../table/model";
import type { TimelineModel } from "./model";
import { ofWorker, rangesOf, withBelow } from "./rows";
import { lengthOf } from "./viewport";

interface Answer {
  key: string;
  report: Report | null;
  error: string;
}

const answer = signal<Answer>({ key: "", report: null, error: "" });
const SETTLES = 120;
/** Parts of an area's length that its begin and end are told to. */
const FINE = 1_000;

/** What the report of an area is requested with; null where no row of the area belongs to the recording of the page. */
function queryOf(model: TimelineModel, worker: number): Record<string, string> | null {
  const area = model.area.value!;
  const tracks = model.tracks.value;
  const offset = model.shape.value?.alignment[worker]?.offset_ns ?? 0;
  const mine = ofWorker(withBelow(model.tracksOf(area), tracks), tracks, worker);
  if (area.paths.length && !mine.length) return null;
  return { start_ns: String(Math.round(area.start - offset)), end_ns: String(Math.round(area.end - offset)), ...(model.at.lay && area.paths.length && { lay: model.at.lay }), ...(area.paths.length && { tracks: rangesOf(mine) }) };
}

interface AreaProps {
  model: TimelineModel;
  where: api.Where | null;
  device: string;
  cards: (r: Report) => ComponentChildren;
}

export function AreaReport({ model, where, device, cards }: AreaProps): JSX.Element | null {
  const area = model.area.value;
  const shape = model.shape.value;
  const worker = Math.max(0, shape?.alignment.findIndex((a) => !where?.worker || a.worker === where.worker) ?? 0);
  const query = area && shape ? queryOf(model, worker) : null;
  const key = query ? JSON.stringify([where, query, device]) : "";
  useEffect(() => {
    if (!key || !query) return;
    const stop = new AbortController();
    const asked = { ...query, ...(device && { device_limits: device }) };
    const timer = window.setTimeout(() => {
      api.getReport("timeline_selection", where, asked, stop.signal).then((value) => {
        if (value.available) noteRequest(value, { name: "timeline_selection", where, query: asked });
        answer.value = { key, report: value.available ? value : null, error: value.available ? "" : value.because };
      }, (e: unknown) => { if (!stop.signal.aborted) answer.value = { key, report: null, error: e instanceof Error ? e.message : String(e) }; });
    }, SETTLES);
    return () => { window.clearTimeout(timer); stop.abort(); };
  }, [key]);
  const { report, error } = answer.value;
  const chosen = tableOf("groups").row;
  useEffect(() => {
    const groups = report?.sections.find((s): s is TableSection => s.kind === "table" && s.id === "groups");
    const name = groups && chosen ? cell(groups, "name", Number(chosen)) : null;
    if (area && name !== null && answer.peek().key === key) void model.finder.nameFrom(String(name), area.start);
  }, [chosen, report]);
  if (!area || !shape) return null;
  const waiting = answer.value.key !== key;
  return (
    <div class={`tl-area ${waiting ? "waiting" : ""}`} aria-busy={waiting}>
      <div class="tl-area-head">
        <h2>Selection <span class="subtitle">{moment(area.start, lengthOf(area) / FINE)} to {moment(area.end, lengthOf(area) / FINE)}, {area.paths.length ? (area.paths.length === 1 ? area.paths[0] : `${area.paths.length} rows`) : "all rows"}</span></h2>
        {report?.headline && <p class="tl-area-line"><Text text={report.headline} /></p>}
        <button type="button" class="text-button" data-tip="Zoom to it (F)" onClick={() => model.show({ start: area.start - lengthOf(area) * 0.05, end: area.end + lengthOf(area) * 0.05 }, true)}>Zoom to it</button>
        <button type="button" class="ghost" aria-label="Clear the selection" data-tip="Clear (Esc)" onClick={() => model.choose(null)}><Icon name="close" /></button>
      </div>
      {query === null ? <p class="prose">The rows of this area belong to another worker: choose it above.</p> : error && !waiting ? <p class="prose">{error}</p> : report ? cards(report) : <p class="quiet">Adding up…</p>}
    </div>
  );
}
