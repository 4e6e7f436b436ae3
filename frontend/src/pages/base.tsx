// Chooses the baseline: another run, another worker of this run, or another span of this worker, whose numbers stand beside those shown.
import type { JSX } from "preact";
import type { Run } from "../api/types";
import { info } from "../state/data";
import { NO_BASE } from "../state/codec";
import { isJoined, type Chosen } from "../state/select";
import { change, view } from "../state/view";
import { List, type Option } from "../ui/select";
import { slim } from "../ui/width";
import { distinctParts } from "../sections/table/names";
import { Pick } from "./pick";

type Base = readonly [run: string, worker: string, span: string];

/** What a recording can be set against: runs, then the other workers of its run, then the other spans of its worker. */
export function baseOptions(runs: readonly Run[], { run, worker, span }: Chosen): Option[] {
  const at = (...names: Base): string => JSON.stringify(names);
  return [
    ...runs.filter((r) => r !== run).map((r) => ({ value: at(r.name, "", ""), text: r.name || "." })),
    ...run.workers.filter((w) => w !== worker && !isJoined(w)).map((w) => ({ value: at(run.name, w.name, ""), text: w.name, note: "worker of this run" })),
    ...worker.spans.filter((s) => s !== span && s.kind === span.kind).map((s) => ({ value: at(run.name, worker.name, s.name), text: s.label || s.name, note: "span of this worker" })),
  ];
}

export function BasePick({ list, chosen }: { list: Run[]; chosen: Chosen }): JSX.Element | null {
  const { base, base_worker, base_span } = view.value;
  const options = baseOptions(list, chosen);
  const on = !!(base || base_worker || base_span);
  if (!options.length || (slim.value && !on)) return null;
  const takes = info.value?.compares !== false;
  const run = base || chosen.run.name;
  const name = base_span || (run === chosen.run.name ? base_worker : "") || run || ".";
  const pick = (value: string, close: () => void): void => {
    const [run, worker, span] = value ? (JSON.parse(value) as Base) : ["", "", ""];
    change(value ? { base: run, base_worker: worker, base_span: span, tables: {} } : { ...NO_BASE, tables: {} }, "push");
    close();
  };
  return (
    <Pick
      label="Against" value={on ? (takes ? name : "not this page") : "nothing"} part={on && takes ? distinctParts(list.map((r) => r.name), 6).get(name) : undefined} class="long name divided"
      tip={!takes ? "This page compares by itself, or is of no recording" : on ? `Numbers of ${name} stand beside those shown` : "Set this page against another run: its numbers and the differences stand beside"}
    >
      {(close) => <List label="Baselines" value={on ? JSON.stringify([run, base_worker, base_span]) : ""} options={[{ value: "", text: "Nothing" }, ...options]} onPick={(value) => pick(value, close)} />}
    </Pick>
  );
}
