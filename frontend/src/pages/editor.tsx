// A page with many fields: a card of fields in groups above its report, which is requested again after every change. An error is shown
// next to the fields, where it can be corrected.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { inFile, LIVE } from "../api/file";
import type { AnalysisInfo, FieldNow, QueryField, Report, Unavailable } from "../api/types";
import { readAgain, lastFields, type Fetched } from "../state/data";
import { pageDefault, rowsOf, textOfRows, type Row } from "../state/fields";
import { change, view } from "../state/view";
import { Notice, Skeleton, Toggle } from "../ui/controls";
import { Icon } from "../ui/icons";
import { Popover } from "../ui/popover";
import { List } from "../ui/select";
import { Box, Slider } from "../ui/slider";
import { Text } from "../ui/text";
import { Fields, ofPage, setField, words } from "./fields";
import { ReportBody } from "./report";
import { Delayed, NotAvailable } from "./states";
import { hasTabs } from "./tabs";

export function EditedPage({ info, got }: { info: AnalysisInfo; got: Fetched<Report | Unavailable> }): JSX.Element {
  const value = got.value?.analysis === info.name ? got.value : null;
  if (value && !value.available) return <NotAvailable r={value} />;
  const fields = ofPage(info.fields);
  const [waiting, failed] = [got.state !== "ready", got.state === "error" ? got.error : null];
  const others = fields.filter((f) => !f.group);
  const fieldsNow = lastFields.value.page === info.name ? lastFields.value.fields : null;
  return (
    <div class={`page edited ${waiting ? "waiting" : ""}`} aria-busy={waiting && !failed}>
      <div class="page-head">
        <div>
          {!hasTabs() && <h1>{info.title}</h1>}
          {!failed && value?.headline && <p class="headline" role="status"><Text text={value.headline} /></p>}
        </div>
        {others.length > 0 && <Fields fields={others} />}
      </div>
      {(fieldsNow || failed) && <Editor fields={fields.filter((f) => f.group)} now={fieldsNow ?? {}} wrong={failed?.body.field ?? ""} />}
      {failed && (
        <Notice notice={{ level: "error", text: sentences(failed.body.message, failed.body.hint) }}>
          {failed.body.code !== "bad_query" && <button type="button" class="text-button" onClick={readAgain}>Try again</button>}
        </Notice>
      )}
      {!failed && (value ? <ReportBody r={value} lead="" /> : <Delayed><Skeleton /></Delayed>)}
    </div>
  );
}

/** The card of fields. A report that failed lists no values, so those of the last one are used. */
function Editor({ fields, now, wrong }: { fields: QueryField[]; now: Record<string, FieldNow>; wrong: string }): JSX.Element {
  const groups = [...new Set(fields.map((f) => f.group!))];
  const lists = fields.filter((f) => f.type === "rows");
  const set = fields.filter((f) => view.value.query[f.name] !== undefined);
  const reset = (): void => {
    const query = { ...view.value.query };
    for (const f of set) delete query[f.name];
    change({ query }, "push");
  };
  return (
    <section class="card editor" aria-label="Parameters">
      <fieldset class="editor-groups" disabled={inFile} data-tip={inFile ? LIVE : undefined}>
        {groups.map((group) => <Group key={group} title={group} fields={fields.filter((f) => f.group === group && f.type !== "rows")} now={now} wrong={wrong} held={ofQuery} />)}
        {lists.map((f) => <Rows key={f.name} list={f} fields={fields} now={now} wrong={wrong === f.name} />)}
      </fieldset>
      <div class="editor-foot">
        {lists.map((f) => <button key={f.name} type="button" class="text-button accent" disabled={inFile} data-tip={f.doc} onClick={() => addRow(f, fields, now)}><Icon name="plus" size={12} />Add a {(f.label ?? f.name).toLowerCase()}</button>)}
        <span class="quiet">{set.length ? `${set.length} ${set.length === 1 ? "field is" : "fields are"} set; the link of this page holds ${set.length === 1 ? "it" : "them"}.` : "Every field has its default."}</span>
        <button type="button" class="text-button accent" disabled={!set.length} onClick={reset}>Reset all</button>
      </div>
    </section>
  );
}

/** What a control holds: the value that was chosen, and where another one goes. */
interface Held {
  asked: string | undefined;
  put: (to: string, how?: "push" | "replace") => void;
}

const ofQuery = (f: QueryField): Held => ({ asked: view.value.query[f.name], put: (to, how = "push") => setField(f, to, how) });

interface GroupProps {
  title: string;
  fields: QueryField[];
  now: Record<string, FieldNow>;
  wrong: string;
  held: (f: QueryField) => Held;
  onRemove?: () => void;
}

function Group({ title, fields, now, wrong, held, onRemove }: GroupProps): JSX.Element {
  const [open, setOpen] = useState(false);
  const says = fields.filter((f) => !now[f.name]?.idle || f.name === wrong);
  const shown = says.filter((f) => !f.seldom || open || held(f).asked !== undefined || f.name === wrong);
  const seldom = says.some((f) => f.seldom);
  return (
    <div class="editor-group" role="group" aria-label={title}>
      <h2>{title}{onRemove && <button type="button" class="ghost" aria-label={`Take away: ${title}`} data-tip="Take this away" onClick={onRemove}><Icon name="close" size={12} /></button>}</h2>
      {shown.map((f) => <Control key={f.name} f={f} now={now[f.name] ?? {}} wrong={f.name === wrong} held={held(f)} />)}
      {seldom && (
        <button type="button" class="text-button more" aria-expanded={open} onClick={() => setOpen(!open)}>
          {open ? "Less" : "More"}<Icon name="down" size={12} />
        </button>
      )}
    </div>
  );
}

/** The rows of a list, each a group of the same fields as the first. */
function Rows({ list, fields, now, wrong }: { list: QueryField; fields: QueryField[]; now: Record<string, FieldNow>; wrong: boolean }): JSX.Element {
  const own = fields.filter((f) => list.rows!.includes(f.name));
  const rows = rowsOf(view.value.query[list.name]);
  const put = (next: Row[], how: "push" | "replace" = "push"): void => setField(list, textOfRows(next, own), how);
  const nowOf = (i: number): Record<string, FieldNow> => Object.fromEntries(own.map((f) => [f.name, now[`${list.name}.${i}.${f.name}`] ?? {}]));
  return (
    <>
      {rows.map((row, i) => (
        <Group
          key={i} title={`${upper(list.label ?? list.name)} ${i + 2}`} fields={own} now={nowOf(i)} wrong={wrong && i === rows.length - 1 ? own[0]!.name : ""}
          held={(f) => ({ asked: row[f.name], put: (to, how) => put(rows.map((r, at) => (at === i ? { ...r, [f.name]: to } : r)), how) })}
          onRemove={() => put(rows.filter((_, at) => at !== i))}
        />
      ))}
    </>
  );
}

/** Adds the row that the report proposes. */
function addRow(list: QueryField, fields: QueryField[], now: Record<string, FieldNow>): void {
  const own = fields.filter((f) => list.rows!.includes(f.name));
  const next = rowsOf(`[${now[list.name]?.value || "{}"}]`);
  setField(list, textOfRows([...rowsOf(view.value.query[list.name]), ...next], own));
}

function Control({ f, now, wrong, held }: { f: QueryField; now: FieldNow; wrong: boolean; held: Held }): JSX.Element {
  const { asked, put } = held;
  const chosen = asked !== undefined;
  const value = asked ?? now.value ?? pageDefault(f);
  const label = f.label ?? f.name;
  const tip = f.doc ?? "";
  if (f.slider?.length) {
    const values = now.values?.length ? now.values : f.slider;
    return <Slider label={label} tip={tip} value={value} values={values} chosen={chosen} wrong={wrong} onMove={(v) => put(v, "replace")} onType={(v) => put(v)} />;
  }
  if (f.type === "flag") {
    const on = /^(true|1|yes|on)$/i.test(value);
    return <div class={`row ${chosen ? "chosen" : ""}`} data-tip={tip}><span>{label}</span><Toggle label={label} on={on} onToggle={() => put(on ? "false" : "true")} /></div>;
  }
  const choices = f.choices?.length ? f.choices : f.type === "text" ? now.values : undefined; // a report may know what there is to choose from
  if (choices?.length) return <Choice f={{ ...f, choices: [...choices] }} label={label} value={asked ?? ""} resolved={now.value ?? ""} wrong={wrong} put={put} />;
  return (
    <div class={`row ${chosen ? "chosen" : ""}`} data-tip={tip}>
      <span>{label}</span>
      <Box label={label} value={asked ?? ""} placeholder={now.value || pageDefault(f) || "none"} numeric={f.type === "number"} wrong={wrong} onType={(v) => put(v)} />
    </div>
  );
}

interface ChoiceProps {
  f: QueryField;
  label: string;
  value: string;
  /** the value that is used where none is chosen */
  resolved: string;
  wrong: boolean;
  put: (value: string) => void;
}

function Choice({ f, label, value, resolved, wrong, put }: ChoiceProps): JSX.Element {
  const free = f.type === "text";
  const text = (choice: string): string => (free || /[\d-]/.test(choice) ? choice : words(choice));
  const options = [{ value: "", text: value || !resolved ? "Default" : `Default: ${text(resolved)}` }, ...f.choices!.filter(Boolean).map((c) => ({ value: c, text: text(c) }))];
  return (
    <div class={`row ${value ? "chosen" : ""}`} data-tip={f.doc}>
      <span>{label}</span>
      <Popover label={`${label}: ${text(value || resolved) || "default"}`} class={`button ${wrong ? "wrong" : ""} ${value ? "" : "open"}`} align="right" button={<><span class="ellipsis">{text(value || resolved) || "Default"}</span><Icon name="down" size={12} /></>}>
        {(close) => {
          const pick = (v: string): void => { put(v); close(); };
          return <List label={label} value={value} options={options} onPick={pick} {...(free && { free: { ask: "Search or type", take: pick } })} />;
        }}
      </Popover>
    </div>
  );
}

const upper = (text: string): string => (text[0]?.toUpperCase() ?? "") + text.slice(1);
const sentences = (...parts: (string | undefined)[]): string => parts.filter(Boolean).map((p) => upper(p!).replace(/[^.!?]$/, "$&.")).join(" ");
