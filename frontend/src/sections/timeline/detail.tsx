// All that is known of the selected event, with links to the pages that hold it.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { EventDetail, Flow, FlowEnd } from "../../api/timeline";
import { linkView } from "../../state/view";
import { human, moment } from "../../units";
import { Copy } from "../../ui/copy";
import { Icon } from "../../ui/icons";
import { ViewLink } from "../../ui/link";
import { Text } from "../../ui/text";
import type { TimelineModel } from "./model";

const LONG = 8;
/** Of a link out of the event, into it, and out of what lies inside of it. */
const WORDS: Record<string, [string, string, string]> = { launch: ["launches", "launched by", "inside, launches"], backward: ["backward pass:", "forward pass:", "inside, backward pass:"] };

/** From event to event. */
const STEPS: [icon: string, label: string, tip: string, act: (model: TimelineModel) => void][] = [
  ["left", "Previous event of the lane", "Previous event of the lane (,)", (model) => void model.beside(-1)],
  ["right", "Next event of the lane", "Next event of the lane (.)", (model) => void model.beside(1)],
  ["up", "Event around it", "Event around it (↑)", (model) => model.parent()],
  ["down", "First event inside", "First event inside (↓)", (model) => void model.child()],
];

const Row = ({ label, value, unit, mark, tip }: { label: string; value: string | number; unit?: string; mark?: string; tip?: string }): JSX.Element => (
  <div class="fact"><dt>{label}</dt><dd class="value" data-tip={tip}>{mark === "estimated" ? "≈ " : ""}{typeof value === "number" ? human(value, unit ?? "") : value}</dd></div>
);

export function Detail({ model }: { model: TimelineModel }): JSX.Element | null {
  const found = model.detail.value;
  if (!found || !model.paneOpen.value) return null;
  const track = model.tracks.value[found.track];
  const parent = found.parents[0];
  const short = model.names.value.shortOf(found.name);
  const from = model.compared.value.length === 1 ? model.compared.value[0]! : null;
  return (
    <section class="card tl-detail-card" aria-label={`Selected event ${found.name}`} data-event={found.event}>
      <div class="card-head">
        <div class="card-title"><h2 class="code">{short}</h2>{short !== found.name && <p class="code quiet tl-whole" data-tip={found.name}>{found.name}</p>}<span class="subtitle">{track?.path}</span></div>
        <div class="card-tools">
          {STEPS.map(([icon, label, tip, act]) => <button type="button" class="ghost" aria-label={label} data-tip={tip} onClick={() => act(model)}><Icon name={icon} /></button>)}
          <button type="button" class="text-button" data-tip="Its time on its row as an area, added up below (R)" onClick={() => model.chooseEvent()}>As an area</button>
          <button type="button" class="text-button" aria-pressed={from !== null} data-tip="Measure from this event; on another one, the gap between both (C, Ctrl + click)" onClick={() => model.measure()}>{from ? "Measure to it" : "Measure"}</button>
          <Copy class="text-button" what="the name" text={() => found.name}>Copy name</Copy>
          <button type="button" class="text-button" data-tip="Zoom to it (F)" onClick={() => model.fit()}>Zoom to it</button>
          <button type="button" class="ghost" aria-label="Close details" data-tip="Close (Esc)" onClick={() => model.select(null)}><Icon name="close" /></button>
        </div>
      </div>
      <div class="tl-columns">
        <dl class="facts">
          <Row label="Start" value={moment(found.start_ns)} />
          <Row label="Duration" value={found.duration_ns} unit="ns" tip={moment(found.duration_ns)} />
          {found.self_ns !== found.duration_ns && <Row label="Self" value={found.self_ns} unit="ns" />}
          {parent && parent.duration_ns > 0 && <Row label="Share of parent" value={found.duration_ns / parent.duration_ns} unit="ratio" />}
          {found.fields.map((f) => <Row label={f.label} value={f.value} unit={f.unit} mark={f.mark} />)}
        </dl>
        <Around model={model} d={found} />
        <Arguments key={`${found.track}/${found.event}`} d={found} />
      </div>
      {found.links.length > 0 && <div class="tl-links">{found.links.map((link) => <ViewLink view={linkView(link)} class="link"><Text text={link.label || "Open"} /></ViewLink>)}</div>}
    </section>
  );
}

function Around({ model, d }: { model: TimelineModel; d: EventDetail }): JSX.Element {
  const [all, setAll] = useState(false);
  const inner = all ? d.parents : d.parents.slice(0, LONG);
  return (
    <div class="tl-around">
      {d.parents.length > 0 && (
        <div>
          <h3>Inside of</h3>
          {d.parents.length > LONG && <button type="button" class="link" onClick={() => setAll(!all)}>{all ? "Only the innermost" : `${d.parents.length - LONG} more around these`}</button>}
          <ol class="tl-chain">{[...inner].reverse().map((p) => <li><button type="button" class="link code" onClick={() => model.go(p)}>{p.name}</button> <span class="quiet">{human(p.duration_ns, "ns")}</span></li>)}</ol>
        </div>
      )}
      {d.children.count > 0 && (
        <div>
          <h3>Directly inside <span class="count">{human(d.children.count, "count")}</span></h3>
          <ul class="tl-list">{d.children.names.slice(0, LONG).map((c) => <li><span class="code">{c.name}</span> <span class="quiet">{c.count > 1 ? `${c.count}× ` : ""}{human(c.total_ns, "ns")}</span></li>)}</ul>
          {d.children.names.length > LONG && <p class="quiet">and {d.children.names.length - LONG} more names</p>}
        </div>
      )}
      {d.flow_count > 0 && <Flows model={model} d={d} />}
    </div>
  );
}

function Flows({ model, d }: { model: TimelineModel; d: EventDetail }): JSX.Element {
  const out = (f: Flow): boolean => f.source.event === d.event && f.source.track === d.track;
  const into = (f: Flow): boolean => f.target.event === d.event && f.target.track === d.track;
  const text = (f: Flow): string => (WORDS[f.kind] ?? [f.kind, f.kind, f.kind])[out(f) ? 0 : into(f) ? 1 : 2];
  const end = (f: Flow): FlowEnd => (into(f) ? f.source : f.target);
  return (
    <div>
      <h3>Links <span class="count">{human(d.flow_count, "count")}</span></h3>
      <ul class="tl-list">
        {d.flows.slice(0, LONG).map((f) => (
          <li>
            <span class="quiet">{text(f)}</span> <button type="button" class="link code" data-tip={out(f) ? "Follow it (])" : into(f) ? "Follow it back ([)" : undefined} onClick={() => model.go({ track: end(f).track, start_ns: end(f).start_ns, duration_ns: end(f).end_ns - end(f).start_ns })}>{end(f).name}</button>{" "}
            <span class="quiet">{human(Math.abs(f.latency_ns), "ns")} {into(f) === (f.latency_ns >= 0) ? "before" : "later"}</span>
          </li>
        ))}
      </ul>
      {d.flow_count > LONG && <p class="quiet">and {human(d.flow_count - Math.min(LONG, d.flows.length), "count")} more, of shorter latency</p>}
    </div>
  );
}

function Arguments({ d }: { d: EventDetail }): JSX.Element | null {
  const [all, setAll] = useState(false);
  const entries = Object.entries(d.arguments);
  if (!entries.length) return null;
  return (
    <div>
      <h3>Arguments</h3>
      <dl class="facts tl-arguments">{(all ? entries : entries.slice(0, LONG)).map(([k, v]) => <div class="fact"><dt>{k}</dt><dd class="code">{v}</dd></div>)}</dl>
      {entries.length > LONG && <button type="button" class="link" onClick={() => setAll(!all)}>{all ? "Fewer" : `All ${entries.length}`}</button>}
    </div>
  );
}
