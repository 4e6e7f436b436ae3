// A section in its card: heading, links, and one of the five kinds; one that fails shows its error and leaves the rest.
import { Component, type ComponentChildren, type JSX } from "preact";
import type { Report, Section, TableSection } from "../api/types";
import { changeTable, tableOf } from "../state/view";
import { Notice } from "../ui/controls";
import { Copy } from "../ui/copy";
import { download, downloadFrom } from "../ui/download";
import { ReportLink } from "../ui/link";
import { Text } from "../ui/text";
import { CardCount, CardMark, Facts } from "./facts";
import { Findings, findingsSubtitle } from "./findings";
import { Figure } from "./figure/figure";
import { FigureTools } from "./figure/tools";
import { figureSubtitle } from "./figure/window";
import { hasChart, linkReport, linkedTables, pickedOf } from "./linked";
import { Timeline } from "./timeline/timeline";
import { Chips, countText } from "./table/filters";
import { isRanked, rankedSubtitle } from "./table/ranked";
import { ColumnChooser, FindField } from "./table/tools";
import { csvOf } from "./table/csv";
import { pagedOf } from "./table/pages";
import { csvAddress, findOf, setFind, shownColumns, shownOf, TableView } from "./table/table";

const FIND_FROM = 8;

class ErrorBoundary extends Component<{ title: string; children: ComponentChildren }, { error: Error | null }> {
  override state: { error: Error | null } = { error: null };
  static override getDerivedStateFromError(error: Error): { error: Error } {
    return { error };
  }
  render(): ComponentChildren {
    return this.state.error ? <Broken title={this.props.title} why={this.state.error.message} /> : this.props.children;
  }
}

export function Broken({ title, why }: { title: string; why: string }): JSX.Element {
  return (
    <Notice notice={{ level: "error", text: `**${title}** could not be shown: ${why} The rest of the page works.` }}>
      <Copy class="text-button" what="the details" text={() => `${title}: ${why}`}>Copy details</Copy>
    </Notice>
  );
}

/** The table that a page's `find` filters: the first that is wide, else the first. */
export function mainTable(report: Report): TableSection | undefined {
  const tables = report.sections.filter((s): s is TableSection => s.kind === "table");
  return tables.find((t) => (t.span ?? 12) >= 8) ?? tables[0];
}

/** Filters above the sections, where the main table of the page has a chart of points: they apply to both, and are the legend of the chart. */
export function PageFilters({ r }: { r: Report }): JSX.Element | null {
  linkReport(r);
  const table = mainTable(r);
  if (!table || !lifted(table, true)) return null;
  const find = hasFind(table, true);
  const chips = Chips({ s: table, state: tableOf(table.id) });
  if (!find && !chips) return null;
  return (
    <div class="page-filters" data-filters={table.id}>
      {find && <FindField value={findOf(table, true)} label={`Filter ${table.title}`} onInput={(text) => setFind(table, true, text)} />}
      {chips}
      {leavesOthers(table, r) && <span class="quiet">Filters {table.title} and its {r.sections.filter((s) => s.kind === "figure" && s.table === table.id).length > 1 ? "charts" : "chart"}; the rest of the page stays whole.</span>}
    </div>
  );
}

/** Whether a report has tables, figures or numbers that the filters of a table do not apply to. */
export const leavesOthers = (table: TableSection, r: Report): boolean => r.sections.some((s) => s !== table && !(s.kind === "figure" && s.table === table.id));

const lifted = (s: TableSection, main: boolean): boolean => main && hasChart(s) && (s.filters?.length ?? 0) > 0;

function hasFind(s: TableSection, main: boolean): boolean {
  const count = shownOf(s, main).of;
  return (count >= FIND_FROM && (main || count > 12)) || findOf(s, main) !== "";
}

interface CardProps {
  section: Section;
  report: Report;
  lead: string;
}

export function SectionCard({ section, report, lead }: CardProps): JSX.Element {
  const span = Math.max(2, Math.min(12, section.span ?? 12));
  linkReport(report);
  const first = mainTable(report);
  const headline = section.weight === "headline" || (section.kind === "facts" && section.style === "equation");
  const kind = section.kind === "facts" ? `facts-${section.style ?? "list"}` : `kind-${section.kind}`;
  const absent = section.kind === "facts" && section.style === "card" && !Object.values(section.values).some((v) => v !== null);
  const titled = section.title && !(section.kind === "facts" && headline);
  return (
    <section class={`card span-${span} ${kind} ${headline ? "is-headline" : ""} ${absent ? "is-absent" : ""}`} id={`s-${section.id}`} data-section={section.id} aria-label={section.title || undefined}>
      <ErrorBoundary title={section.title}>
        {titled && <Heading section={section} main={section === first} />}
        {section.error ? <Broken title={section.title} why={section.error} /> : <Body section={section} report={report} lead={lead} main={section === first} />}
      </ErrorBoundary>
    </section>
  );
}

function Body({ section, report, lead, main }: CardProps & { main: boolean }): JSX.Element {
  switch (section.kind) {
    case "facts": return <Facts s={section} lead={lead} headline={report.headline ?? ""} />;
    case "findings": return <Findings s={section} />;
    case "timeline": return <Timeline s={section} report={report} cards={(r) => <div class="grid">{r.sections.map((one) => <SectionCard key={one.id} section={one} report={r} lead="" />)}</div>} />;
    case "table": return <TableView s={section} report={report} main={main} shown={shownOf(section, main)} twins={linkedTables(section, report)} />;
    case "figure": {
      const table = (report.sections.find((s) => s.kind === "table" && s.id === section.table) as TableSection | undefined) ?? null;
      return <Figure s={section} table={table} twins={table ? linkedTables(table, report) : []} main={table === mainTable(report)} />;
    }
  }
}

function Heading({ section, main }: { section: Section; main: boolean }): JSX.Element {
  const ranked = section.kind === "table" && isRanked(section);
  const subtitle = section.kind === "findings" ? findingsSubtitle(section) : ranked ? rankedSubtitle(section) : section.kind === "figure" ? figureSubtitle(section) : section.subtitle;
  return (
    <div class="card-head">
      <div class="card-title">
        {section.kind === "facts" && <CardMark s={section} />}
        <h2>{section.title}</h2>
        {section.kind === "table" && !ranked && <span class="count">{countText(section, shownOf(section, main))}</span>}
        {subtitle && <span class="subtitle"><Text text={subtitle} /></span>}
      </div>
      <div class="card-tools">
        {section.kind === "table" && !ranked && <TableTools s={section} main={main} />}
        {section.kind === "facts" && <CardCount s={section} />}
        {section.kind === "figure" && <FigureTools s={section} />}
        {section.links?.map((link) => <ReportLink link={link} />)}
      </div>
      {section.kind === "table" && !lifted(section, main) && <Chips s={section} state={tableOf(section.id)} />}
    </div>
  );
}

function TableTools({ s, main }: { s: TableSection; main: boolean }): JSX.Element {
  const state = tableOf(s.id);
  return (
    <>
      {hasFind(s, main) && !lifted(s, main) && <FindField value={findOf(s, main)} label={`Filter ${s.title}`} onInput={(text) => setFind(s, main, text)} />}
      {state.sort && <button type="button" class="text-button" onClick={() => changeTable(s.id, { sort: null }, "quiet")}>Reset order</button>}
      {s.columns.length > 3 && <ColumnChooser s={s} state={state} />}
      <button type="button" class="text-button accent" data-tip="The shown rows and columns, in base units" onClick={() => saveTable(s, main)}>CSV</button>
    </>
  );
}

/** The shown rows and columns as a file. */
export function saveTable(s: TableSection, main: boolean): void {
  const [from, shown] = [csvAddress(s, main), shownOf(s, main)];
  if (from && !pickedOf(s)) return downloadFrom(from, `${s.id}.csv`);
  if (from && shown.order && shown.rows.filter(Boolean).length < shown.rows.length) return void pagedOf(s)!.loadAll(shown.order).then(() => saveTable(s, main)); // of the rows selected in a chart
  download(`${s.id}.csv`, csvOf(s, shownColumns(s).map((c) => c.column), shownOf(s, main).rows), "text/csv;charset=utf-8");
}
