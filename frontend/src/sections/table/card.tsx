// The selected row of a table: its short name as the title, its full name and other long texts whole below it, and when it was.
import type { JSX } from "preact";
import type { Report, TableSection } from "../../api/types";
import { Copy } from "../../ui/copy";
import { Icon } from "../../ui/icons";
import { shapeText } from "./columns";
import { Timeline } from "../timeline/timeline";
import type { Shown } from "./model";
import { timelineOf } from "./stretch";
import { indexOf, wordsOf } from "./words";

export function RowCard({ s, report, shown, selected, onClose }: { s: TableSection; report: Report; shown: Shown; selected: string; onClose: () => void }): JSX.Element | null {
  const index = indexOf(s, shown, selected);
  const when = index < 0 || report.analysis.startsWith("timeline") ? null : timelineOf(s, index); // on the timeline's own page it is above
  const words = index < 0 ? null : wordsOf(s, index, !!when);
  if (!words && !when) return null;
  const title = words?.title ?? selected;
  return (
    <div class="row-card" role="group" aria-label={`Selected: ${title}`}>
      <div class="row-card-head">
        <h3 class="mono">{title}</h3>
        <Copy class="text-button" what="the name" label="Copy name in full" text={() => words?.full || title}>Copy name</Copy>
        <button type="button" class="ghost" aria-label="Clear the selection" data-tip="Esc" onClick={onClose}><Icon name="close" size={12} /></button>
      </div>
      {words?.full && <p class="whole mono">{words.full}</p>}
      {words?.rest.map(([c, text]) => <p class="whole"><span class="quiet">{c.label}</span> <span class="mono">{c.show === "shapes" ? shapeText(text) : text}</span></p>)}
      {when && <Timeline s={when} report={report} />}
    </div>
  );
}
