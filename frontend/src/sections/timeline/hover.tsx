// The card at the pointer: what an item is, from the tiles at once, from the server a moment later.
import type { JSX } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { human, moment } from "../../units";
import type { TimelineModel } from "./model";
import { lengthOf } from "./viewport";

const BESIDE = 14;

export function HoverCard({ model }: { model: TimelineModel }): JSX.Element | null {
  const item = model.hover.value;
  const reading = model.reading.value;
  const at = item ?? reading;
  const card = useRef<HTMLDivElement>(null);
  const pixel = lengthOf(model.window.value) / model.width.value;
  useLayoutEffect(() => {
    const el = card.current;
    const plot = el?.closest(".tl")?.querySelector(".tl-canvas")?.getBoundingClientRect();
    if (!el || !plot || !at) return;
    const { width, height } = el.getBoundingClientRect();
    const [x, y] = [plot.left + at.x, plot.top + at.y];
    el.style.left = `${x + BESIDE + width > window.innerWidth - 8 ? Math.max(8, x - BESIDE - width) : x + BESIDE}px`;
    el.style.top = `${y + BESIDE + height > window.innerHeight - 8 ? Math.max(8, y - BESIDE - height) : y + BESIDE}px`;
  });
  if (!item) {
    return reading && (
      <div class="tl-hover" ref={card} role="tooltip">
        <strong>{reading.track.label}</strong>
        <dl>{[...reading.rows, ["At", moment(reading.time, pixel)] as const].map(([k, v]) => <div><dt>{k}</dt><dd>{v}</dd></div>)}</dl>
      </div>
    );
  }
  const known = model.hovered.value;
  const longest = known && known.event === item.event && known.track === item.track.track ? known : null;
  const detail = item.count === 1 ? longest : null;
  const length = detail?.duration_ns ?? item.end - item.start;
  const own = detail?.self_ns ?? item.nesting.own;
  const around = detail ? detail.parents[0]?.duration_ns : item.nesting.parent;
  const rows: [string, string][] = item.count > 1
    ? [["Events", `${item.count === 65535 ? "≥ " : ""}${human(item.count, "count")}, merged below one pixel`], ["From", moment(item.start, pixel)], ["Length", human(item.end - item.start, "ns")], ["Busy", human(item.busy, "ratio")], ...(longest ? [["Longest", human(longest.duration_ns, "ns")] as [string, string]] : [])]
    : [
        ["Duration", human(length, "ns")], ["Start", moment(detail?.start_ns ?? item.start, pixel)],
        ...(own !== null && own !== length ? [["Self", human(own, "ns")] as [string, string]] : []),
        ...(around ? [["Of its parent", human(length / around, "ratio")] as [string, string]] : []),
        ...(detail?.fields ?? []).filter((f) => ["Limit", "Limit of the operator call", "Speed of light", "Speed of light of the call", "From its launch", "Bandwidth", "Operator"].includes(f.label)).map((f): [string, string] => [f.label, `${f.mark === "estimated" ? "≈ " : ""}${typeof f.value === "number" ? human(f.value, f.unit) : f.value}`]),
      ];
  const [name, whole] = [model.names.value.short(item.name), model.names.value.at(item.name)];
  return (
    <div class="tl-hover" ref={card} role="tooltip">
      <strong class="code">{item.count > 1 ? `longest: ${name}` : name}</strong>
      {whole !== name && <span class="code quiet tl-whole">{whole}</span>}
      <span class="quiet">{item.track.label}</span>
      <dl>{rows.map(([k, v]) => <div><dt>{k}</dt><dd>{v}</dd></div>)}</dl>
      {item.count > 1 && <span class="quiet">Click: zoom until they stand apart</span>}
    </div>
  );
}
