// The legend above a figure of boxes: what their colors mean, and a switch between two ways to color them.
import type { JSX } from "preact";
import type { FigureSection } from "../../api/types";
import { changeFigure, view } from "../../state/view";
import { Switch } from "../../ui/controls";
import { paint } from "../../ui/theme";
import { boxScale, SCALE } from "./boxes";

/** How the boxes are colored, kept in the figure's text as `c:own`. */
export const paintOf = (text: string): "given" | "own" => (text.split(";").includes("c:own") ? "own" : "given");
const withPaint = (text: string, how: string): string => [...text.split(";").filter((p) => p && !p.startsWith("c:")), ...(how === "own" ? ["c:own"] : [])].join(";");

export function BoxScale({ s, partial }: { s: FigureSection; partial: boolean }): JSX.Element | null {
  const scale = boxScale(s.figure.data ?? []);
  if (!scale?.efficiency) return null;
  const text = view.value.figures[s.id] ?? "";
  const now = paintOf(text);
  return (
    <div class="scale">
      {now === "given" ? (
        <span class="scale-key" role="img" aria-label="Color: efficiency from 0 to 100 % of the limit">
          0 %<span class="ramp" style={{ background: `linear-gradient(to right, ${SCALE.map(paint).join(", ")})` }} />100 % of its limit
          {scale.unknown && <><span class="swatch idle" />no cost model</>}
          {partial && <><span class="swatch part" data-tip="The color is that of the modeled part" />partly modeled</>}
        </span>
      ) : (
        <span class="scale-key" role="img" aria-label="Color: self part, from none to the largest">
          all in the boxes below<span class="ramp" style={{ background: "linear-gradient(to right, var(--sunken), var(--compute))" }} />largest self part
        </span>
      )}
      {scale.self && <Switch label="Color" value={now} onPick={(how) => changeFigure(s.id, withPaint(text, how), "quiet")} choices={[{ value: "given", text: "Efficiency" }, { value: "own", text: "Self" }]} />}
    </div>
  );
}
