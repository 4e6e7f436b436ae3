// Tools of a table: text filter and choice of columns.
import type { JSX } from "preact";
import type { TableSection } from "../../api/types";
import type { TableState } from "../../state/codec";
import { changeTable } from "../../state/view";
import { Icon } from "../../ui/icons";
import { Popover } from "../../ui/popover";
import { shownColumns } from "./table";

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
          {Object.keys(state.columns).length > 0 && <button type="button" class="option" onClick={() => changeTable(s.id, { columns: {} }, "quiet")}>Reset columns</button>}
        </div>
      )}
    </Popover>
  );
}
