// The page of a report: title, headline, query fields, notices, and the sections in their grid.
import type { JSX } from "preact";
import type { Report } from "../api/types";
import { info, stale, stamp, readAgain } from "../state/data";
import { fieldOfReport } from "../state/fields";
import { view } from "../state/view";
import { isCard, rowsOf } from "../sections/cards";
import { PageFilters, SectionCard } from "../sections/section";
import { Notice } from "../ui/controls";
import { Text } from "../ui/text";
import { Fields, ofPage } from "./fields";
import { hasTabs } from "./tabs";

const equationOf = (r: Report) => r.sections.find((s) => s.kind === "facts" && s.style === "equation");

export function ReportPage({ r, waiting }: { r: Report; waiting: boolean }): JSX.Element {
  const lead = r.headline ?? "";
  const equation = equationOf(r);
  const fields = ofPage(info.value?.fields).flatMap((f) => fieldOfReport(f, r.fields?.[f.name], view.value.query[f.name] !== undefined) ?? []);
  const inEquation = equation?.kind === "facts" && !equation.text;
  return (
    <div class={`page ${waiting ? "waiting" : ""}`} aria-busy={waiting}>
      <div class={`page-head ${equation && !fields.length ? "hidden-head" : ""}`}>
        <div>
          {!hasTabs() && <h1 class={equation ? "sr" : ""}>{r.title}</h1>}
          {lead && !inEquation && <p class="headline"><Text text={lead} /></p>}
        </div>
        {fields.length > 0 && <Fields fields={fields} />}
      </div>
      <ReportBody r={r} lead={inEquation ? lead : ""} />
    </div>
  );
}

/** All of a report below the head of its page. */
export function ReportBody({ r, lead }: { r: Report; lead: string }): JSX.Element {
  return (
    <>
      {stale.value && <StaleNotice />}
      {r.notices?.map((n) => <Notice notice={n} />)}
      <PageFilters r={r} />
      <div class="grid">
        {rowsOf(r.sections).map((row) => (row.length === 1 && !isCard(row[0]!)
          ? <SectionCard key={row[0]!.id} section={row[0]!} report={r} lead={lead} />
          : <div class="cards" key={row[0]!.id} style={{ maxWidth: row.length < 3 ? `${row.length * 400}px` : undefined }}>{row.map((s) => <SectionCard key={s.id} section={s} report={r} lead="" />)}</div>))}
      </div>
      {!r.sections.length && !r.headline && <div class="card pad"><p class="prose">This report has no sections.</p></div>}
    </>
  );
}

const StaleNotice = (): JSX.Element => (
  <Notice notice={{ level: "warn", text: "The file changed since this page was read. It still shows the recording as it was." }}>
    <button type="button" class="link" onClick={() => { stamp.value = ""; readAgain(); }}>Read again</button>
  </Notice>
);
