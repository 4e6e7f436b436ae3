// The events in view as a table: of one row of the timeline, in order of time, however many. Also what is shown where no canvas can be.
import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import * as api from "../../api/client";
import type { EventPage, Track } from "../../api/timeline";
import { human, humanParts, NARROW } from "../../units";
import { Notice } from "../../ui/controls";
import { useRows } from "../table/virtual";
import type { TimelineModel } from "./model";

/** Rows that are requested at once. */
const PAGE = 200;
const SETTLES = 200;
const SCROLLS = 60;
const ROW = 30;
/** Rows of the table: no browser lays out a taller one than these are. */
const MOST = 500_000;
/** Depth up to which names are indented. */
const DEEPEST = 12;

/** What has come of the events of a row and window, by page. */
interface Loaded {
  of: string;
  total: number;
  pages: Map<number, EventPage["events"]>;
}

export function EventTable({ model, why }: { model: TimelineModel; why?: string }): JSX.Element {
  const tracks = model.tracks.value.filter((t) => t.lanes > 0);
  const [chosen, choose] = useState<number | null>(null);
  const selected = model.detail.value?.track;
  const track = tracks.find((t) => t.track === (chosen ?? selected)) ?? tracks.find((t) => t.kind === "stream") ?? tracks[0];
  const window = model.window.value;
  const [loaded, setLoaded] = useState<Loaded>({ of: "", total: 0, pages: new Map() });
  const [error, setError] = useState("");
  const scroller = useRef<HTMLDivElement>(null);
  const { total, pages } = loaded;
  const rows = useRows(Math.min(total, MOST), ROW, true, scroller, ROW);
  const [from, to] = [Math.floor(window.start), Math.ceil(window.end)];
  const key = JSON.stringify([track?.track, from, to]);
  const fresh = loaded.of === key;
  const ends = [rows.items[0]?.index ?? 0, rows.items.at(-1)?.index ?? 0].map((index) => Math.floor(index / PAGE));
  const lacking = fresh ? [...new Set(ends)].filter((page) => !pages.has(page)) : [0];
  useEffect(() => {
    if (!track || !lacking.length) return;
    const stop = new AbortController();
    const timer = globalThis.setTimeout(() => {
      const ask = (page: number): Promise<EventPage> => api.getEvents(model.at, { track: track.track, start_ns: from, end_ns: to, cursor: page ? String(page * PAGE) : "", limit: PAGE }, stop.signal);
      Promise.all(lacking.map(ask)).then((came) => {
        if (!fresh && scroller.current) scroller.current.scrollTop = 0;
        setLoaded({ of: key, total: came[0]!.total, pages: new Map([...(fresh ? pages : []), ...lacking.map((page, i) => [page, came[i]!.events] as const)]) });
        setError("");
      }, (e: unknown) => { if (!stop.signal.aborted) setError(e instanceof Error ? e.message : String(e)); });
    }, fresh ? SCROLLS : SETTLES);
    return () => { globalThis.clearTimeout(timer); stop.abort(); };
  }, [key, lacking.join()]);
  const at = model.selected.value;
  const mine = track && fresh && at?.path === track.path && at.start + at.duration >= from && at.start < to ? at : null;
  useEffect(() => {
    if (!track || !mine) return;
    for (const [page, events] of pages) {
      const place = events.findIndex((e) => e.start_ns === mine.start && e.duration_ns === mine.duration);
      if (place >= 0) return rows.scrollTo(page * PAGE + place);
    }
    const stop = new AbortController(); // it stands after all that begin before it
    api.getEvents(model.at, { track: track.track, start_ns: from, end_ns: Math.max(mine.start, from), limit: 1 }, stop.signal).then(({ total: before }) => rows.scrollTo(Math.min(before, MOST - 1)), () => undefined);
    return () => stop.abort();
  }, [fresh, key, mine?.start, mine?.duration]);
  if (!track) return <p class="prose pad">No row of this timeline has events.</p>;
  return (
    <div class="tl-table" aria-busy={!fresh}>
      {why && <Notice notice={{ level: "info", text: why }} />}
      {error && <Notice notice={{ level: "error", text: `The events could not be read: ${error}` }} />}
      <div class="tl-table-head">
        <label class="field">Row <select value={String(track.track)} onChange={(e) => choose(Number(e.currentTarget.value))}>{tracks.map((t) => <option value={String(t.track)}>{t.path}</option>)}</select></label>
        <span class="quiet" role="status">{total ? `${human(total, "count")} ${total === 1 ? "event" : "events"} in view${total > MOST ? `; the first ${human(MOST, "count")} are listed: zoom in for later ones` : ""}` : loaded.of ? "no event in view" : "reading…"}</span>
      </div>
      <Rows model={model} loaded={loaded} rows={rows} scroller={scroller} track={track} />
    </div>
  );
}

interface RowsProps {
  model: TimelineModel;
  loaded: Loaded;
  rows: ReturnType<typeof useRows>;
  scroller: { current: HTMLDivElement | null };
  track: Track;
}

/** Duration of rows in one unit, so that the points line up. */
function Rows({ model, loaded, rows, scroller, track }: RowsProps): JSX.Element {
  const { most, names } = useMemo(() => {
    const every = [...loaded.pages.values()].flat();
    return { most: every.reduce((top, e) => Math.max(top, e.duration_ns), 1), names: new Map(every.map((e) => [e.event, e.name])) };
  }, [loaded]);
  const at = model.selected.value;
  const table = model.names.value;
  const gap = (height: number): JSX.Element | null => (height > 0 ? <tr aria-hidden="true" class="gap"><td colSpan={5} style={{ height: `${height}px` }} /></tr> : null);
  return (
    <div class="tl-table-scroll" ref={scroller} tabIndex={0} role="region" aria-label={`Events of ${track.path}`}>
      <table class="table" aria-rowcount={loaded.total + 1}>
        <colgroup><col class="tl-col-time" /><col class="tl-col-length" /><col /><col class="tl-col-parent" /><col class="tl-col-depth" /></colgroup>
        <thead><tr><th scope="col" class="num" aria-sort="ascending">Start</th><th scope="col" class="num">Duration</th><th scope="col">Name</th><th scope="col">Inside of</th><th scope="col" class="num">Depth</th></tr></thead>
        <tbody>
          {gap(rows.before)}
          {rows.items.map(({ index }) => {
            const e = loaded.pages.get(Math.floor(index / PAGE))?.[index % PAGE];
            if (!e) return <tr key={index} aria-rowindex={index + 2} aria-busy><td colSpan={5} class="quiet">…</td></tr>;
            const on = at?.path === track.path && at.start === e.start_ns && at.duration === e.duration_ns;
            const parts = humanParts(e.duration_ns, "ns");
            return (
              <tr key={index} data-at={index} aria-rowindex={index + 2} class={on ? "selected" : ""} aria-selected={on} onClick={() => model.go(e)}>
                <td class="num">{human(e.start_ns, "ns")}</td>
                <td class="num"><span class="tl-mini" style={{ width: `${Math.max(1, (e.duration_ns / most) * 60)}px` }} />{parts.text}{NARROW}<span class="quiet">{parts.unit}</span></td>
                <td><button type="button" class="link code" data-tip={e.name} style={{ paddingLeft: `${Math.min(e.depth ?? 0, DEEPEST) * 10}px` }}>{table.shortOf(e.name)}</button></td>
                <td class="code quiet">{table.shortOf(names.get(e.parent ?? -1) ?? (e.depth ? "…" : ""))}</td>
                <td class="num">{e.depth ?? e.lane}</td>
              </tr>
            );
          })}
          {gap(rows.after)}
        </tbody>
      </table>
    </div>
  );
}
