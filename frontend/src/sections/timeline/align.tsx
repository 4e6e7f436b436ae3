// How the clocks of several workers are put beside each other: the choice, and the words beside the ruler.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { human } from "../../units";
import type { TimelineModel } from "./model";

const STEP = "step:";
const MANUAL = "manual:";
const MOST_STEPS = 200;
const WORDS: Record<string, string> = { clock: "absolute clock", collective: "collectives", step: "a step's start", manual: "set by hand", none: "clocks not aligned" };

/** The method in a word or two; "" of one worker. */
export function methodOf(model: TimelineModel): string {
  const shape = model.shape.value;
  if (!shape || shape.alignment.length < 2) return "";
  return WORDS[shape.alignment[0]!.method] ?? shape.alignment[0]!.method;
}

/** Ways to align, and the offsets of each worker where they are set by hand. */
export function Alignment({ model }: { model: TimelineModel }): JSX.Element | null {
  const shape = model.shape.value!;
  const ways = shape.alignments ?? [];
  if (!ways.length) return null;
  const now = model.at.al || shape.alignment[0]!.method;
  const kind = now.split(":")[0]!;
  const steps = (shape.align_steps ?? []).slice(0, MOST_STEPS);
  const choose = (value: string): void => model.align(value === "manual" ? MANUAL + shape.alignment.map((a) => a.offset_ns).join(",") : value);
  return (
    <div class="tl-align">
      <label class="field">Clocks{" "}
        <select value={now.startsWith(STEP) ? now : kind} onChange={(e) => choose(e.currentTarget.value)}>
          {ways.map((w) => <option value={w.al} disabled={!!w.why_not} title={w.why_not || undefined}>{w.label}{w.why_not ? `: ${w.why_not}` : ""}</option>)}
          {steps.map((n) => <option value={`${STEP}${n}`}>by the start of step {n}</option>)}
        </select>
      </label>
      {kind === "manual" && <Offsets key={now} model={model} />}
      {shape.alignment.every((a) => a.method !== "none") && <span class="quiet">{shape.alignment.length} workers on one clock</span>}
    </div>
  );
}

function Offsets({ model }: { model: TimelineModel }): JSX.Element {
  const { alignment } = model.shape.value!;
  const [texts, setTexts] = useState(alignment.map((a) => String(a.offset_ns / 1000)));
  const values = texts.map((t) => Math.round(Number(t.replace(",", ".")) * 1000));
  const wrong = values.findIndex((v) => !Number.isSafeInteger(v));
  return (
    <form class="tl-offsets" onSubmit={(e) => { e.preventDefault(); if (wrong < 0) model.align(MANUAL + values.join(",")); }}>
      {alignment.map((a, k) => (
        <label class="field">{a.worker || "recording"}{" "}
          <input class="tl-input" type="text" inputMode="decimal" size={9} value={texts[k]} aria-invalid={!Number.isSafeInteger(values[k])} onInput={(e) => { const next = texts.slice(); next[k] = e.currentTarget.value; setTexts(next); }} /> µs
        </label>
      ))}
      <button type="submit" class="button" disabled={wrong >= 0}>Set</button>
      <span class="quiet">{alignment.some((a) => a.uncertainty_ns) ? `± ${human(Math.max(...alignment.map((a) => a.uncertainty_ns ?? 0)), "ns")}` : "added to the times of each worker"}</span>
    </form>
  );
}
