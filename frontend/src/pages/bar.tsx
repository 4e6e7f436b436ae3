// The selection bar: a button for run, worker, span, steps and device limits; then the link of this view and its export.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { getSummaries } from "../api/client";
import { inFile, LIVE } from "../api/file";
import type { Run, RunSummary, Span, Step, Worker } from "../api/types";
import { chosen, needsNoRecording, pages, rescan, runs } from "../state/data";
import { emptyView, NO_BASE } from "../state/codec";
import { hosted } from "../state/host";
import { summaryText } from "../state/search";
import { parseSteps, isJoined } from "../state/select";
import { change, go, here, view } from "../state/view";
import { human } from "../units";
import { Copy } from "../ui/copy";
import { Icon } from "../ui/icons";
import { ViewLink } from "../ui/link";
import { List } from "../ui/select";
import { dark, toggleTheme } from "../ui/theme";
import { slim } from "../ui/width";
import { BasePick } from "./base";
import { CapturePick } from "./capture";
import { Export } from "./export";
import { LinkForms, LiveLink } from "./forms";
import { kindOf, KindBadge, hasSeveralKinds, isMemoryOnly } from "./kind";
import { distinctParts } from "../sections/table/names";
import { Limits } from "./limits";
import { menuOpen } from "./nav";
import { Pick } from "./pick";
import { SEARCH_KEY, searchOpen } from "./search";

/** Letters at the beginning of a name that the bar shows in any case. */
const SHOWN = 6;

export function Bar(): JSX.Element {
  const c = chosen.value;
  const list = runs.value.value;
  const analyses = pages.value.value;
  return (
    <header class="bar">
      {slim.value && <button type="button" class="ghost" aria-label="Pages" aria-expanded={menuOpen.value} onClick={() => { menuOpen.value = !menuOpen.value; }}><Icon name="menu" /></button>}
      {c && list ? (
        <div class="picks">
          <Pick label="Run" class="long name" value={c.run.name || "."} part={distinctParts(list.runs.map((r) => r.name), SHOWN).get(c.run.name)} tip={c.span.file ?? ""} badge={slim.value ? <KindBadge span={c.span} /> : undefined}>
            {(close) => <RunList runs={list.runs} value={c.run.name} onPick={(run) => { go({ ...view.peek(), run, worker: "", span: "", step: "", capture: "", tables: {}, figures: {}, ...(run === view.peek().base && NO_BASE) }, "push"); close(); }} />}
          </Pick>
          {!slim.value && (
            <Pick label="Worker" value={workerLabel(c.worker.name, c.worker.rank, c.run.workers.filter((w) => w === c.worker || !isJoined(w)).length)} part={c.worker.rank === null || c.worker.rank === undefined ? distinctParts(c.run.workers.map((w) => w.name), SHOWN).get(c.worker.name) : undefined} tip={c.worker.name} class="divided long name second">
              {(close) => <List label="Workers" value={c.worker.name} options={c.run.workers.map((w) => ({ value: w.name, text: w.name, note: workerNote(w, hasSeveralKinds(c.run)) }))} onPick={(worker) => { change({ worker, span: "", step: "" }, "push"); close(); }} />}
            </Pick>
          )}
          {!slim.value && (
            <Pick label="Span" value={`${c.worker.spans.indexOf(c.span) + 1} of ${c.worker.spans.length}`} badge={<KindBadge span={c.span} />} tip={kindOf(c.span).tip}>
              {(close) => <List foot={<OtherRecordingLink span={c.span} onGo={close} />} label="Spans" value={c.span.name} options={c.worker.spans.map((s, i) => ({ value: s.name, text: s.label || s.file || s.name || String(i + 1), note: [hasSeveralKinds(c.run) ? kindOf(s).note : "", s.size ? human(s.size, "B") : ""].filter(Boolean).join(" · ") }))} onPick={(span) => { change({ span, step: "" }, "push"); close(); }} />}
            </Pick>
          )}
          <CapturePick list={list} chosen={c} />
          <BasePick list={list.runs} chosen={c} />
          <Steps steps={analyses?.steps ?? []} loading={!analyses} />
          {!slim.value && <Limits />}
        </div>
      ) : (
        <div class="picks"><div class="pick still"><span class="pick-label">Logdir</span><span class="pick-value">{list?.scan.roots?.join(", ") || "…"}</span></div></div>
      )}
      <div class="bar-tools">
        {list && <button type="button" class="button seek" aria-label={`Search ${SEARCH_KEY}`} aria-haspopup="dialog" aria-keyshortcuts="Control+K Meta+K" data-tip="Search pages, runs, findings, kernels, operators, modules" onClick={() => { searchOpen.value = true; }}><Icon name="search" /><span class="word stays">Search</span>{" "}<kbd>{SEARCH_KEY}</kbd></button>}
        {c || needsNoRecording.value ? (
          <>
            <LiveLink />
            <span class="link-forms"><Copy what="the link" label="Copy link" text={here}><Icon name="link" /><span class="word">Copy link</span></Copy>{!slim.value && <LinkForms />}</span>
            {!slim.value && <Export />}
          </>
        ) : (
          <button type="button" class="button" onClick={() => void rescan()}><Icon name="again" /><span class="word">Scan again</span></button>
        )}
        {!hosted && <button type="button" class="ghost" aria-label={dark.value ? "Light theme" : "Dark theme"} data-tip={dark.value ? "Light theme" : "Dark theme"} onClick={toggleTheme}><Icon name={dark.value ? "sun" : "moon"} /></button>}
      </div>
    </header>
  );
}

/** The runs, each with what is known of it without opening it; the names do not wait for that. */
function RunList({ runs: all, value, onPick }: { runs: Run[]; value: string; onPick: (run: string) => void }): JSX.Element {
  const [known, setKnown] = useState<ReadonlyMap<string, RunSummary>>(new Map());
  useEffect(() => {
    const stop = new AbortController();
    getSummaries(stop.signal).then((found) => setKnown(new Map(found.runs.map((s) => [s.run, s]))), () => undefined); // then the names alone
    return () => stop.abort();
  }, []);
  return <List label="Runs" value={value} options={all.map((r) => ({ value: r.name, text: r.name || ".", note: r.workers.length > 1 ? `${r.workers.length} workers` : "", detail: summaryText(known.get(r.name)) }))} onPick={onPick} />;
}

function workerLabel(name: string, rank: number | null | undefined, count: number): string {
  const text = rank !== null && rank !== undefined ? `rank ${rank}` : name;
  return count > 1 ? `${text} of ${count}` : text;
}

function workerNote(w: Worker, kinds: boolean): string {
  const rank = w.rank !== null && w.rank !== undefined ? `rank ${w.rank}` : "";
  return [rank, kinds ? [...new Set(w.spans.map((s) => kindOf(s).note))].join(", ") : ""].filter(Boolean).join(" · ");
}

/** A link from a SOL capture to the trace of the same worker, and back. */
function OtherRecordingLink({ span, onGo }: { span: Span; onGo: () => void }): JSX.Element | null {
  const other = span.companion;
  if (!other) return null;
  const text = isMemoryOnly(span) ? "Open the recording that also shows this memory" : span.kind === "sol_capture" ? "Open the profiler trace of this worker" : "Open the SOL capture of this worker";
  return <div class="none"><ViewLink view={{ ...view.value, worker: other.worker, span: other.span, step: "", tables: {}, figures: {} }} class="link" onGo={onGo}>{text}</ViewLink></div>;
}

/** `550–554 · 5 of 5`, `6 · 1 of 5`. */
export function stepsLabel(steps: readonly Step[], text: string): string {
  if (!steps.length) return "whole recording";
  const range = parseSteps(text);
  const inside = range ? steps.filter((s) => s.number >= range.from && s.number <= range.to) : steps;
  if (!inside.length) return `${text} · none of ${steps.length}`;
  const [a, b] = [inside[0]!.number, inside.at(-1)!.number];
  return `${a === b ? a : `${a}–${b}`} · ${inside.length} of ${steps.length}`;
}

function Steps({ steps, loading }: { steps: Step[]; loading: boolean }): JSX.Element {
  const now = view.value.step;
  const range = parseSteps(now);
  const pick = (value: string, shift: boolean): void => {
    if (shift && range && value) {
      const n = Number(value);
      const [from, to] = [Math.min(range.from, n), Math.max(range.to, n)];
      change({ step: from === to ? String(from) : `${from}-${to}` }, "push");
    } else change({ step: value }, "push");
  };
  return (
    <Pick label="Steps" value={loading ? "reading" : stepsLabel(steps, now)} disabled={loading || !steps.length || inFile} class="divided" tip={inFile ? LIVE : steps.length ? "[ and ] go to the previous and next step" : "no ProfilerStep in this recording"}>
      {(close) => (
        <List
          label="Steps" value={now} marked={(v) => (v === "" ? now === "" : !!range && Number(v) >= range.from && Number(v) <= range.to)}
          options={[{ value: "", text: "All steps", note: `${steps.length}` }, ...steps.map((s) => ({ value: String(s.number), text: `Step ${s.number}`, note: `${human(s.duration_ns ?? null, "ns")}${s.complete === false ? ", incomplete" : ""}` }))]}
          onPick={(value, { shift }) => { pick(value, shift); if (!shift) close(); }}
          foot={<div class="none">Shift-click selects a range.</div>}
        />
      )}
    </Pick>
  );
}

/** The step before or after the present one; from all steps to the first or last. */
export function stepBy(by: number): void {
  const steps = pages.peek().value?.steps ?? [];
  if (!steps.length) return;
  const range = parseSteps(view.peek().step);
  const at = range ? steps.findIndex((s) => s.number === range.from) : by > 0 ? -1 : steps.length;
  const next = steps[Math.max(0, Math.min(steps.length - 1, at + by))];
  if (next) change({ step: String(next.number) }, "push");
}

export const home = (): void => go(emptyView(), "push");
