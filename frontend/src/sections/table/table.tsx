// A table: heading with units, total first, rows that scroll by themselves when there are many, the outside rows last.
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Report, TableSection } from "../../api/types";
import { readAgain } from "../../state/data";
import { change, changeTable, go, linkView, tableOf, view } from "../../state/view";
import { number } from "../../units";
import { copyText } from "../../ui/copy";
import { Icon } from "../../ui/icons";
import { Popover } from "../../ui/popover";
import { Text } from "../../ui/text";
import { clearPicked, pickedOf, selectRow } from "../linked";
import { RowCard } from "./card";
import { Cell, ShownTotalCell, TotalCell } from "./cells";
import { columnsFor, fit, hasBar, layoutOf, type ColumnLayout } from "./columns";
import { rowText } from "./csv";
import { HeadMenu } from "./filters";
import { below, choiceNow, ensureRows, pathTo, placeOf, shownRows, sortOf, withOpen, type Row, type Shown } from "./model";
import { BLOCK, pagedOf, type Order } from "./pages";
import { isRanked, RankedRow } from "./ranked";
import { Edge, withChosen } from "./resize";
import { useRows } from "./virtual";

const ROW = 30;
const RANKED_ROW = 49;
const SCROLL_FROM = 60;

/** The filter text of a table: the page's `find` belongs to its main table. */
export const findOf = (s: TableSection, main: boolean): string => (main ? view.value.find : tableOf(s.id).find);

export function setFind(s: TableSection, main: boolean, text: string): void {
  if (main) change({ find: text }, "replace");
  else changeTable(s.id, { find: text }, "replace");
}

/** Takes every filter of a table away. */
function clearFilters(s: TableSection, main: boolean): void {
  clearPicked(s);
  changeTable(s.id, { keep: {}, ranges: {}, find: "" }, "quiet");
  if (main) setFind(s, main, "");
}

/** The columns a table shows now, and the room it has, by section id: the column chooser and CSV ask for them. */
const rooms = signal<Record<string, number>>({});
export const shownColumns = (s: TableSection): ColumnLayout[] => columnsFor(s, tableOf(s.id), rooms.value[s.id] ?? 1000);

export const shownOf = (s: TableSection, main: boolean): Shown => shownRows(s, tableOf(s.id), findOf(s, main), pickedOf(s));

interface TableProps {
  s: TableSection;
  report: Report;
  main: boolean;
  shown: Shown;
  /** tables of the page that hold the same rows */
  twins: TableSection[];
}

export function TableView({ s, report, main, shown, twins }: TableProps): JSX.Element {
  const state = tableOf(s.id);
  const columns = shownColumns(s);
  const scroller = useRef<HTMLDivElement>(null);
  const [cursor, setCursor] = useState(-1);
  const [copied, setCopied] = useState(false);
  const chosenElsewhere = useRef(false);
  const tree = !!s.tree;
  const windowed = shown.rows.length > SCROLL_FROM;
  const ranked = isRanked(s);
  const rows = useRows(shown.rows.length, ranked ? RANKED_ROW : ROW, windowed, scroller);
  const sort = sortOf(s, state);
  const at = Math.min(cursor, shown.rows.length - 1);

  const selected = useMemo(() => (state.row ? placeOf(s, shown, state.row) : -1), [shown, state.row]);
  useEffect(() => {
    if (!state.row || chosenElsewhere.current) {
      chosenElsewhere.current = false;
      return;
    }
    if (selected >= 0) rows.scrollTo(selected);
    else {
      const path = pathTo(s, shown, state.row);
      if (path.length) changeTable(s.id, { opened: withOpen(s, state, path, true) }, "quiet");
    }
  }, [state.row, selected >= 0, shown.order?.paths.has(state.row)]);
  const [from, to] = [rows.items[0]?.index ?? 0, rows.items.at(-1)?.index ?? 0];
  useEffect(() => ensureRows(s, shown, from, to + 1), [shown.order, from, to]);
  useLayoutEffect(() => { if (windowed && at >= 0) rows.scrollTo(at); else if (at >= 0) rows.scrollTo(at); }, [at]);

  useLayoutEffect(() => {
    const el = scroller.current!;
    const measure = (): void => {
      const width = el.clientWidth;
      if (width && rooms.peek()[s.id] !== width) rooms.value = { ...rooms.peek(), [s.id]: width };
    };
    const sized = new ResizeObserver(measure);
    sized.observe(el);
    measure();
    return () => sized.disconnect();
  }, []);

  const select = (row: Row): void => {
    chosenElsewhere.current = true;
    selectRow([s, ...twins], row.key === state.row ? "" : row.key);
  };
  const toggle = (row: Row, open = !row.open): void => { if (!(s.pages && shown.filtered)) changeTable(s.id, { opened: withOpen(s, state, [row.id], open) }, "quiet"); };
  const order = (column: string): void => {
    const descending = sort?.column === column ? !sort.descending : layoutOf(s).get(column)!.numeric;
    const natural = s.sort && s.sort.column === column && (s.sort.descending ?? true) === descending;
    changeTable(s.id, { sort: natural ? null : { column, descending } }, "quiet");
  };
  const keys = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const row = shown.rows[at];
    const page = Math.max(1, Math.floor((scroller.current?.clientHeight ?? 600) / ROW) - 2);
    const moves: Record<string, number> = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: shown.rows.length - 1, PageDown: at + page, PageUp: at - page };
    const move = moves[event.key];
    if (move !== undefined) setCursor(Math.max(0, Math.min(shown.rows.length - 1, move)));
    else if (event.key === "ArrowRight" && tree && row) {
      if (row.branch && !row.open) toggle(row, true);
      else if (row.branch) setCursor(at + 1);
      else return;
    } else if (event.key === "ArrowLeft" && tree && row) {
      if (row.open) toggle(row, false);
      else {
        let up = at - 1;
        while (up >= 0 && shown.rows[up]!.depth >= row.depth) up--;
        if (up < 0) return;
        setCursor(up);
      }
    } else if (event.key === "*" && tree) changeTable(s.id, { opened: row ? withOpen(s, state, below(s, shown, at), true) : { base: "a", ids: [] } }, "quiet");
    else if (event.key === "Enter" && row) {
      const link = s.row_links?.[String(row.index)];
      if (link) go(linkView(link), "push");
      else select(row);
    } else if (event.key === " " && row) select(row);
    else if (event.key === "Escape" && (state.row || at >= 0)) {
      setCursor(-1);
      if (state.row) selectRow([s, ...twins], "");
    } else if (event.key === "c" && row) {
      void copyText(rowText(s, columns.map((c) => c.column), row.index), "the row").then((ok) => {
        setCopied(ok);
        window.setTimeout(() => setCopied(false), 1500);
      });
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };

  const { widths: usual, tall } = fit(columns, rooms.value[s.id] ?? 1000);
  const widths = withChosen(s.id, columns, usual);
  const least = widths.reduce((sum, w) => sum + w, 0);
  const id = (index: number): string => `${s.id}-row-${index}`;
  return (
    <>
      <div
        class={`table-scroll ${windowed ? "windowed" : ""} ${shown.waiting ? "is-waiting" : ""}`} ref={scroller} aria-busy={shown.waiting ? true : undefined} tabIndex={0} role="group" aria-label={`${s.title}, rows`} aria-activedescendant={at >= 0 ? id(at) : undefined}
        onKeyDown={keys} onFocus={(e) => { if (e.target === scroller.current && at < 0 && e.currentTarget.matches(":focus-visible")) setCursor(Math.max(0, selected)); }}
      >
        <table class={`table ${ranked ? "as-list" : ""} ${tall ? "tall" : ""}`} role={tree ? "treegrid" : undefined} aria-rowcount={shown.rows.length + 1} style={ranked ? undefined : { minWidth: `${Math.floor(least)}px` }}>
          {!ranked && <colgroup>{widths.map((w) => <col style={{ width: `${Math.floor(w)}px` }} />)}</colgroup>}
          <thead hidden={ranked}>
            <tr>
              {columns.map((c, i) => (
                <th
                  key={c.column.name} scope="col" class={`${c.numeric ? "right" : ""} ${sort?.column === c.column.name ? "sorted" : ""}`}
                  aria-sort={sort?.column === c.column.name ? (sort.descending ? "descending" : "ascending") : "none"}
                >
                  <button type="button" onClick={() => order(c.column.name)} data-tip={c.column.doc || undefined}>
                    {c.heading}
                    {sort?.column === c.column.name && <span class="arrow" aria-hidden="true">{sort.descending ? "↓" : "↑"}</span>}
                  </button>
                  <Popover class="head-caret" label={`${c.column.label}: order, filter, hide`} fixed button={<Icon name="down" size={12} />}>
                    {(close) => <HeadMenu s={s} l={c} lead={i === 0} close={close} />}
                  </Popover>
                  <Edge s={s} column={c} width={widths[i]!} />
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {s.total && !shown.filtered && (
              <tr class="total">{columns.map((c) => <td class={cellClass(c)}><TotalCell s={s} layoutOf={c} /></td>)}</tr>
            )}
            {shown.filtered && shown.count > 0 && Object.keys(shown.sums).length > 0 && (
              <ShownTotal s={s} columns={columns} shown={shown} />
            )}
            {rows.before > 0 && <tr aria-hidden="true" class="gap"><td colSpan={columns.length} style={{ height: `${rows.before}px` }} /></tr>}
            {rows.items.map(({ index }) => {
              const row = shown.rows[index];
              if (!row) return shown.order ? <Absent key={`absent-${index}`} s={s} order={shown.order} index={index} id={id(index)} cursor={index === at} span={columns.length} /> : null;
              return (
                <tr
                  key={row.id} id={id(index)} data-at={index} data-key={row.key} aria-rowindex={index + 2}
                  class={`${row.key === state.row ? "selected" : ""} ${index === at ? "cursor" : ""} ${row.last ? "outside" : ""}`}
                  aria-selected={row.key === state.row} aria-level={tree ? row.depth + 1 : undefined} aria-expanded={tree && row.branch ? row.open : undefined}
                  onClick={() => { if (!window.getSelection()?.toString()) { setCursor(index); select(row); } }}
                  onDblClick={() => { const link = s.row_links?.[String(row.index)]; if (link) go(linkView(link), "push"); }}
                >
                  {ranked ? <td><RankedRow s={s} index={row.index} /></td> : columns.map((c) => <td class={cellClass(c)}><Cell s={s} layoutOf={c} row={row} onToggle={toggle} /></td>)}
                </tr>
              );
            })}
            {rows.after > 0 && <tr aria-hidden="true" class="gap"><td colSpan={columns.length} style={{ height: `${rows.after}px` }} /></tr>}
          </tbody>
        </table>
        {shown.waiting?.error && <p class="section-empty" role="alert"><NotCome s={s} order={shown.waiting} what="These rows" /></p>}
        {!shown.rows.length && !shown.waiting && (
          <p class="section-empty">
            {shown.filtered ? <>Nothing passes the filters. <button type="button" class="link" onClick={() => { clearFilters(s, main); }}>Clear them</button></> : <Text text={s.empty || "No rows."} />}
          </p>
        )}
      </div>
      {!ranked && state.row && <RowCard s={s} report={report} shown={shown} selected={state.row} onClose={() => selectRow([s, ...twins], "")} />}
      {!ranked && (s.footer || tree || s.row_links || shown.rows.length > 8) && (
        <div class="table-foot">
          <span class="keys">{copied ? <><Icon name="check" size={12} /> Copied the row</> : tree ? `→ open, ← close, * open ${s.pages ? "a level more" : "all below"}, space selects, C copies the row` : `↑ ↓ move, ${s.row_links ? "Enter opens, space selects" : "Enter selects"}, C copies the row`}</span>
          {s.footer && <span class="definition"><Text text={s.footer} /></span>}
          {!!s.truncated && <span class="definition">{number(s.truncated, 0)} more rows were left out.</span>}
        </div>
      )}
    </>
  );
}

/** The row of sums over the shown rows of a filtered table; its words take the room up to the first sum. */
function ShownTotal({ s, columns, shown }: { s: TableSection; columns: ColumnLayout[]; shown: Shown }): JSX.Element | null {
  const first = columns.findIndex((c) => c.column.name in shown.sums);
  if (first < 0) return null;
  return (
    <tr class="total shown-total">
      {first > 0 && <td colSpan={first}><span class="ellipsis">{`shown: ${number(shown.count, 0)} of ${number(shown.of, 0)}`}</span></td>}
      {columns.slice(first).map((c) => <td class={cellClass(c)}><ShownTotalCell s={s} layoutOf={c} shown={shown} /></td>)}
    </tr>
  );
}

/** A row that has not come: it is being requested, or that failed. */
function Absent({ s, order, index, id, cursor, span }: { s: TableSection; order: Order; index: number; id: string; cursor: boolean; span: number }): JSX.Element {
  const failed = [...order.failed.keys()].some((first) => index >= first && Math.floor(index / BLOCK) === Math.floor(first / BLOCK));
  return (
    <tr id={id} data-at={index} aria-rowindex={index + 2} aria-busy={!failed} class={`absent ${cursor ? "cursor" : ""}`}>
      <td colSpan={span}>{failed ? <NotCome s={s} order={order} what="This row" /> : <span class="quiet" aria-label="Loading">…</span>}</td>
    </tr>
  );
}

/** Why rows did not come, and what can be done. */
function NotCome({ s, order, what }: { s: TableSection; order: Order; what: string }): JSX.Element {
  const error = order.error ?? [...order.failed.values()][0];
  if (error?.body.code === "changed") return <>The recording has changed. <button type="button" class="link" onClick={readAgain}>Read it again</button></>;
  return <>{what} could not be loaded: {error?.message ?? ""} <button type="button" class="link" onClick={() => pagedOf(s)?.retry(order)}>Try again</button></>;
}

/** Where all shown rows and columns of a table in pages can be saved from; null for one that is whole. */
export const csvAddress = (s: TableSection, main: boolean): string | null =>
  pagedOf(s)?.csvAddress(choiceNow(s, tableOf(s.id), findOf(s, main), null), shownColumns(s).map((c) => c.column.name)) ?? null;

const cellClass = (c: ColumnLayout): string => `${c.numeric ? "right" : ""} ${hasBar(c.column) ? "barred" : ""}`;
