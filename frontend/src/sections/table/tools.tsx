// What stands at the right of a table's title: text filter, value chips, columns, CSV.
import type { JSX } from "preact";
import type { TableSection } from "../../api/types";
import type { TableState } from "../../state/codec";
import { changeTable } from "../../state/view";
import { Chip } from "../../ui/controls";
import { Icon, Mark as Shape } from "../../ui/icons";
import { Popover } from "../../ui/popover";
import { List } from "../../ui/select";
import { MARKS, paint } from "../../ui/theme";
import { rowCount, valueCounts } from "./model";
import { shownColumns } from "./table";

const CHIPS = 7;

/** A yes or no column is named by its label; an empty value by a dash. */
const valueText = (value: string, label: string): string => (value === "true" ? label : value === "false" ? `no ${label.toLowerCase()}` : value || "—");

/** Chips for the columns a reader filters by; a column of many values is a list to choose from. */
export function Chips({ s, state }: { s: TableSection; state: TableState }): JSX.Element | null {
  const columns = (s.filters ?? []).map((name) => s.columns.find((c) => c.name === name)).filter((c) => c !== undefined);
  const groups = columns.map((c) => ({ c, values: valueCounts(s, c.name) })).filter((g) => state.keep[g.c.name]?.length || (g.values.length > 1 && g.values.length <= rowCount(s) * 0.6));
  if (!groups.length) return null;
  const keep = (column: string, value: string): void => {
    const now = state.keep[column] ?? [];
    const next = now.includes(value) ? now.filter((v) => v !== value) : [...now, value];
    changeTable(s.id, { keep: { ...state.keep, [column]: next } }, "quiet");
  };
  return (
    <div class="chips" role="group" aria-label={`Filter ${s.title}`}>
      {groups.map(({ c, values }) => {
        const on = state.keep[c.name] ?? [];
        if (values.length <= CHIPS) {
          return values.map(([value, count]) => (
            <Chip on={on.includes(value)} count={count} tip={`${c.label}: ${value}`} mark={MARKS[value] ? <Shape shape={MARKS[value]!} color={paint(value)} /> : undefined} onToggle={() => keep(c.name, value)}>{valueText(value, c.label)}</Chip>
          ));
        }
        return (
          <Popover label={`Filter by ${c.label}`} class={`chip ${on.length ? "on" : ""}`} button={<><span>{c.label}: {on.length === 0 ? "any" : on.length === 1 ? valueText(on[0]!, c.label) : `${on.length} chosen`}</span><Icon name="down" size={12} /></>}>
            {() => (
              <List
                label={c.label} value="" marked={(v) => on.includes(v)} onPick={(v) => keep(c.name, v)} options={values.map(([value, count]) => ({ value, text: valueText(value, c.label), note: String(count) }))}
                foot={on.length > 0 && <button type="button" class="option" onClick={() => changeTable(s.id, { keep: { ...state.keep, [c.name]: [] } }, "quiet")}>Any {c.label.toLowerCase()}</button>}
              />
            )}
          </Popover>
        );
      })}
    </div>
  );
}

export function FindField({ value, onInput, label }: { value: string; onInput: (text: string) => void; label: string }): JSX.Element {
  return (
    <label class="search find">
      <Icon name="search" size={14} />
      <input
        type="search" class="find-input" placeholder="Filter" aria-label={label} value={value} onInput={(e) => onInput(e.currentTarget.value)}
        onKeyDown={(e) => { if (e.key === "Escape") { e.stopPropagation(); if (value) onInput(""); else e.currentTarget.blur(); } }}
      />
      {!value && <kbd>/</kbd>}
    </label>
  );
}

export function ColumnChooser({ s, state }: { s: TableSection; state: TableState }): JSX.Element {
  const shown = new Set(shownColumns(s).map((l) => l.column.name));
  const lead = shownColumns(s)[0]?.column.name;
  return (
    <Popover label="Columns" class="text-button" align="right" wide button={<><Icon name="columns" size={14} /><span class="word">Columns</span></>}>
      {() => (
        <div class="column-list">
          {s.columns.map((c) => (
            <label class="column-item">
              <input
                type="checkbox" checked={shown.has(c.name)} disabled={c.name === lead}
                onChange={(e) => changeTable(s.id, { columns: { ...state.columns, [c.name]: e.currentTarget.checked } }, "quiet")}
              />
              <span><span class="column-name">{c.label}</span>{c.doc && <span class="column-doc">{c.doc}</span>}</span>
            </label>
          ))}
          {Object.keys(state.columns).length > 0 && <button type="button" class="option" onClick={() => changeTable(s.id, { columns: {} }, "quiet")}>As at first</button>}
        </div>
      )}
    </Popover>
  );
}
