// The right edge of a heading, which makes its column wider or narrower: drag, arrow keys, a double click to fit the content.
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useRef } from "preact/hooks";
import type { TableSection } from "../../api/types";
import type { ColumnLayout } from "./columns";
import { columnValues } from "./model";

/** px that a column keeps. */
const LEAST = 48;
const MOST = 1600;
const KEY_STEP = 16;
/** px of a letter of a name, and around a value. */
const LETTER = 7.25;
const AROUND = 44;

/** Widths that the reader chose while the page is open, by table and column. */
const chosen = signal<Record<string, Record<string, number>>>({});

/** The widths of a table's columns with those that the reader chose; the others stay as they are. */
export function withChosen(id: string, columns: readonly ColumnLayout[], widths: readonly number[]): number[] {
  const own = chosen.value[id];
  return own ? columns.map((c, i) => own[c.column.name] ?? widths[i]!) : [...widths];
}

export const within = (width: number): number => Math.round(Math.min(MOST, Math.max(LEAST, width)));

function choose(id: string, column: string, width: number | null): void {
  const { [column]: _, ...rest } = chosen.peek()[id] ?? {};
  chosen.value = { ...chosen.peek(), [id]: width === null ? rest : { ...rest, [column]: within(width) } };
}

/** px that show the longest value of a column whole. */
export function contentWidth(values: readonly unknown[], usual: number): number {
  const longest = values.reduce<number>((most, v) => (typeof v === "string" && v.length > most ? v.length : most), 0);
  return within(Math.max(usual, longest * LETTER + AROUND));
}

export function Edge({ s, column, width }: { s: TableSection; column: ColumnLayout; width: number }): JSX.Element {
  const from = useRef<{ x: number; width: number } | null>(null);
  const name = column.column.name;
  const fit = (): void => choose(s.id, name, contentWidth(column.numeric ? [] : columnValues(s, name), column.width));
  return (
    <span
      class="edge" role="separator" aria-orientation="vertical" tabIndex={0} aria-label={`Width of ${column.column.label}`}
      aria-valuenow={Math.round(width)} aria-valuemin={LEAST} aria-valuemax={MOST} data-tip="Drag, or ← and → keys: width. Double click or Enter: fit the content. Delete: as before."
      onPointerDown={(e) => {
        from.current = { x: e.clientX, width };
        e.currentTarget.setPointerCapture(e.pointerId);
        e.preventDefault();
      }}
      onPointerMove={(e) => { if (from.current) choose(s.id, name, from.current.width + e.clientX - from.current.x); }}
      onPointerUp={() => { from.current = null; }}
      onPointerCancel={() => { from.current = null; }}
      onDblClick={fit}
      onKeyDown={(e) => {
        if (e.key === "ArrowLeft" || e.key === "ArrowRight") choose(s.id, name, width + (e.key === "ArrowLeft" ? -1 : 1) * KEY_STEP * (e.shiftKey ? 4 : 1));
        else if (e.key === "Enter") fit();
        else if (e.key === "Delete" || e.key === "Backspace") choose(s.id, name, null);
        else return;
        e.preventDefault();
        e.stopPropagation();
      }}
    />
  );
}
