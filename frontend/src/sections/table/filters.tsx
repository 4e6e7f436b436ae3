// Filters of a table as chips, and the menu of a column's heading: order, bounds of its numbers, hiding it.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { TableSection } from "../../api/types";
import type { Range, TableState } from "../../state/codec";
import { changeTable, tableOf } from "../../state/view";
import { human, NARROW, number, readQuantity } from "../../units";
import { Chip } from "../../ui/controls";
import { Icon } from "../../ui/icons";
import { Popover } from "../../ui/popover";
import { List } from "../../ui/select";
import { clearPicked, pickedOf, sharesRows } from "../linked";
import { isUnmarked, ValueMark } from "./cells";
import { layoutOf, type ColumnLayout } from "./columns";
import { rowCount, valueCounts, type Shown } from "./model";

const CHIPS = 7;
/** Values of a column that a table in pages offers, at most (`MOST_VALUES` of the server). */
const OFFERED = 200;

/** The text of a chip: a yes or no column by its label, a plain number with the label, an empty value as a dash. */
const valueText = (value: string, label: string): string => (value === "true" ? label : value === "false" ? `not ${label[0]!.toLowerCase()}${label.slice(1)}` : /^-?\d+$/.test(value) ? `${label} ${value}` : value || "—");

/** `Device time` in lower case, for the inside of a sentence; names such as FLOP stay. */
const low = (label: string): string => (/^[A-Z][a-z]/.test(label) ? label[0]!.toLowerCase() + label.slice(1) : label);

/** A bound in the unit of its column, every digit that was typed. */
const inUnit = (value: number, l: ColumnLayout): string => String(Number((value / l.scale.factor).toPrecision(6))).replace("-", "\u2212");
const unitOf = (l: ColumnLayout): string => (l.scale.name ? NARROW + l.scale.name : "");

/** `Time > 0.1 ms`, `0.1 < Time < 5 ms`. */
export function rangeWords(range: Range, l: ColumnLayout): string {
  const { above, below } = range;
  if (above !== null && below !== null) return `${inUnit(above, l)} < ${l.column.label} < ${inUnit(below, l)}${unitOf(l)}`;
  return above !== null ? `${l.column.label} > ${inUnit(above, l)}${unitOf(l)}` : `${l.column.label} < ${inUnit(below ?? 0, l)}${unitOf(l)}`;
}

/** `74`; `32 of 74 with time above 0.1 ms; 99.8 % of time`. */
export function countText(s: TableSection, shown: Shown): string {
  if (!shown.filtered && shown.count === shown.of) return number(shown.of, 0);
  const state = tableOf(s.id);
  const ranges = Object.entries(state.ranges).filter(([name]) => layoutOf(s).has(name));
  const only = ranges.length === 1 && !Object.values(state.keep).some((v) => v.length) && !pickedOf(s) ? ranges[0]! : null;
  const [l, range] = only ? [layoutOf(s).get(only[0])!, only[1]] : [null, null];
  const words = l && range ? ` with ${low(l.column.label)} ${[range.above !== null && `above ${inUnit(range.above, l)}${unitOf(l)}`, range.below !== null && `below ${inUnit(range.below, l)}${unitOf(l)}`].filter(Boolean).join(" and ")}` : "";
  return `${number(shown.count, 0)} of ${number(shown.of, 0)}${words}${shareText(s, shown)}`;
}

/** The share of the shown rows in the total of the table, by its first column of bars. */
function shareText(s: TableSection, shown: Shown): string {
  const c = s.columns.find((c) => (c.show === "bar" || c.show === "stack") && typeof s.total?.[c.name] === "number");
  const total = c ? Number(s.total![c.name]) : 0;
  if (!c || !shown.filtered || s.tree || !(total > 0)) return "";
  const sum = shown.sums[c.name];
  if (sum === undefined) return "";
  return `; ${human((sum ?? 0) / total, "ratio")} of ${low(c.label)}`;
}

/** Chips for the columns a reader filters by, for bounds of numbers, and for rows selected in a chart. */
export function Chips({ s, state }: { s: TableSection; state: TableState }): JSX.Element | null {
  const columns = (s.filters ?? []).map((name) => s.columns.find((c) => c.name === name)).filter((c) => c !== undefined);
  const groups = columns.map((c) => ({ c, values: valueCounts(s, c.name) })).filter((g) => state.keep[g.c.name]?.length || (g.values.length > 1 && g.values.length <= rowCount(s) * 0.6));
  const ranges = Object.entries(state.ranges).filter(([name]) => layoutOf(s).has(name));
  const picked = pickedOf(s);
  if (!groups.length && !ranges.length && !picked) return null;
  const keep = (column: string, value: string): void => {
    const now = state.keep[column] ?? [];
    const next = now.includes(value) ? now.filter((v) => v !== value) : [...now, value];
    changeTable(s.id, { keep: { ...state.keep, [column]: next } }, "quiet");
  };
  return (
    <div class="chips" role="group" aria-label={`Filter ${s.title}`}>
      {groups.map(({ c, values }, i) => {
        const on = state.keep[c.name] ?? [];
        if (values.length <= CHIPS) {
          return values.map(([value, count], k) => (
            <Chip apart={i > 0 && k === 0} on={on.includes(value)} count={count} tip={`${c.label}: ${value || "none"}`} mark={isUnmarked(s, c.name) ? undefined : <ValueMark text={value} />} onToggle={() => keep(c.name, value)}>{valueText(value, c.label)}</Chip>
          ));
        }
        return (
          <Popover label={`Filter by ${c.label}`} class={`chip ${on.length ? "on" : ""}`} button={<><span>{c.label}: {on.length === 0 ? "any" : on.length === 1 ? on[0] || "—" : `${on.length} chosen`}</span><Icon name="down" size={12} /></>}>
            {() => (
              <List
                label={c.label} value="" marked={(v) => on.includes(v)} onPick={(v) => keep(c.name, v)} options={values.map(([value, count]) => ({ value, text: valueText(value, c.label), note: String(count) }))}
                foot={<>
                  {s.pages && values.length >= OFFERED && <div class="none">The {OFFERED} most frequent; the filter finds the others.</div>}
                  {on.length > 0 && <button type="button" class="option" onClick={() => changeTable(s.id, { keep: { ...state.keep, [c.name]: [] } }, "quiet")}>Any {c.label.toLowerCase()}</button>}
                </>}
              />
            )}
          </Popover>
        );
      })}
      {ranges.map(([name, range]) => <Chip on tip="Removes this filter" onToggle={() => setRange(s, name, { above: null, below: null })}>{rangeWords(range, layoutOf(s).get(name)!)}</Chip>)}
      {picked && <Chip on tip={sharesRows(s) ? "A row stands for several points and is counted whole. Click to show all rows again." : "Shows all rows again"} count={picked.size} onToggle={() => clearPicked(s)}>{sharesRows(s) ? `${s.columns[0]?.label ?? "Rows"} with points selected:` : "Selected in chart:"}</Chip>}
    </div>
  );
}

function setRange(s: TableSection, column: string, range: Range): void {
  const { [column]: _, ...rest } = tableOf(s.id).ranges;
  changeTable(s.id, { ranges: range.above === null && range.below === null ? rest : { ...rest, [column]: range } }, "push");
}

interface MenuProps {
  s: TableSection;
  l: ColumnLayout;
  lead: boolean;
  close: () => void;
}

/** Below the heading of a column. */
export function HeadMenu({ s, l, lead, close }: MenuProps): JSX.Element {
  const { column } = l;
  const order = (descending: boolean): void => {
    changeTable(s.id, { sort: { column: column.name, descending } }, "quiet");
    close();
  };
  const hide = (): void => {
    changeTable(s.id, { columns: { ...tableOf(s.id).columns, [column.name]: false } }, "quiet");
    close();
  };
  return (
    <div class="list head-menu">
      <button type="button" class="option" onClick={() => order(l.numeric)}>{l.numeric ? "Largest first" : "A to Z"}</button>
      <button type="button" class="option" onClick={() => order(!l.numeric)}>{l.numeric ? "Smallest first" : "Z to A"}</button>
      {l.numeric && <Bounds s={s} l={l} close={close} />}
      {!lead && <button type="button" class="option" onClick={hide}>Hide this column</button>}
    </div>
  );
}

/** Two fields in the column's unit; Enter applies both. */
function Bounds({ s, l, close }: Omit<MenuProps, "lead">): JSX.Element {
  const range = tableOf(s.id).ranges[l.column.name] ?? { above: null, below: null };
  const text = (value: number | null): string => (value === null ? "" : inUnit(value, l));
  const [ends, setEnds] = useState<[string, string]>([text(range.above), text(range.below)]);
  const numbers = ends.map((t) => (t.trim() ? readQuantity(t) : null));
  const bad = ends.map((t, i) => t.trim() !== "" && numbers[i] === null);
  const base = (value: number | null): number | null => (value === null ? null : Number((value * l.scale.factor).toPrecision(12)));
  const apply = (event: Event): void => {
    event.preventDefault();
    if (bad.some(Boolean)) return;
    setRange(s, l.column.name, { above: base(numbers[0]!), below: base(numbers[1]!) });
    close();
  };
  return (
    <form class="bounds" onSubmit={apply}>
      {(["greater than", "less than"] as const).map((label, i) => (
        <label class="form-line">
          <span>{label}</span>
          <input
            class="typed bound" type="text" inputMode="decimal" size={8} aria-invalid={bad[i]} value={ends[i]} data-first={i === 0 ? true : undefined}
            onInput={(e) => { const value = e.currentTarget.value; setEnds(([a, b]) => (i === 0 ? [value, b] : [a, value])); }}
          />
          <span class="quiet bound-unit">{l.scale.name}</span>
        </label>
      ))}
      <button type="submit" class="button" disabled={bad.some(Boolean)}>Filter</button>
    </form>
  );
}
