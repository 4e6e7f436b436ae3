// The events in view as a table: of one row of the timeline, in order of time. Also what is shown where no canvas can be.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import * as api from "../../api/client";
import type { EventPage, Track } from "../../api/timeline";
import { human, humanParts, NARROW } from "../../units";
import { Notice } from "../../ui/controls";
import type { TimelineModel } from "./model";

const PAGE = 200;
const SETTLES = 200;
/** Depth up to which names are indented. */
const DEEPEST = 12;

export function EventTable({ model, why }: { model: TimelineModel; why?: string }): JSX.Element {
  const tracks = model.tracks.value.filter((t) => t.lanes > 0);
  const [chosen, choose] = useState<number | null>(null);
  const selected = model.detail.value?.track;
  const track = tracks.find((t) => t.track === (chosen ?? selected)) ?? tracks.find((t) => t.kind === "stream") ?? tracks[0];
  const window = model.window.value;
  const [offset, setOffset] = useState(0);
  const [page, setPage] = useState<{ of: string; value: EventPage } | null>(null);
  const [error, setError] = useState("");
  const [from, to] = [Math.max(0, Math.floor(window.start)), Math.ceil(window.end)];
  const key = JSON.stringify([track?.track, from, to, offset]);
  useEffect(() => {
    if (!track) return;
    const stop = new AbortController();
    const timer = globalThis.setTimeout(() => {
      api.getEvents(model.at, { track: track.track, start_ns: from, end_ns: Math.max(to, from), cursor: offset ? String(offset) : "", limit: PAGE }, stop.signal)
        .then((value) => { setPage({ of: key, value }); setError(""); }, (e: unknown) => { if (!stop.signal.aborted) setError(e instanceof Error ? e.message : String(e)); });
    }, SETTLES);
    return () => { globalThis.clearTimeout(timer); stop.abort(); };
  }, [key]);
  const at = model.selected.value;
  const mine = track && at?.path === track.path && at.start + at.duration >= from && at.start < to ? at : null;
  useEffect(() => {
    if (!track || !mine || page?.value.events.some((e) => e.start_ns === mine.start && e.duration_ns === mine.duration)) return;
    const stop = new AbortController(); // the page that holds what was selected elsewhere: that after all that begin before it
    api.getEvents(model.at, { track: track.track, start_ns: from, end_ns: Math.max(mine.start, from), limit: 1 }, stop.signal).then(({ total }) => setOffset(Math.floor(total / PAGE) * PAGE), () => undefined);
    return () => stop.abort();
  }, [track?.track, from, to, mine?.start, mine?.duration]);
  if (!track) return <p class="prose pad">No row of this timeline has events.</p>;
  const total = page?.value.total ?? 0;
  return (
    <div class="tl-table" aria-busy={page?.of !== key}>
      {why && <Notice notice={{ level: "info", text: why }} />}
      {error && <Notice notice={{ level: "error", text: `The events could not be read: ${error}` }} />}
      <div class="tl-table-head">
        <label class="field">Row <select value={String(track.track)} onChange={(e) => { choose(Number(e.currentTarget.value)); setOffset(0); }}>{tracks.map((t) => <option value={String(t.track)}>{t.path}</option>)}</select></label>
        <span class="quiet">{total ? `${human(Math.min(offset + 1, total), "count")} to ${human(Math.min(offset + PAGE, total), "count")} of ${human(total, "count")} in view` : page ? "no event in view" : "reading…"}</span>
        <button type="button" class="button" disabled={offset === 0} onClick={() => setOffset(Math.max(0, offset - PAGE))}>Previous</button>
        <button type="button" class="button" disabled={offset + PAGE >= total} onClick={() => setOffset(offset + PAGE)}>Next</button>
      </div>
      <Rows model={model} page={page?.value ?? null} track={track} />
    </div>
  );
}

/** Duration of rows in one unit, so that the points line up. */
function Rows({ model, page, track }: { model: TimelineModel; page: EventPage | null; track: Track }): JSX.Element {
  const most = Math.max(1, ...(page?.events.map((e) => e.duration_ns) ?? [1]));
  const at = model.selected.value;
  const table = model.names.value;
  const names = new Map((page?.events ?? []).map((e) => [e.event, e.name]));
  const scroller = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const [el, row] = [scroller.current, scroller.current?.querySelector<HTMLElement>("tr.selected")];
    if (el && row && (row.offsetTop < el.scrollTop + row.offsetHeight || row.offsetTop + row.offsetHeight > el.scrollTop + el.clientHeight)) el.scrollTop = row.offsetTop - el.clientHeight / 2;
  }, [page, at]);
  return (
    <div class="tl-table-scroll" ref={scroller} tabIndex={0} role="region" aria-label={`Events of ${track.path}`}>
      <table class="table">
        <colgroup><col class="tl-col-time" /><col class="tl-col-length" /><col /><col class="tl-col-parent" /><col class="tl-col-depth" /></colgroup>
        <thead><tr><th scope="col" class="num" aria-sort="ascending">Start</th><th scope="col" class="num">Duration</th><th scope="col">Name</th><th scope="col">Inside of</th><th scope="col" class="num">Depth</th></tr></thead>
        <tbody>
          {page?.events.map((e) => {
            const on = at?.path === track.path && at.start === e.start_ns && at.duration === e.duration_ns;
            const parts = humanParts(e.duration_ns, "ns");
            return (
              <tr class={on ? "selected" : ""} aria-selected={on} onClick={() => model.go(e)}>
                <td class="num">{human(e.start_ns, "ns")}</td>
                <td class="num"><span class="tl-mini" style={{ width: `${Math.max(1, (e.duration_ns / most) * 60)}px` }} />{parts.text}{NARROW}<span class="quiet">{parts.unit}</span></td>
                <td><button type="button" class="link code" data-tip={e.name} style={{ paddingLeft: `${Math.min(e.depth ?? 0, DEEPEST) * 10}px` }}>{table.shortOf(e.name)}</button></td>
                <td class="code quiet">{table.shortOf(names.get(e.parent ?? -1) ?? (e.depth ? "…" : ""))}</td>
                <td class="num">{e.depth ?? e.lane}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}
