// The names of the rows beside the plot: a tree, of which only the visible rows exist.
import type { JSX } from "preact";
import { Icon } from "../../ui/icons";
import { Middle } from "../../ui/text";
import { human } from "../../units";
import type { TimelineModel } from "./model";
import { type Row, visible } from "./rows";

interface TreeProps {
  model: TimelineModel;
  /** px scrolled and px of the plot */
  from: number;
  height: number;
  /** scrolls to a row */
  toRow: (row: Row) => void;
}

/** px of a name with a line below it; in a lower row both stand side by side. */
const LEAST = 36;
/** What is too long to stand beside a name. */
const SHORTER: Readonly<Record<string, string>> = { communication: "comm." };

const tipOf = (row: Row): string => {
  const { track: t } = row;
  const what = [t.path, t.detail && t.detail !== t.label ? t.detail : ""].filter(Boolean).join(" · ");
  const counts = t.kind === "counter" ? (t.max_value === null ? "" : `most ${human(t.max_value, t.unit)}`) : `${human(t.events, "count")} events${t.lanes > 1 ? ` in ${t.lanes} lanes` : ""}${t.launches ? `, launched ${human(t.launches, "count")} device events` : ""}`;
  return [what, counts].filter(Boolean).join("\n");
};

function RowLabel({ model, row, top, height }: { model: TimelineModel; row: Row; top: number; height: number }): JSX.Element {
  const { track } = row;
  const together = model.rows.arrangement.value.layout === "worker" && row.group; // rows of several workers under each other: whose is it
  const detail = together ? (model.shape.value?.alignment[track.worker]?.worker ?? "") : track.kind === "counter" && track.max_value !== null ? `up to ${human(track.max_value, track.unit)}` : track.detail;
  const seen = row.height < LEAST ? (SHORTER[detail] ?? detail) : detail; // the name has it as it is written: who speaks to the page says what is seen
  const branch = row.group || track.lanes > 1 || track.kind === "counter";
  const hits = model.finder.state.value.hits?.tracks.find((t) => t.track === track.track)?.count;
  const cursor = model.cursor.value === track.path;
  const actions: [string, string, () => void][] = model.embedded ? [] : [
    [row.pinned ? "Unpin (P)" : "Pin above the others (P)", row.pinned ? "unpin" : "pin", () => model.rows.pin(track)],
    ["Hide (H)", "close", () => model.rows.hide(track)],
  ];
  return (
    <div
      class={`tl-label ${row.group ? "is-group" : ""} ${row.open ? "" : "is-closed"} ${row.height < LEAST ? "is-short" : ""} ${cursor ? "cursor" : ""}`} id={model.embedded ? undefined : rowId(row)} style={{ top: `${top}px`, height: `${height}px`, paddingLeft: `${6 + row.level * 10}px` }}
      role="treeitem" aria-level={row.level + 1} aria-expanded={branch ? row.open : undefined} aria-label={[track.label, seen, hits !== undefined && `${human(hits, "count")} found`, `${track.events} events`].filter(Boolean).join(", ")}
      aria-selected={cursor} data-track={track.track} data-path={track.path} onPointerDown={() => { model.cursor.value = track.path; }}
    >
      {branch
        ? <button type="button" class={`caret ${row.open ? "open" : ""}`} tabIndex={-1} aria-label={`${row.open ? "Close" : "Open"} ${track.label}`} data-tip={`${row.open ? "Close" : "Open"} (E)`} onClick={() => model.rows.toggle(track)}><Icon name="right" size={11} /></button>
        : <span class="caret" />}
      <div class="tl-name" data-tip={tipOf(row)}>
        <span class="tl-title"><Middle text={track.label} tip="" tail={row.group ? 8 : undefined} /></span>{" "}
        {detail && row.height >= 24 && detail !== track.label && <span class="tl-detail">{seen}</span>}
      </div>
      {" "}{hits !== undefined && <span class="tl-hits" data-tip={`${hits} found here`}>{human(hits, "count")}</span>}
      <span class="tl-actions">
        {actions.map(([label, icon, act]) => <button type="button" class="ghost" tabIndex={-1} aria-label={`${label}: ${track.label}`} data-tip={label} onClick={act}><Icon name={icon} size={12} /></button>)}
      </span>
    </div>
  );
}

const rowId = (row: Row): string => `tl-row-${row.track.track}`;

/** From row to row; whether the key was one of the list's. */
function onTreeKey(event: KeyboardEvent, model: TimelineModel, toRow: (row: Row) => void): boolean {
  if (event.altKey || event.ctrlKey || event.metaKey) return false;
  const { pinned, rows } = model.rows.shown.peek();
  const all = [...pinned, ...rows];
  const at = all.findIndex((r) => r.track.path === model.cursor.peek());
  const row = all[at];
  const branch = row && (row.group || row.track.lanes > 1 || row.track.kind === "counter");
  const to = (k: number): boolean => {
    const next = all[Math.max(0, Math.min(all.length - 1, k))];
    if (next) {
      model.cursor.value = next.track.path;
      toRow(next);
    }
    return true;
  };
  switch (event.key) {
    case "ArrowDown": return to(at + 1);
    case "ArrowUp": return to(at < 0 ? 0 : at - 1);
    case "Home": return to(0);
    case "End": return to(all.length - 1);
    case "ArrowRight": return branch && !row.open ? (model.rows.toggle(row.track), true) : to(at + 1);
    case "ArrowLeft": {
      if (branch && row.open) return model.rows.toggle(row.track), true;
      let up = at - 1;
      while (up > 0 && row && all[up]!.level >= row.level) up--;
      return to(up);
    }
    case "Enter": case " ": return void model.first(), true;
    default: return false;
  }
}

export function Tree({ model, from, height, toRow }: TreeProps): JSX.Element {
  const shown = model.rows.shown.value;
  const cursor = [...shown.pinned, ...shown.rows].find((r) => r.track.path === model.cursor.value);
  const [first, last] = visible(shown.rows, from, from + height);
  return (
    <div
      class="tl-tree" role="tree" aria-label="Rows of the timeline" tabIndex={0} aria-activedescendant={cursor && !model.embedded ? rowId(cursor) : undefined}
      onFocus={() => { if (!cursor && shown.rows[0]) model.cursor.value = (shown.pinned[0] ?? shown.rows[0]).track.path; }}
      onKeyDown={(e) => { if (onTreeKey(e, model, toRow)) { e.preventDefault(); e.stopPropagation(); } }}
    >
      <div class="tl-pinned" style={{ height: `${shown.pinnedHeight}px` }}>
        {shown.pinned.map((row) => <RowLabel key={row.track.track} model={model} row={row} top={row.y} height={row.height} />)}
      </div>
      {shown.rows.slice(first, last).map((row) => {
        const hidden = Math.max(0, Math.min(from - row.y, row.height - LEAST)); // the name of a tall row stays in sight while it is scrolled through
        return <RowLabel key={row.track.track} model={model} row={row} top={row.y + hidden + shown.pinnedHeight} height={row.height - hidden} />;
      })}
    </div>
  );
}
