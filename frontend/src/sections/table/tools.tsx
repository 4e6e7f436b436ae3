// Tools of a table: text filter and choice of columns.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { TableSection } from "../../api/types";
import type { TableState } from "../../state/codec";
import { changeTable } from "../../state/view";
import { Icon } from "../../ui/icons";
import { Popover } from "../../ui/popover";
import { shownColumns } from "./table";

/** How long after the last key a text is looked for: large tables are not searched for every letter. */
const WAIT_MS = 150;

export function FindField({ value, onInput, label }: { value: string; onInput: (text: string) => void; label: string }): JSX.Element {
  const [text, setText] = useState(value);
  const sent = useRef(value);
  const timer = useRef(0);
  useEffect(() => () => window.clearTimeout(timer.current), []);
  useEffect(() => {
    if (value === sent.current) return; // ours, or what is typed further
    window.clearTimeout(timer.current);
    sent.current = value;
    setText(value);
  }, [value]);
  const send = (now: string): void => {
    window.clearTimeout(timer.current);
    if (now === sent.current) return;
    sent.current = now;
    onInput(now);
  };
  const type = (now: string, wait: number): void => {
    setText(now);
    window.clearTimeout(timer.current);
    if (wait) timer.current = window.setTimeout(() => send(now), wait);
    else send(now);
  };
  const key = (event: KeyboardEvent): void => {
    if (event.key === "Enter") send(text);
    if (event.key !== "Escape") return;
    event.stopPropagation();
    if (text) type("", 0);
    else (event.currentTarget as HTMLElement).blur();
  };
  return (
    <label class="search find">
      <Icon name="search" size={14} />
      <input
        type="search" class="find-input" placeholder="Filter" aria-label={label} value={text} onInput={(e) => type(e.currentTarget.value, WAIT_MS)} onKeyDown={key}
        onBlur={() => send(text)}
      />
      {!text && <kbd>/</kbd>}
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
