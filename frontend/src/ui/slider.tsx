// A slider over given values, with a field to type one.
import type { JSX } from "preact";
import { useState } from "preact/hooks";

interface SliderProps {
  label: string;
  tip?: string;
  value: string;
  values: readonly string[];
  /** the value was chosen here; else it is a default */
  chosen?: boolean;
  wrong?: boolean;
  onMove: (value: string) => void;
  onType: (value: string) => void;
}

/** The index of a value among rising values; for one that is none of them, where it would be. */
export function placeOf(value: string, values: readonly string[]): number {
  const at = values.indexOf(value);
  if (at >= 0) return at;
  const above = values.findIndex((v) => Number(v) > Number(value));
  return above < 0 ? Math.max(0, values.length - 1) : above;
}

export function Slider({ label, tip, value, values, chosen, wrong, onMove, onType }: SliderProps): JSX.Element {
  const at = placeOf(value, values);
  const last = Math.max(values.length - 1, 1);
  const [moved, setMoved] = useState<number | null>(null); // under the hand the thumb does not wait for an answer
  const shown = moved !== null && values[moved] !== undefined ? moved : at;
  return (
    <div class={`slider ${chosen ? "chosen" : ""}`} data-tip={tip}>
      <span class="slider-label">{label}</span>
      <Box label={label} value={moved !== null ? (values[moved] ?? value) : value} numeric wrong={!!wrong} onType={onType} />
      <input
        type="range" min={0} max={values.length - 1} step={1} value={shown} disabled={values.length < 2} aria-label={label} aria-valuetext={values[shown] ?? value}
        style={{ "--at": `${(shown / last) * 100}%` }}
        onInput={(e) => { const to = Number(e.currentTarget.value); setMoved(to); if (values[to] !== undefined) onMove(values[to]); }}
        onChange={() => setMoved(null)} onBlur={() => setMoved(null)}
      />
    </div>
  );
}

interface BoxProps {
  label: string;
  value: string;
  placeholder?: string;
  numeric?: boolean;
  wrong?: boolean;
  onType: (value: string) => void;
}

/** A small field: what is typed counts when Enter is pressed or the field is left; Esc takes it back. */
export function Box({ label, value, placeholder, numeric, wrong, onType }: BoxProps): JSX.Element {
  const [text, setText] = useState<string | null>(null);
  const done = (): void => {
    if (text !== null && text.trim() !== value) onType(text.trim());
    setText(null);
  };
  return (
    <input
      class="typed box" type="text" inputMode={numeric ? "decimal" : "text"} aria-label={label} aria-invalid={wrong || undefined} value={text ?? value} placeholder={placeholder}
      onInput={(e) => setText(e.currentTarget.value)} onBlur={done}
      onKeyDown={(e) => { if (e.key === "Enter") done(); if (e.key === "Escape") { e.stopPropagation(); setText(null); } }}
    />
  );
}
