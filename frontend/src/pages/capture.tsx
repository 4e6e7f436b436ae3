// Chooses what names the kernels that graph launches of a trace replay: a recording of the captures of graphs, or a trace of an eager run.
import type { JSX } from "preact";
import { inFile, LIVE } from "../api/file";
import type { Runs } from "../api/types";
import { pages } from "../state/data";
import { captureOptions, NO_CAPTURE, type Chosen } from "../state/select";
import { change, view } from "../state/view";
import { List } from "../ui/select";
import { slim } from "../ui/width";
import { Pick } from "./pick";

const TIP = "What names the operators, sizes and modules of the kernels that graph launches replay here";

/** The field is there where graphs were launched, or where the address names a capture. */
export function CapturePick({ list, chosen }: { list: Runs; chosen: Chosen }): JSX.Element | null {
  const now = view.value.capture;
  const known = pages.value.value;
  if (!now && (!known?.replays || slim.value)) return null;
  const used = known?.named_by ?? "";
  const value = now === NO_CAPTURE ? "none" : now || (used ? "as found" : "none found");
  const tip = inFile ? LIVE : [TIP, now !== NO_CAPTURE && (now || used) && (used ? `In use: ${used}` : "It is not used: see Trace health")].filter(Boolean).join("\n");
  return (
    <Pick label="Graph capture" value={value} class="long name divided" tip={tip} disabled={inFile}>
      {(close) => <List label="Graph captures" value={now} options={captureOptions(list, chosen.span.file)} onPick={(capture) => { change({ capture, tables: {} }, "push"); close(); }} />}
    </Pick>
  );
}
