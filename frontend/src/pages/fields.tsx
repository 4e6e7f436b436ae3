// The query fields of an analysis as controls of its page: a switch, a chip, a list, a field to type in.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { inFile, LIVE } from "../api/file";
import type { QueryField } from "../api/types";
import { change, view } from "../state/view";
import { isNamed, pageDefault, withField } from "../state/fields";
import { Chip, Switch } from "../ui/controls";
import { Icon } from "../ui/icons";
import { Popover } from "../ui/popover";
import { List } from "../ui/select";

const COMMON = new Set(["step", "device_limits"]);

/** The fields shown on the page: all but those of the selection bar. */
export const ofPage = (fields: QueryField[] | undefined): QueryField[] => (fields ?? []).filter((f) => !COMMON.has(f.name));

/** At most so many fields are shown in the head of a page; of more, the first that are chosen by a click, and the rest behind one button. */
const FIELDS = 3;
const FIRST_OF_MANY = 2;

export function Fields({ fields }: { fields: QueryField[] }): JSX.Element {
  const first = fields.length <= FIELDS ? fields : fields.filter((f) => f.type === "choice" || f.type === "flag").slice(0, FIRST_OF_MANY);
  const rest = fields.filter((f) => !first.includes(f));
  const changed = rest.filter((f) => view.value.query[f.name] !== undefined);
  return (
    <fieldset class="fields" disabled={inFile} data-tip={inFile ? LIVE : undefined}>
      {first.map((f) => <FieldControl key={f.name} f={f} />)}
      {changed.map((f) => <Chip key={f.name} on tip={f.doc ?? ""} onToggle={() => setField(f, pageDefault(f))}>{labelOf(f)}: {f.choices?.length && !isNamed(f) ? words(view.value.query[f.name]!) : view.value.query[f.name]}</Chip>)}
      {rest.length > 0 && (
        <Popover label="Options" class="button" align="right" wide button={<>Options<Icon name="down" size={12} /></>}>
          {() => <div class="form options-form">{rest.map((f) => <div class="option-row" key={f.name}><FieldControl f={f} />{f.doc && <p class="form-note">{f.doc}</p>}</div>)}</div>}
        </Popover>
      )}
    </fieldset>
  );
}

export const labelOf = (f: QueryField): string => (f.label && !Object.hasOwn(NAMES, f.name) ? f.label : words(f.name)).replace(/ us$/, ", µs").replace(/ ns$/, ", ns");

export function setField(f: QueryField, value: string, how: "push" | "replace" = "push"): void {
  change({ query: withField(view.value.query, f, value) }, how);
}

const SWITCH = 7;
const LETTERS = 60;
/** First words that name one thing together with the second. */
const ONE_NAME = new Set(["causal", "above", "forward", "step", "kernel", "exposed", "copied", "peak"]);
/** Choices that are one name though their first word stands for itself elsewhere. */
const WHOLE = new Map([["device_busy", "Device busy"], ["host_time", "Host time"], ["cuda_graph", "CUDA graph"]]);
const NAMES: Record<string, string> = { op: "operator", flop: "FLOP", dtype: "type", all: "all" };

/** A choice as a person reads it: `op_shape` is "Operator, shape", `total_ns` is "Total". */
export function words(text: string): string {
  if (WHOLE.has(text)) return WHOLE.get(text)!;
  const parts = text.replace(/_(ns|bytes)$/, "").split("_").map((w) => NAMES[w] ?? w);
  if (parts.length === 1 && /\d/.test(text)) return text; // a code such as bf16
  const joined = parts.join(parts.length === 2 && !ONE_NAME.has(parts[0]!) ? ", " : " ");
  return (joined[0]?.toUpperCase() ?? "") + joined.slice(1);
}

function FieldControl({ f }: { f: QueryField }): JSX.Element {
  const now = view.value.query[f.name] ?? pageDefault(f);
  const label = labelOf(f);
  const set = (value: string, how: "push" | "replace" = "push"): void => setField(f, value, how);
  const free = f.type === "text";
  const opens = f.choices?.includes("") === true; // the empty text is a choice of its own: what the page opens on
  const shown = (choice: string): string => (isNamed(f) ? choice : words(choice)); // values that can be typed are shown as they are typed
  if (f.type === "flag") {
    const on = /^(true|1|yes|on)$/i.test(now);
    return <Chip on={on} tip={f.doc ?? ""} onToggle={() => set(on ? "false" : "true")}>{label}</Chip>;
  }
  const letters = (f.choices ?? []).reduce((sum, c) => sum + shown(c).length, 0); // names of a recording may be long: a row of them is as wide
  if (f.choices?.length && f.choices.length <= SWITCH && f.type !== "text" && (!isNamed(f) || letters <= LETTERS)) {
    return (
      <div class="field">
        <span class="field-label">{label}</span>
        <Switch label={label} tip={f.doc ?? ""} value={now} onPick={set} choices={f.choices.map((c) => ({ value: c, text: c ? shown(c) : "Any" }))} />
      </div>
    );
  }
  if (f.choices?.length) {
    return (
      <div class="field">
        <span class="field-label">{label}</span>
        <Popover label={`${label}: ${now || "any"}`} class="button" tip={f.doc ?? ""} button={<><span class="ellipsis field-value">{now ? shown(now) : free ? (opens ? "Default" : "Choose") : "Any"}</span><Icon name="down" size={12} /></>}>
          {(close) => {
            const pick = (v: string): void => { set(v, "push"); close(); };
            return <List label={label} value={now} options={[...(free && now && !opens ? [{ value: "", text: "None" }] : []), ...f.choices!.map((c) => ({ value: c, text: c ? shown(c) : free ? "Default" : "Any" }))]} onPick={pick} {...(free && { free: { ask: `Search or type`, take: pick } })} />;
          }}
        </Popover>
      </div>
    );
  }
  return <Typed f={f} label={label} now={now} set={set} />;
}

/** A text field: its value applies when Enter is pressed or the field is left. */
function Typed({ f, label, now, set }: { f: QueryField; label: string; now: string; set: (value: string) => void }): JSX.Element {
  const [text, setText] = useState<string | null>(null);
  const done = (): void => {
    if (text !== null && text !== now) set(text.trim());
    setText(null);
  };
  return (
    <label class="field" data-tip={f.doc}>
      <span class="field-label">{label}</span>
      <input
        class="typed" type="text" inputMode={f.type === "number" ? "decimal" : "text"} value={text ?? now} placeholder={pageDefault(f) || "any"} size={f.type === "number" ? 7 : 14}
        onInput={(e) => setText(e.currentTarget.value)} onBlur={done} onKeyDown={(e) => { if (e.key === "Enter") done(); if (e.key === "Escape") setText(null); }}
      />
    </label>
  );
}
