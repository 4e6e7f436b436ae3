// A timeline: tools, plot, what is selected. Small inside other pages, whole on its own.
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Places } from "../../api/client";
import { inFile, LIVE } from "../../api/file";
import type { Category } from "../../api/timeline";
import type { Report, TimelineSection } from "../../api/types";
import { choice, requestOf } from "../../state/data";
import { spanText } from "./place";
import { change, linkView, view } from "../../state/view";
import { human, moment } from "../../units";
import { Notice, Switch } from "../../ui/controls";
import { Icon } from "../../ui/icons";
import { ViewLink } from "../../ui/link";
import { Popover } from "../../ui/popover";
import { Alignment } from "./align";
import { AreaReport } from "./area";
import { lettersOf, stripeOn, stripesOf } from "./colors";
import { Detail } from "./detail";
import { EventTable } from "./events";
import { TraceFile } from "./handover";
import { HoverCard } from "./hover";
import { KEYS, onKey } from "./keys";
import { gapText } from "./labels";
import { TimelineModel } from "./model";
import { fillOf, Plot } from "./plot";
import { lengthOf } from "./viewport";

interface TimelineProps {
  s: TimelineSection;
  report: Report;
  /** sections of a report, as on its own page: of the timeline's page */
  cards?: (r: Report) => ComponentChildren;
}

/** px of the whole timeline's rows: at least, and left free of the window. */
const LEAST = 240;
const AROUND = 330;
const MOST_WORKERS = 64;
/** Parts of a stretch that its begin and end are told to, in words. */
const FINE = 1_000;
const canDraw = (): boolean => {
  try {
    return !!document.createElement("canvas").getContext("2d");
  } catch {
    return false;
  }
};

/** Workers whose timelines stand under each other, how they are aligned, and the layout that the server makes. */
function placesOf(report: Report, keys: Readonly<Record<string, string>>): Places {
  const where = requestOf(report)?.where;
  const capture = where?.capture ?? "";
  const all = keys["lay"] === "worker";
  const lay = keys["lay"] === "compact" ? "compact" : "";
  const now = choice.value?.state === "chosen" ? choice.value.chosen : null;
  const others = all && now ? now.run.workers.slice(0, MOST_WORKERS) : [];
  if (others.length > 1) return { run: now!.run.name, capture, al: keys["al"] ?? "", lay, workers: others.map((w) => w.name), spans: others.map((w) => (w.name === where?.worker ? (where.span ?? "") : (w.spans.at(-1)?.name ?? ""))) };
  return { run: where?.run ?? "", capture, al: "", lay, workers: [where?.worker ?? ""], spans: [where?.span ?? ""] };
}

export function Timeline({ s, report, cards }: TimelineProps): JSX.Element {
  const embedded = report.analysis !== "timeline";
  const places = placesOf(report, embedded ? {} : view.value.timeline);
  const model = useMemo(() => new TimelineModel(s, places, embedded), []);
  useEffect(() => {
    model.start();
    return () => model.stop();
  }, []);
  const key = JSON.stringify([places, s.start_ns, s.end_ns]);
  const before = useRef(key);
  useEffect(() => {
    if (before.current === key) return;
    before.current = key;
    model.update(s, places);
  }, [key]);
  const drawable = useMemo(canDraw, []);
  if (embedded) return <Small s={s} model={model} drawable={drawable} />;
  return <Whole s={s} model={model} report={report} cards={cards} drawable={drawable} />;
}

function Small({ s, model, drawable }: { s: TimelineSection; model: TimelineModel; drawable: boolean }): JSX.Element {
  const { shown, shape } = { shown: model.rows.shown.value, shape: model.shape.value };
  const link = linkView({ analysis: "timeline", query: s.start_ns != null && s.end_ns != null ? { t: spanText(model.window.value), ...(s.highlight?.[0] && { area: spanText({ start: s.highlight[0][0], end: s.highlight[0][1] }) }) } : {} });
  const height = Math.min(s.height || 220, Math.max(40, shown.height + shown.pinnedHeight));
  return (
    <div class="tl tl-small" data-ready={shape ? "" : undefined}>
      <Failure model={model} />
      {drawable ? <Plot model={model} height={height} onOpen={() => change(link, "push")} /> : <EventTable model={model} why={NO_CANVAS} />}
      <div class="tl-foot"><span class="quiet">{model.highlight.map(([, , word]) => word).filter(Boolean).join(" · ")}</span><ViewLink view={link} class="link">Open in the timeline</ViewLink></div>
      <HoverCard model={model} />
    </div>
  );
}

const NO_CANVAS = "This browser gives no canvas to draw on, so the events are listed instead.";

function Failure({ model }: { model: TimelineModel }): JSX.Element | null {
  const error = model.error.value;
  if (!error) return null;
  return (
    <Notice notice={{ level: "error", text: `**The timeline could not be read:** ${error.body.message} ${error.body.hint ?? ""}` }}>
      <button type="button" class="link" onClick={() => model.again()}>Try again</button>
    </Notice>
  );
}

function Whole({ s, model, report, cards, drawable }: TimelineProps & { model: TimelineModel; drawable: boolean }): JSX.Element {
  const root = useRef<HTMLDivElement>(null);
  const searchBox = useRef<HTMLInputElement>(null);
  const trackBox = useRef<HTMLInputElement>(null);
  const [table, setTable] = useState(!drawable);
  const [help, setHelp] = useState(false);
  const shape = model.shape.value;
  const shown = model.rows.shown.value;
  const height = Math.max(LEAST, Math.min(shown.height + shown.pinnedHeight, s.height || window.innerHeight - AROUND));
  const keys = (event: KeyboardEvent): void => {
    if (help && event.key === "Escape") {
      setHelp(false);
      return event.preventDefault();
    }
    const done = onKey(event, model, { search: () => searchBox.current?.focus(), findTrack: () => trackBox.current?.focus(), help: () => setHelp(!help), table: () => setTable(!table) });
    if (!done) return;
    event.preventDefault();
    event.stopPropagation();
  };
  const request = requestOf(report);
  return (
    <div class="tl" ref={root} tabIndex={0} role="group" aria-label="Timeline" aria-describedby="tl-live" onKeyDown={keys} data-ready={shape ? "" : undefined} onPointerDown={(e) => { if (!(e.target as HTMLElement).closest("input,button,a,select,table")) root.current?.focus({ preventScroll: true }); }}>
      <Failure model={model} />
      {model.notice.value && <Notice notice={{ level: "warn", text: model.notice.value }}><button type="button" class="link" onClick={() => { model.notice.value = ""; }}>Dismiss</button></Notice>}
      <Tools model={model} searchBox={searchBox} trackBox={trackBox} table={table} onTable={() => setTable(!table)} onHelp={() => setHelp(!help)} />
      {shape && <Clock model={model} />}
      <div class={`tl-progress ${model.waiting.value ? "on" : ""}`} />
      {help && <KeyCard onClose={() => setHelp(false)} />}
      {drawable && <Plot model={model} height={height} />}
      {shape && !shape.events && <p class="prose pad">This recording has no event with a time. Record at least one step with the profiler.</p>}
      <p class="sr" id="tl-live" aria-live="polite">{liveText(model)}</p>
      {table && <EventTable model={model} why={drawable ? "" : NO_CANVAS} />}
      <HoverCard model={model} />
      <Detail model={model} />
      <AreaReport model={model} where={request?.where ?? null} device={view.value.device} cards={cards ?? (() => null)} />
    </div>
  );
}

/** View and selection in words. */
function liveText(model: TimelineModel): string {
  const [now, event, area] = [model.window.value, model.detail.value, model.area.value];
  const track = event && model.tracks.value[event.track];
  const [one, other] = model.compared.value.map((e) => ({ start: e.start, end: e.start + e.duration }));
  const apart = one && other && gapText(one, other);
  return [
    `Shows ${moment(now.start, lengthOf(now) / FINE)} to ${moment(now.end, lengthOf(now) / FINE)}.`,
    event && `Selected: ${event.name}, ${human(event.duration_ns, "ns")}, starts at ${moment(event.start_ns, lengthOf(now) / FINE)}, on ${track?.path ?? ""}, depth ${event.depth}.`,
    apart && `Measured: ${apart}.`,
    area && `Area: ${moment(area.start, lengthOf(area) / FINE)} to ${moment(area.end, lengthOf(area) / FINE)}.`,
  ].filter(Boolean).join(" ");
}

interface ToolsProps {
  model: TimelineModel;
  searchBox: { current: HTMLInputElement | null };
  trackBox: { current: HTMLInputElement | null };
  table: boolean;
  onTable: () => void;
  onHelp: () => void;
}

function Tools({ model, searchBox, trackBox, table, onTable, onHelp }: ToolsProps): JSX.Element {
  const shape = model.shape.value;
  const tally = model.tally.value;
  const patterns = model.patterns.value;
  const letters = lettersOf((shape?.categories ?? []).map((c) => c.label));
  const categories = shownOf(shape?.categories ?? [], new Set(model.names.value.categories));
  return (
    <div class="tl-tools">
      <SearchField model={model} box={searchBox} />
      <label class="find tl-track-find" data-tip="Rows by name, worker, process, device or kind (T)">
        <Icon name="filter" /><input ref={trackBox} class="tl-input" type="search" placeholder="Find a row" aria-label="Find a row" value={model.rows.arrangement.value.find} onInput={(e) => model.rows.filter(e.currentTarget.value)} onKeyDown={leaveOnEscape} /><kbd>T</kbd>
      </label>
      <div class="tl-buttons">
        <button type="button" class="ghost" aria-label="Zoom in" data-tip="Zoom in (W, +, Ctrl + wheel)" onClick={() => model.zoom(0.6)}><Icon name="plus" /></button>
        <button type="button" class="ghost" aria-label="Zoom out" data-tip="Zoom out (S, -)" onClick={() => model.zoom(1 / 0.6)}><Icon name="minus" /></button>
        <button type="button" class="ghost" aria-label="Back" data-tip="Back to the last place (Alt + ←)" onClick={() => model.history(-1)}><Icon name="left" /></button>
        <button type="button" class="ghost" aria-label="Forward" data-tip="Forward (Alt + →)" onClick={() => model.history(1)}><Icon name="right" /></button>
        <button type="button" class="button" data-tip="Zoom to the selection; again: fill the view. Without one: the step" onClick={() => model.fit()}>Fit <kbd>F</kbd></button>
        <button type="button" class="button" data-tip="The whole recording" onClick={() => model.everything()}>All <kbd>0</kbd></button>
        <button type="button" class={`button ${model.path.on.value ? "on" : ""}`} aria-pressed={model.path.on.value} disabled={!model.path.there} data-tip={!model.path.there ? LIVE : "The critical path of each step: what holds its end, back to its start"} onClick={() => model.togglePath()}>Path</button>
        <button type="button" class={`button ${table ? "on" : ""}`} aria-pressed={table} disabled={inFile} data-tip={inFile ? LIVE : "The events in view as a table (L)"} onClick={onTable}>Table</button>
        {!inFile && <TraceFile model={model} />}
        <More model={model} onHelp={onHelp} />
      </div>
      <div class="tl-line">
        <div class="tl-legend" role="group" aria-label="Colors">
          {(patterns ? categories.map((c) => [c]) : ofOneFill(categories)).map((all) => <span><i style={{ background: patterns ? striped(fillOf(all[0]!), shape!.categories.indexOf(all[0]!)) : fillOf(all[0]!) }} />{patterns && <b>{letters[shape!.categories.indexOf(all[0]!)]}</b>}{all.map((c) => c.label.toLowerCase()).join(", ")}</span>)}
        </div>
        <span class="tl-tally quiet" data-tip="Events in view on the open rows; those shorter than a pixel are merged and counted, never left out">{shape ? `${human(tally.items, "count")} items of ${tally.more ? "≥ " : ""}${human(tally.events, "count")} events` : "reading…"}</span>
      </div>
    </div>
  );
}

/** A fill with the stripes of its category, for a square of the legend. */
function striped(fill: string, category: number): string {
  const { period, at } = stripesOf(category);
  const parts = Array.from({ length: period }, (_, x) => `${at.includes(x) ? stripeOn(fill) : fill} ${x}px ${x + 1}px`);
  return `repeating-linear-gradient(90deg, ${parts.join(", ")})`;
}

/** The categories that names have, each followed by its kinds; of kinds also what they are of: summaries have its color. */
function shownOf(categories: readonly Category[], used: ReadonlySet<number>): Category[] {
  const there = categories.filter((_, k) => used.has(k));
  const all = categories.filter((c) => there.includes(c) || there.some((k) => k.of === c.name));
  return all.filter((c) => !c.of).flatMap((c) => [c, ...all.filter((k) => k.of === c.name)]);
}

/** Categories of one color together. */
function ofOneFill(categories: readonly Category[]): Category[][] {
  const out = new Map<string, Category[]>();
  for (const c of categories) out.set(fillOf(c), [...(out.get(fillOf(c)) ?? []), c]);
  return [...out.values()];
}

const leaveOnEscape = (event: KeyboardEvent): void => {
  if (event.key !== "Escape") return;
  event.stopPropagation();
  (event.currentTarget as HTMLElement).closest<HTMLElement>(".tl")?.focus();
};

function SearchField({ model, box }: { model: TimelineModel; box: { current: HTMLInputElement | null } }): JSX.Element {
  const search = model.finder.state.value;
  const keys = (event: KeyboardEvent): void => {
    if (event.key === "Enter") void model.finder.step(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape") {
      void model.finder.find("", "quiet");
      leaveOnEscape(event);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const hidden = hiddenHits(model);
  return (
    <div class="tl-search">
      <label class="find" data-tip={inFile ? LIVE : "Names on all rows, hidden ones too; /text/ is a regular expression (/)"}>
        <Icon name="search" /><input ref={box} class="tl-input find-input" type="search" placeholder="Find by name" aria-label="Find events by name" disabled={inFile} value={search.text} onInput={(e) => void model.finder.find(e.currentTarget.value)} onKeyDown={keys} /><kbd>/</kbd>
      </label>
      {search.text && (
        <span class="tl-found" role="status">
          {search.wrong ? <span class="warn-text">{search.wrong}</span> : search.hits ? `${human(search.hits.total, "count")} found${hidden ? `, ${human(hidden, "count")} on hidden rows` : ""}` : "searching…"}
          {!search.wrong && !!search.hits?.total && (
            <>
              <button type="button" class="ghost" aria-label="Previous hit" data-tip="Previous hit (Shift + N)" onClick={() => void model.finder.step(-1)}><Icon name="left" /></button>
              <button type="button" class="ghost" aria-label="Next hit" data-tip="Next hit (N)" onClick={() => void model.finder.step(1)}><Icon name="right" /></button>
            </>
          )}
        </span>
      )}
    </div>
  );
}

function hiddenHits(model: TimelineModel): number {
  const { pinned, rows } = model.rows.shown.value;
  const seen = new Set([...pinned, ...rows].map((r) => r.track.track));
  return (model.finder.state.value.hits?.tracks ?? []).filter((t) => !seen.has(t.track)).reduce((sum, t) => sum + t.count, 0);
}

function More({ model, onHelp }: { model: TimelineModel; onHelp: () => void }): JSX.Element {
  const { layout, hidden, pinned } = model.rows.arrangement.value;
  const workers = choice.value?.state === "chosen" ? choice.value.chosen.run.workers.length : 1;
  const others = [{ value: "compact", text: "Compact streams" }, ...(workers > 1 ? [{ value: "worker", text: "All workers" }] : [])];
  const choices = [{ value: "", text: "By process" }, ...(inFile ? [] : others)];
  return (
    <Popover button={<Icon name="menu" />} class="ghost" label="Rows and view" tip="Rows and view" align="right">
      {(close) => (
        <div class="tl-menu">
          <Switch label="Rows" value={layout} choices={choices} onPick={(value) => model.rows.layout(value as typeof layout)} />
          <button type="button" class="text-button" onClick={() => model.rows.expandAll()}>Open or close all rows <kbd>Shift+E</kbd></button>
          <button type="button" class="text-button" disabled={!hidden.length} onClick={() => model.rows.showHidden()}>Show {hidden.length} hidden rows</button>
          <button type="button" class="text-button" disabled={!pinned.length} onClick={() => model.rows.unpin()}>Unpin {pinned.length} rows</button>
          <button type="button" class="text-button" aria-pressed={model.patterns.value} onClick={() => { model.patterns.value = !model.patterns.peek(); }}>{model.patterns.value ? "No patterns" : "Patterns"} and letters for kinds of work</button>
          <button type="button" class="text-button" onClick={() => model.chooseView()}>The view as an area <kbd>Ctrl+A</kbd></button>
          <button type="button" class="text-button" onClick={() => model.markMiddle()}>Mark the time in the middle <kbd>M</kbd></button>
          <button type="button" class="text-button" disabled={!model.marks.value.length} onClick={() => model.nextMark()}>Next mark <kbd>Shift+M</kbd></button>
          <button type="button" class="text-button" aria-pressed={model.paneOpen.value} onClick={() => { model.paneOpen.value = !model.paneOpen.peek(); }}>{model.paneOpen.value ? "Hide" : "Show"} details of the selection <kbd>Q</kbd></button>
          <button type="button" class="text-button" onClick={() => { close(); onHelp(); }}>Keys of the timeline <kbd>?</kbd></button>
        </div>
      )}
    </Popover>
  );
}

/** How the clocks of several workers were put beside each other, what is not shown, and events far outside of the others. */
function Clock({ model }: { model: TimelineModel }): JSX.Element | null {
  const shape = model.shape.value!;
  const unknown = shape.alignment.length > 1 && shape.alignment.some((a) => a.method === "none");
  const far = shape.outliers.reduce((sum, o) => sum + o.events, 0);
  const apart = shape.alignment.length > 1 ? gapOf(model) : "";
  const step = shape.alignments?.some((w) => w.al === "step" && !w.why_not);
  if (!unknown && !far && !shape.notice && shape.alignment.length < 2) return null;
  return (
    <div class="tl-clock">
      {shape.alignment.length > 1 && <Alignment model={model} />}
      {unknown && <Notice notice={{ level: "warn", text: "The clocks of these workers are not known to each other: each begins at its own first event, and nothing can be said about what happened at once." }} />}
      {shape.notice && <Notice notice={{ level: "info", text: shape.notice }} />}
      {apart && <Notice notice={{ level: "warn", text: `These recordings do not overlap: ${apart}.` }}>{step && <button type="button" class="link" onClick={() => model.align("step")}>Put the starts of a step beside each other</button>}</Notice>}
      {far > 0 && <Notice notice={{ level: "info", text: `${human(far, "count")} ${far === 1 ? "event lies" : "events lie"} far outside of where nearly all are.` }}><button type="button" class="link" onClick={() => { const at = shape.outliers[0]!.time_ns; model.show({ start: at - 1e6, end: at + 1e6 }, true); }}>Show the first</button></Notice>}
    </div>
  );
}

/** Where one worker's events end before another's begin: whose, and by how much. */
function gapOf(model: TimelineModel): string {
  const { alignment } = model.shape.value!;
  const spans = alignment.map((a, k) => {
    const own = model.tracks.value.filter((t) => t.worker === k && t.events > 0);
    return { name: a.worker, start: Math.min(...own.map((t) => t.first_ns)), end: Math.max(...own.map((t) => t.last_ns)) };
  }).filter((s) => s.end >= s.start).sort((a, b) => a.start - b.start);
  let end = spans[0];
  for (const next of spans.slice(1)) {
    if (next.start > end!.end) return `${next.name} begins ${human(next.start - end!.end, "ns")} after the end of ${end!.name}`;
    if (next.end > end!.end) end = next;
  }
  return "";
}

function KeyCard({ onClose }: { onClose: () => void }): JSX.Element {
  return (
    <div class="tl-keys" role="dialog" aria-label="Keys of the timeline">
      <div class="dialog-head"><h2>Keys of the timeline</h2><button type="button" class="ghost" aria-label="Close" onClick={onClose}><Icon name="close" /></button></div>
      <dl class="keys-list">{KEYS.map(([k, text]) => <div><dt>{k.split(" ").map((one) => <kbd>{one}</kbd>)}</dt><dd>{text}</dd></div>)}</dl>
      <p class="quiet">Drag selects an area, Shift + drag and drag on the ruler pan, a click on the ruler marks, Ctrl + click measures the gap to another event, a double click zooms to the selection.</p>
    </div>
  );
}
