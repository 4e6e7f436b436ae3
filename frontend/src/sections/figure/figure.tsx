// A figure in its card: drawn when it nears the screen and the tables stand, redrawn for theme, width, selection and filter.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { FigureSection, TableSection } from "../../api/types";
import { changeFigure, changeTable, tableOf, view } from "../../state/view";
import { Icon, Mark as Shape } from "../../ui/icons";
import { ReportLink } from "../../ui/link";
import { Middle } from "../../ui/text";
import { dark, MARKS, paint, themed, token } from "../../ui/theme";
import { cell, keyOf, textual } from "../table/model";
import { shownOf } from "../table/table";
import { Value } from "../value";
import { draw, picture, purge, resize, type PlotElement, type PlotEvent } from "./plotly";
import { legendOf, pointKey, ready, zoomText } from "./template";

interface FigureProps {
  s: FigureSection;
  table: TableSection | null;
  main: boolean;
}

function keptKeys(table: TableSection | null, main: boolean): Set<string> | null {
  if (!table || table.tree) return null;
  const shown = shownOf(table, main);
  return shown.filtered ? new Set(shown.rows.map((r) => keyOf(table, r.index))) : null;
}

export function Figure({ s, table, main }: FigureProps): JSX.Element {
  const holder = useRef<HTMLDivElement>(null);
  const plot = useRef<HTMLDivElement>(null);
  const bound = useRef(false);
  const [near, setNear] = useState(false);
  const [[width, height], setSize] = useState<[number, number]>([0, 0]);
  const [failed, setFailed] = useState("");
  const [drawn, setDrawn] = useState(false);
  const [hidden, setHidden] = useState<string[]>([]);
  const isDark = dark.value;
  const selected = table ? tableOf(table.id).row : "";
  const zoom = view.value.figures[s.id] ?? "";
  const keep = keptKeys(table, main);
  const keepKey = keep ? [...keep].join("\u0001") : "";
  const legend = legendOf(s);

  useEffect(() => {
    const el = holder.current!;
    const seen = new IntersectionObserver(([entry]) => { if (entry?.isIntersecting) setNear(true); }, { rootMargin: "400px" });
    const sized = new ResizeObserver(() => setSize(([w, h]) => (w === el.clientWidth && h === el.clientHeight ? [w, h] : [el.clientWidth, el.clientHeight])));
    seen.observe(el);
    sized.observe(el);
    return () => {
      seen.disconnect();
      sized.disconnect();
      if (plot.current) void purge(plot.current);
    };
  }, []);

  useEffect(() => {
    const el = plot.current;
    if (!near || !el || width < 40) return;
    let live = true;
    const timer = window.setTimeout(() => {
      const { data, layout } = ready(s, { themed, token, width, height, selected, keep, zoom });
      const shown = hidden.length ? data.filter((t) => !hidden.includes(String(t["name"]))) : data;
      draw(el, shown, layout).then((el) => { if (live) listen(el); }, (error: Error) => { if (live) setFailed(error.message); });
    }, 0);
    const listen = (drawn: PlotElement): void => {
      setDrawn(true);
      if (bound.current) return;
      bound.current = true;
      drawn.on("plotly_click", (event: PlotEvent) => {
        const key = pointKey(event.points[0]?.customdata);
        if (key !== null && table) changeTable(table.id, { row: tableOf(table.id).row === key ? "" : key }, "quiet");
      });
      drawn.on("plotly_relayout", (changes: Record<string, unknown>) => {
        const before = view.peek().figures[s.id] ?? "";
        const after = zoomText(changes, before);
        if (after !== before) changeFigure(s.id, after);
      });
      for (const name of ["icicle", "treemap", "sunburst"]) {
        drawn.on(`plotly_${name}click`, (event: PlotEvent) => { changeFigure(s.id, zoomText({ level: event.nextLevel ?? "" }, view.peek().figures[s.id] ?? "")); });
      }
      void resize(el);
    };
    return () => {
      live = false;
      window.clearTimeout(timer);
    };
  }, [s, near, width, height, isDark, selected, keepKey, zoom, hidden]);

  return (
    <>
      {legend.length > 0 && (
        <div class="legend row" role="group" aria-label="Series">
          {legend.map((item) => (
            <button type="button" class={`legend-item toggle ${hidden.includes(item.name) ? "off" : ""}`} aria-pressed={!hidden.includes(item.name)} onClick={() => setHidden(hidden.includes(item.name) ? hidden.filter((n) => n !== item.name) : [...hidden, item.name])}>
              {item.symbol ? <Shape shape={item.symbol} color={themed(item.color)} /> : <span class={`swatch ${item.hatched ? "idle" : ""}`} style={item.hatched ? undefined : { background: themed(item.color) }} />}
              {item.name}
            </button>
          ))}
        </div>
      )}
      <div class={`figure ${drawn || failed ? "" : "undrawn"}`} ref={holder} style={{ minHeight: `${s.height ?? 320}px` }} role="img" aria-label={s.summary || s.title}>
        {failed ? <p class="section-empty">{failed}</p> : <div ref={plot} class="plot" data-figure={s.id} />}
        {table && selected && width >= 560 && <Pinned table={table} selected={selected} />}
        {zoom && <button type="button" class="figure-reset text-button" onClick={() => changeFigure(s.id, "")}>Whole figure</button>}
      </div>
    </>
  );
}

const PINNED = 7;

/** The selected row beside its point: name, its first numbers, where it leads. */
function Pinned({ table, selected }: { table: TableSection; selected: string }): JSX.Element | null {
  const index = table.data[table.key ?? ""]?.findIndex((k) => String(k) === selected) ?? -1;
  if (index < 0) return null;
  const shown = table.columns.filter((c) => (c.rank ?? 1) < 3);
  const name = shown.find(textual);
  const numbers = shown.filter((c) => !textual(c) && typeof cell(table, c.name, index) === "number").slice(0, PINNED);
  const link = table.row_links?.[String(index)];
  const member = String((name?.color_by && cell(table, name.color_by, index)) || "");
  return (
    <div class="pinned" role="status" aria-label="Selected">
      <div class="pinned-head">
        {MARKS[member] && <Shape shape={MARKS[member]!} color={paint(member)} />}
        <span class="mono"><Middle text={String(name ? cell(table, name.name, index) : selected)} /></span>
        <button type="button" class="ghost" aria-label="Clear the selection" onClick={() => changeTable(table.id, { row: "" }, "quiet")}><Icon name="close" size={12} /></button>
      </div>
      <dl>{numbers.map((c) => <div><dt>{c.label}</dt><dd><Value value={cell(table, c.name, index)} unit={c.unit ?? ""} mark={table.marks?.[c.name]?.[String(index)]} doc={c.doc} /></dd></div>)}</dl>
      {link && <ReportLink link={link} fallback="Open" />}
    </div>
  );
}

/** The figure as a picture file, in the theme it is seen in. */
export async function saveFigure(s: FigureSection, format: "png" | "svg", title: string): Promise<void> {
  const width = 1100;
  const { data, layout } = ready(s, { themed, token, width, height: 0, selected: "", keep: null, zoom: view.peek().figures[s.id] ?? "" });
  const url = await picture(data, { ...layout, autosize: false }, format, token("surface"), width, s.height ?? 320);
  const a = document.createElement("a");
  a.href = url;
  a.download = `${title.replace(/[^\w.-]+/g, "_")}.${format}`;
  a.click();
}
