// A figure in its card: drawn when it nears the screen and the tables are drawn, again after changes of theme, width, selection and filter.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { FigureSection, TableSection } from "../../api/types";
import { change, changeFigure, tableOf, view } from "../../state/view";
import { Mark as Shape } from "../../ui/icons";
import { dark, themed, token } from "../../ui/theme";
import { hasChart, insideOf, selectRow } from "../linked";
import { partialKeys, passingKeys } from "../table/model";
import { findOf } from "../table/table";
import { areasOf, areasOfRange, brushable, withAreas } from "./area";
import { dragOf } from "./drag";
import { Pinned, type Spot } from "./pinned";
import { clickedAt, draw, hideCollisions, keepOff, picture, placeOf, purge, resize, type PlotElement, type PlotEvent } from "./plotly";
import { BoxScale, paintOf } from "./scale";
import { legendOf, pointKey, ready, zoomText } from "./template";
import { coveredBy, draggedRange, momentText, windowText } from "./window";

interface FigureProps {
  s: FigureSection;
  table: TableSection | null;
  /** the other tables that hold the same rows */
  twins: TableSection[];
  main: boolean;
}

const NONE: ReadonlySet<string> = new Set();
/** Whether the labels of a figure stand in the order of their importance, so that the last ones give way in a narrow window. */
const byImportance = (layout: object): boolean => (layout as { meta?: { labels?: unknown } }).meta?.labels === "by importance";

/** Asks for other values of the page's query; "" leaves a field at its default. */
function ask(fields: Record<string, string>): void {
  change({ query: Object.fromEntries(Object.entries({ ...view.peek().query, ...fields }).filter(([, value]) => value !== "")) }, "push");
}

/** The parts of a figure's text that hide something of it: ranges of axes, the level of boxes. */
const ZOOMED = /(^|;)([xy]\d*|l):/;

/** Narrower than this there is no room for a card at a point: the row is in the table. */
const CARD_FROM = 560;

export function Figure({ s, table, twins, main }: FigureProps): JSX.Element {
  const container = useRef<HTMLDivElement>(null);
  const plot = useRef<HTMLDivElement>(null);
  const bound = useRef<PlotElement["on"] | null>(null);
  const [near, setNear] = useState(false);
  const [[width, height], setSize] = useState<[number, number]>([0, 0]);
  const [failed, setFailed] = useState("");
  const [drawn, setDrawn] = useState(false);
  const [hidden, setHidden] = useState<string[]>([]);
  const isDark = dark.value;
  const selected = table ? tableOf(table.id).row : "";
  const zoom = view.value.figures[s.id] ?? "";
  const keep = table && !table.tree ? passingKeys(table, tableOf(table.id), findOf(table, main)) : null;
  const inside = insideOf(s);
  const drag = brushable(s) ? dragOf(s.id) : "zoom";
  const [spot, setSpot] = useState<Spot | null>(null);
  const [shows, setShows] = useState(false); // the selected row is drawn here
  const known = useRef<{ s: FigureSection; table: TableSection | null; twins: TableSection[] }>({ s, table, twins });
  known.current = { s, table, twins };
  const covered = coveredBy(s.stretches, (id) => tableOf(id).row);
  const keepKey = keep && ["kept", ...keep].join("\u0001"); // nothing kept is not everything
  const legend = legendOf(s);

  useEffect(() => {
    const el = container.current!;
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
      const { data, layout, point, shows } = ready(s, { themed, token, width, height, selected, keep, zoom, areas: areasOf(zoom), inside, drag, paint: paintOf(zoom), partial: table ? partialKeys(table) : NONE, covered });
      const shown = hidden.length ? data.filter((t) => !hidden.includes(String(t["name"]))) : data;
      draw(el, shown, layout, s.zoom ? false : "reset").then((el) => { if (!live) return; setShows(shows); if (byImportance(layout)) hideCollisions(el); listen(el, point && placeOf(el, point.axes, point.x, point.y), point?.radius ?? 0); }, (error: Error) => { if (live) setFailed(error.message); });
    }, 0);
    const listen = (drawn: PlotElement, at: { x: number; y: number } | null, radius: number): void => {
      setDrawn(true);
      setSpot(at && { ...at, radius });
      if (bound.current === drawn.on) return; // Plotly gives each element that it draws anew another one
      bound.current = drawn.on;
      drawn.on("plotly_click", (event: PlotEvent) => {
        const { zoom, asks } = known.current.s;
        const row = asks?.[String(event.points[0]?.y)];
        if (row) {
          ask(row);
          return;
        }
        if (zoom) {
          const place = zoom.at ? clickedAt(drawn, event) : null;
          const text = place && momentText(place.x, place.width, zoom);
          if (zoom.at && text) ask({ [zoom.at]: text });
          return;
        }
        const key = pointKey(event.points[0]?.customdata);
        const { table, twins } = known.current;
        if (key !== null && table) selectRow([table, ...twins], tableOf(table.id).row === key ? "" : key);
      });
      drawn.on("plotly_hover", () => keepOff(drawn, container.current?.querySelector(".pinned")));
      drawn.on("plotly_selected", (event: PlotEvent | undefined) => {
        const areas = areasOfRange(event?.range);
        if (areas.length) changeFigure(s.id, withAreas(view.peek().figures[s.id] ?? "", areas), "push");
      });
      drawn.on("plotly_deselect", () => changeFigure(s.id, withAreas(view.peek().figures[s.id] ?? "", []), "quiet"));
      drawn.on("plotly_relayout", (changes: Record<string, unknown>) => {
        const zoom = known.current.s.zoom;
        if (zoom) {
          const range = draggedRange(changes);
          const text = range && windowText(range, zoom);
          if (text) ask({ [zoom.window]: text, ...(zoom.at ? { [zoom.at]: "" } : {}) });
          return;
        }
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
  }, [s, near, width, height, isDark, selected, keepKey, zoom, hidden, drag, covered]);

  useEffect(() => { if (plot.current) keepOff(plot.current, container.current?.querySelector(".pinned")); }, [spot]); // after the card has found its place

  return (
    <>
      {legend.length > 0 && (
        <div class="legend row" role="group" aria-label="Series">
          {legend.map((item) => (
            <button type="button" class={`legend-item series ${hidden.includes(item.name) ? "off" : ""}`} aria-pressed={!hidden.includes(item.name)} onClick={() => setHidden(hidden.includes(item.name) ? hidden.filter((n) => n !== item.name) : [...hidden, item.name])}>
              {item.symbol ? <Shape shape={item.symbol} color={themed(item.color)} /> : <span class={`swatch ${item.hatched ? "idle" : ""}`} style={item.hatched ? undefined : { background: themed(item.color), opacity: item.opacity }} />}
              {item.name}
            </button>
          ))}
        </div>
      )}
      <BoxScale s={s} partial={!!table && partialKeys(table).size > 0} />
      <div class={`figure ${drawn || failed ? "" : "undrawn"}`} ref={container} style={{ minHeight: `${s.height ?? 320}px` }}>
        {failed ? <p class="section-empty">{failed}</p> : <div ref={plot} class="plot" data-figure={s.id} role="img" aria-label={s.summary || s.title} />}
        {table && selected && shows && drawn && width >= CARD_FROM && (spot || !hasChart(table)) && <Pinned key={selected} table={table} selected={selected} spot={spot} room={{ width, height }} onClose={() => selectRow([table, ...twins], "")} />}
        {ZOOMED.test(zoom) && <button type="button" class="figure-reset text-button" onClick={() => changeFigure(s.id, zoom.split(";").filter((p) => !ZOOMED.test(p)).join(";"))}>Whole figure</button>}
      </div>
    </>
  );
}

/** The figure as a picture file, in the theme it is seen in. */
export async function saveFigure(s: FigureSection, format: "png" | "svg", title: string): Promise<void> {
  const width = 1100;
  const { data, layout } = ready(s, { themed, token, width, height: 0, selected: "", keep: null, zoom: view.peek().figures[s.id] ?? "", areas: [], inside: null, drag: "zoom", paint: paintOf(view.peek().figures[s.id] ?? ""), partial: NONE });
  const url = await picture(data, { ...layout, autosize: false }, format, token("surface"), width, s.height ?? 320);
  const a = document.createElement("a");
  a.href = url;
  a.download = `${title.replace(/[^\w.-]+/g, "_")}.${format}`;
  a.click();
}
