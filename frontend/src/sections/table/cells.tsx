// One cell of a table, by the way its column is shown.
import type { ComponentChildren, JSX } from "preact";
import type { Column, Link, Mark, Scalar, TableSection } from "../../api/types";
import { linkView } from "../../state/view";
import { plain } from "../../markup";
import { exact, inColumn, human } from "../../units";
import { Icon, Mark as Shape } from "../../ui/icons";
import { ViewLink } from "../../ui/link";
import { Middle } from "../../ui/text";
import { markOf, paint, PALE } from "../../ui/theme";
import { Marked, whyText } from "../value";
import { shapeText, type ColumnLayout } from "./columns";
import { cell, parentText, wholeText, type Row, type Shown } from "./model";
import { partsOf } from "./names";
import { pagedOf } from "./pages";
import { timelineLink } from "./stretch";

interface CellProps {
  s: TableSection;
  layoutOf: ColumnLayout;
  row: Row;
  onToggle?: (row: Row) => void;
}

export function Cell({ s, layoutOf, row, onToggle }: CellProps): JSX.Element {
  const c = layoutOf.column;
  const at = String(row.index);
  const value = cell(s, c.name, row.index);
  const mark = s.marks?.[c.name]?.[at];
  const link = s.cell_links?.[c.name]?.[at] ?? (s.timeline?.column === c.name ? timelineLink(s, row.index) : undefined);
  if (c.show === "tree") return <TreeCell s={s} c={c} row={row} value={value} link={link} {...(onToggle && { onToggle })} />;
  return <Linked link={link}><Content s={s} layoutOf={layoutOf} index={row.index} value={value} mark={mark} /></Linked>;
}

/** The same cell in the total row, where values come from `total`. */
export function TotalCell({ s, layoutOf }: { s: TableSection; layoutOf: ColumnLayout }): JSX.Element | null {
  const value = s.total?.[layoutOf.column.name];
  if (value === undefined) return null;
  if (value === null && !layoutOf.numeric) return null;
  return <Content s={s} layoutOf={layoutOf} index={-1} value={value} mark={s.marks?.[layoutOf.column.name]?.["total"]} />;
}

/** The sum over the shown rows of a filtered table: of a column whose rows add up. */
export function ShownTotalCell({ s, layoutOf, shown }: { s: TableSection; layoutOf: ColumnLayout; shown: Shown }): JSX.Element | null {
  const c = layoutOf.column;
  if (!(c.name in shown.sums)) return null;
  const value = shown.sums[c.name] ?? 0;
  const total = Number(s.total?.[c.name]);
  const tip = [`${exact(value, c.unit ?? "")} in the shown rows`, c.show !== "share" && total > 0 && `${human(value / total, "ratio")} of ${human(total, c.unit ?? "")} in all`].filter(Boolean).join("\n");
  return <span class="num" data-tip={tip}>{inColumn(value, layoutOf.scale)}</span>;
}

const partsIn = (s: TableSection, column: string): Map<string, [number, number]> => pagedOf(s)?.partsOf(column) ?? partsOf(s.data[column] ?? []);

const Linked = ({ link, children }: { link: Link | undefined; children: ComponentChildren }): JSX.Element => (link ? <ViewLink view={linkView(link)} class="cell-link" tip={link.label ? plain(link.label) : undefined}>{children}</ViewLink> : <>{children}</>);

function Content({ s, layoutOf, index, value, mark }: { s: TableSection; layoutOf: ColumnLayout; index: number; value: Scalar; mark: Mark | undefined }): JSX.Element {
  const c = layoutOf.column;
  if (value === null) return <Unknown c={c} mark={mark} />;
  if (layoutOf.numeric && typeof value === "number") return <Numeric s={s} layoutOf={layoutOf} index={index} value={value} mark={mark} />;
  if (typeof value === "boolean") return <span class={value ? "" : "quiet"}>{value ? "yes" : "no"}</span>;
  const text = String(value);
  if (index < 0) return <span class="ellipsis">{text}</span>;
  switch (c.show) {
    case "badge": return <>{text.split(",").map((t) => t.trim()).filter(Boolean).map((t) => <Badge text={t} plain={isUnmarked(s, c.name)} />)}</>;
    case "code": return <span class="mono"><Middle text={text} part={partsIn(s, c.name).get(text)} /></span>;
    case "shapes": return <span class="mono quiet"><Middle text={shapeText(text)} tip={text} /></span>;
    case "symbol": return <SymbolName name={text} full={wholeText(s, c, index)} part={partsIn(s, c.name).get(text)} member={String((c.color_by && cell(s, c.color_by, index)) || c.color || (markOf(text) ? text : "other"))} />;
    default: return <Marked mark={mark}><span class="ellipsis" data-tip={whyText(mark) || (text.length > 24 ? text : undefined)}>{text}</span></Marked>;
  }
}

function Unknown({ c, mark }: { c: Column; mark: Mark | undefined }): JSX.Element {
  const reason = (mark && (mark.why || whyText(mark))) || c.missing || "";
  return <span class="unknown" data-tip={reason || undefined} aria-label={reason ? `unknown: ${reason}` : "unknown"}>—</span>;
}

function Numeric({ s, layoutOf, index, value, mark }: { s: TableSection; layoutOf: ColumnLayout; index: number; value: number; mark: Mark | undefined }): JSX.Element {
  const c = layoutOf.column;
  const tip = [exact(value, c.unit || (c.show === "share" || c.show === "efficiency" ? "ratio" : "")), whyText(mark)].filter(Boolean).join("\n");
  const text = inColumn(value, layoutOf.scale);
  const figure = <span class="num" data-tip={tip}><Marked mark={mark} text={text}>{text}</Marked></span>;
  if (index < 0 && c.show !== "efficiency") return figure;
  if (c.show === "bar") {
    const member = (c.color_by && cell(s, c.color_by, index)) || c.color || "bar-ink";
    return <div class="with-bar"><Bar parts={[[String(member), value]]} full={layoutOf.full} />{figure}</div>;
  }
  if (c.show === "stack") {
    const parts = (c.parts ?? []).map((p, i): [string, number] => [c.part_colors?.[i] ?? "other", Number(cell(s, p, index)) || 0]);
    const label = (c.parts ?? []).map((p, i) => `${s.columns.find((k) => k.name === p)?.label ?? p}: ${human(parts[i]![1], c.unit)}`).join("\n");
    return <div class="with-bar"><Bar parts={parts} full={layoutOf.full} tip={label} />{figure}</div>;
  }
  if (c.show === "efficiency") {
    return (
      <div class="with-bar">
        <div class="bar-room"><div class="eff"><span style={{ width: `${Math.min(100, Math.max(0, value * 100))}%` }} /></div></div>
        {figure}
      </div>
    );
  }
  return figure;
}

function Bar({ parts, full, tip }: { parts: [string, number][]; full: number; tip?: string }): JSX.Element {
  return (
    <div class="bar-room" data-tip={tip}>
      <div class="cellbar">
        {parts.filter(([, v]) => v > 0).map(([member, v]) => (
          <span class={PALE.has(member) ? "pale" : ""} style={{ width: full > 0 ? `max(1.5px, ${Math.min(100, (v / full) * 100)}%)` : "0", background: paint(member) }} />
        ))}
      </div>
    </div>
  );
}

const BADGE: Record<string, [string, string]> = { compute: ["bound-compute", "triangle-up"], memory: ["bound-memory", "bar"], "too large": ["error", "x"], tight: ["warn", "bar"] };

const plainColumns = new WeakMap<readonly Scalar[], boolean>();

/** Whether the `other` of a column is no kind of work, so that it has no mark: no other value of the column has one. */
export function isUnmarked(s: TableSection, column: string): boolean {
  const values = s.data[column] ?? [];
  let plain = plainColumns.get(values);
  if (plain === undefined) {
    const named = new Set(values.flatMap((v) => (typeof v === "string" ? v.split(",").map((t) => t.trim()) : [])));
    plain = named.size > 1 && named.has("other") && [...named].every((t) => t === "other" || !(markOf(t) || BADGE[t]));
    plainColumns.set(values, plain);
  }
  return plain;
}

/** The mark that a value has wherever it stands: the shape of a kind or a direction, the glyph of a bound; null for other values. */
export function ValueMark({ text }: { text: string }): JSX.Element | null {
  const bound = BADGE[text];
  const shape = bound?.[1] ?? markOf(text);
  return shape ? <Shape shape={shape} color={paint(bound ? bound[0] : text)} /> : null;
}

export function Badge({ text, plain }: { text: string; plain?: boolean }): JSX.Element {
  const bound = BADGE[text];
  const mark = plain ? undefined : markOf(text);
  const color = bound ? paint(bound[0]) : mark ? paint(text) : undefined;
  const shape = bound?.[1] ?? mark;
  return (
    <span class={`badge ${bound ? "bound" : ""}`} style={bound ? { color, borderColor: `color-mix(in srgb, ${color} 42%, transparent)` } : undefined}>
      {shape && color && <Shape shape={shape} color={color} />}
      {text}
    </span>
  );
}

const SymbolName = ({ name, member, full = name, part }: { name: string; member: string; full?: string; part?: [number, number] | undefined }): JSX.Element => (
  <span class="symbol" aria-label={`${name}, ${member}`}>
    <Shape shape={markOf(member) ?? "circle"} color={paint(member)} />
    <span class="mono"><Middle text={name} tip={`${full}\n${member}`} part={part} /></span>
  </span>
);

/** A path without the part that its parent's row says already. */
const tail = (text: string, above: string | null): string => (above && text.startsWith(above + "/") ? text.slice(above.length + 1) : text);

function TreeCell({ s, c, row, value, link, onToggle }: { s: TableSection; c: Column; row: Row; value: Scalar; link: Link | undefined; onToggle?: (row: Row) => void }): JSX.Element {
  const text = tail(String(value ?? ""), parentText(s, c.name, row.index));
  const merged = /^(.*?)\s+(\d+)×$/.exec(text);
  const name = merged ? merged[1]! : text;
  const self = text.startsWith("self:") || row.last;
  return (
    <div class="tree-cell">
      {Array.from({ length: row.depth }, () => <span class="guide" />)}
      {row.branch ? (
        <button type="button" class={`caret ${row.open ? "open" : ""}`} tabIndex={-1} aria-label={row.open ? "Close" : "Open"} onClick={(e) => { e.stopPropagation(); onToggle?.(row); }}>
          <Icon name="right" size={14} />
        </button>
      ) : <span class="caret" />}
      <Linked link={link}><span class={self ? "quiet" : "mono"}>{c.color_by ? <SymbolName name={name} member={String(cell(s, c.color_by, row.index) ?? "other")} /> : <Middle text={name} />}</span></Linked>
      {merged && <span class="badge">{merged[2]}×</span>}
    </div>
  );
}
