// Tools of a figure: what dragging does, an area typed in numbers, a link to its table, saving a picture.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { FigureSection } from "../../api/types";
import { changeFigure, view } from "../../state/view";
import { readQuantity, scaleOf } from "../../units";
import { plain } from "../../markup";
import { Switch } from "../../ui/controls";
import { Icon } from "../../ui/icons";
import { Popover } from "../../ui/popover";
import { areasOf, brushable, pairsOf, withAreas, type Area } from "./area";
import { dragOf, setDrag } from "./drag";
import { saveFigure } from "./figure";

export function FigureTools({ s }: { s: FigureSection }): JSX.Element {
  const jump = (): void => {
    const card = document.getElementById(`s-${s.table}`);
    card?.scrollIntoView({ block: "start", behavior: "smooth" });
    card?.querySelector<HTMLElement>(".table-scroll")?.focus({ preventScroll: true });
  };
  return (
    <>
      {brushable(s) && (
        <Popover label={`Select an area of ${s.title}`} tip="Drag in the chart, or type an area in numbers" class="text-button" align="right" wide button={<><Icon name="area" size={14} /><span class="word">Select</span></>}>
          {(close) => <AreaForm s={s} close={close} />}
        </Popover>
      )}
      {s.table && <button type="button" class="text-button accent" data-tip="The same numbers as a table" onClick={jump}>Table</button>}
      <Popover label={`Save ${s.title} as a picture`} class="text-button" align="right" button={<Icon name="image" size={14} />}>
        {(close) => (
          <div class="list">
            {(["png", "svg"] as const).map((format) => <button type="button" class="option" onClick={() => { void saveFigure(s, format, s.title); close(); }}>{format.toUpperCase()}</button>)}
          </div>
        )}
      </Popover>
    </>
  );
}

/** The title of an axis, else its letter. */
function axisName(s: FigureSection, letter: "x" | "y", axes: string): string {
  const axis = (s.figure.layout?.[`${letter}axis${axes}`] ?? {}) as { title?: { text?: string } | string };
  const title = typeof axis.title === "string" ? axis.title : axis.title?.text;
  return plain(title ?? "") || (letter === "x" ? "across" : "up");
}

/** A bound as a person would type it: `1 T`, `0.25`. */
function shown(value: number | null | undefined): string {
  if (typeof value !== "number") return "";
  const { factor, name } = scaleOf(value, "FLOP");
  return `${Number((value / factor).toPrecision(4))} ${name.replace("FLOP", "")}`.trim();
}

/** A form for an area, as dragging a box gives: an empty field is no bound. */
function AreaForm({ s, close }: { s: FigureSection; close: () => void }): JSX.Element {
  const text = view.value.figures[s.id] ?? "";
  const now = areasOf(text);
  const [axes, setAxes] = useState(now[0]?.axes ?? pairsOf(s)[0] ?? "");
  const area = now.find((a) => a.axes === axes);
  const [ends, setEnds] = useState([shown(area?.x[0]), shown(area?.x[1]), shown(area?.y[0]), shown(area?.y[1])]);
  const numbers = ends.map((t) => (t.trim() ? readQuantity(t) : null));
  const bad = ends.map((t, i) => t.trim() !== "" && numbers[i] === null);
  const apply = (): void => {
    if (bad.some(Boolean)) return;
    const next: Area[] = numbers.every((n) => n === null) ? [] : [{ axes, x: [numbers[0]!, numbers[1]!], y: [numbers[2]!, numbers[3]!] }];
    changeFigure(s.id, withAreas(text, next), "push");
    close();
  };
  const field = (i: number, label: string): JSX.Element => (
    <input
      class="typed bound" type="text" size={8} aria-label={label} aria-invalid={bad[i]} placeholder="any" value={ends[i]} data-first={i === 0 ? true : undefined}
      onInput={(e) => { const value = e.currentTarget.value; setEnds((was) => was.map((t, k) => (k === i ? value : t))); }} onKeyDown={(e) => { if (e.key === "Enter") apply(); }}
    />
  );
  return (
    <div class="form">
      <div class="form-row"><span class="field-label">Dragging</span><Switch label="Dragging" value={dragOf(s.id)} onPick={(v) => setDrag(s.id, v as "zoom" | "select")} choices={[{ value: "select", text: "selects rows" }, { value: "zoom", text: "zooms" }]} /></div>
      {pairsOf(s).length > 1 && <div class="form-row"><span class="field-label">Area of</span><Switch label="Area of" value={axes} onPick={setAxes} choices={pairsOf(s).map((a) => ({ value: a, text: a === "" ? "the chart" : "the strip" }))} /></div>}
      <div class="form-line above"><span>{axisName(s, "x", axes)}</span>{field(0, "from, across")}<span class="quiet">to</span>{field(1, "to, across")}</div>
      {axes === "" && <div class="form-line above"><span>{axisName(s, "y", axes)}</span>{field(2, "from, up")}<span class="quiet">to</span>{field(3, "to, up")}</div>}
      <p class="form-note">Numbers in base units; k, M, G, T and P are understood.</p>
      <div class="form-row end">
        {now.length > 0 && <button type="button" class="button" onClick={() => { changeFigure(s.id, withAreas(text, []), "quiet"); close(); }}>Clear</button>}
        <button type="button" class="button primary" disabled={bad.some(Boolean)} onClick={apply}>Select</button>
      </div>
    </div>
  );
}
