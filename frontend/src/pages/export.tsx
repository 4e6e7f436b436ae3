// The export menu: each table as CSV, the whole report as JSON, the recording as it was written.
import type { JSX } from "preact";
import { exportAddress, reportAddress, traceAddress, type Where } from "../api/client";
import { inFile } from "../api/file";
import type { Report, TableSection } from "../api/types";
import { report, requestOf, runs, where } from "../state/data";
import { here, page, view } from "../state/view";
import { download, downloadFrom } from "../ui/download";
import { Icon } from "../ui/icons";
import { Popover } from "../ui/popover";
import { mainTable, saveTable } from "../sections/section";
import { number } from "../units";
import { rowCount } from "../sections/table/model";

/** The whole report as a file: as it came, or from the server where tables of it are in pages. */
function saveReport(ready: Report, paged: boolean): void {
  const [name, from] = [`${page.peek()}.json`, requestOf(ready)];
  if (paged && from) downloadFrom(reportAddress(from.name, from.where, from.query), name);
  else download(name, JSON.stringify(ready, null, 1), "application/json");
}

/** Where the pages come from as one file: this one as it is shown, with the others at their defaults. live: with the address of this page. */
function htmlAddress(w: Where, all: boolean, live = false): string {
  const { query, step, device } = view.peek();
  const shown = new URLSearchParams(query).toString();
  const pages = `${page.peek()}${shown && `?${shown}`}`;
  return exportAddress(w, "html", { pages: all ? `${pages},all` : pages, step, device_limits: device, live: live ? here() : "" });
}

export function Export(): JSX.Element {
  const r = report.value.value;
  const ready = r?.available ? r : null;
  const tables = (ready?.sections.filter((s) => s.kind === "table") ?? []) as TableSection[];
  const original = runs.value.value?.features?.original;
  return (
    <Popover label="Export" tip="Save tables, the report or the recording" class="button" align="right" button={<><Icon name="download" /><span class="word">Export</span></>}>
      {(close) => (
        <div class="list">
          {tables.map((t) => (
            <button type="button" class="option" onClick={() => { saveTable(t, t === mainTable(ready!)); close(); }}>
              {t.title} as CSV<span class="note">{number(rowCount(t), 0)} rows</span>
            </button>
          ))}
          {ready && <button type="button" class="option" onClick={() => { saveReport(ready, tables.some((t) => t.pages)); close(); }}>Whole report as JSON</button>}
          {ready?.files?.map((f) => (
            <button type="button" class="option" onClick={() => { download(f.file, f.text, f.mimetype ?? "application/json"); close(); }}>
              {f.label}<span class="note">{f.file}</span>
            </button>
          ))}
          {ready && where.value && !inFile && (
            <>
              <a class="option" href={htmlAddress(where.value, false)} download onClick={close}>This page as HTML file<span class="note">opens without a server</span></a>
              <a class="option" href={htmlAddress(where.value, true)} download onClick={close}>All pages as HTML file<span class="note">opens without a server</span></a>
              <a class="option" href={htmlAddress(where.value, true, true)} download onClick={close}>All pages, with a link to this one<span class="note">names this server</span></a>
            </>
          )}
          {ready && where.value && !inFile && <a class="option" href={exportAddress(where.value, "hatchet")} download onClick={close}>Hatchet profile (JSON)<span class="note">for Hatchet and proton-viewer</span></a>}
          {where.value && !inFile && (original ? <a class="option" href={traceAddress(where.value)} download>Original recording</a> : <div class="none">This server does not give out the original recording.</div>)}
        </div>
      )}
    </Popover>
  );
}
