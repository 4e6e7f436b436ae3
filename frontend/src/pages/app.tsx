// The shell: page list, selection bar, and the page or state of the view.
import type { JSX } from "preact";
import { catalog, choice, failure, info, needsNoRecording, pages, readAgain, refreshRuns, report, runs } from "../state/data";
import { alone, NOT_IN_FILE } from "../api/file";
import { HOME } from "../state/codec";
import { page } from "../state/view";
import { CopyField } from "../ui/copy";
import { Skeleton } from "../ui/controls";
import { Tip } from "../ui/tip";
import { narrow, slim } from "../ui/width";
import { Bar } from "./bar";
import { EditedPage } from "./editor";
import { Help } from "./help";
import { Nav } from "./nav";
import { ReportPage } from "./report";
import { Search } from "./search";
import { Family } from "./tabs";
import { Delayed, Empty, Failed, Loading, NotAvailable, NotFound, NotInFile, NotLoaded } from "./states";

export function App(): JSX.Element {
  if (alone) return <div class={`alone ${narrow.value ? "narrow" : ""} ${slim.value ? "slim" : ""}`}><main id="main" tabIndex={-1}><Content /></main><CopyField /><Tip /></div>;
  return (
    <div class={`shell ${narrow.value ? "narrow" : ""} ${slim.value ? "slim" : ""}`}>
      <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); document.getElementById("main")?.focus(); }}>To the page</a>
      <Nav />
      <div class="side">
        <Bar />
        <main id="main" tabIndex={-1}><Content /></main>
      </div>
      <Help />
      <Search />
      <CopyField />
      <Tip />
    </div>
  );
}

const Placeholder = (): JSX.Element => (
  <Delayed>
    <Delayed delay={1500}><p class="quiet computing" role="status">Computing this page…</p></Delayed>
    <Skeleton />
  </Delayed>
);

function Content(): JSX.Element {
  if (failure.value) return <NotLoaded failure={failure.value} />;
  if (needsNoRecording.value) return <><Family /><Page /></>;
  const list = runs.value;
  if (!list.value) return list.state === "error" ? <Failed what="The list of runs could not be read" error={list.error!} retry={() => void refreshRuns()} /> : <Placeholder />;
  const now = choice.value!;
  const scanning = list.value.scan.state === "scanning";
  if (now.state !== "chosen" && page.value !== HOME && !catalog.value.length) return <Placeholder />; // its analysis may need no recording
  if (now.state === "none") return scanning ? <Delayed><Empty runs={list.value} /></Delayed> : <Empty runs={list.value} />;
  if (now.state === "absent") return scanning ? <Placeholder /> : <NotFound absent={now} />;

  const asked = pages.value;
  if (asked.state === "error") return <Failed what={asked.error!.body.code === "stopped" ? "Reading was stopped" : "The recording could not be read"} error={asked.error!} retry={readAgain} />;
  if (asked.state !== "ready") return asked.state === "loading" ? <Delayed><Loading progress={asked.progress} since={asked.since} /></Delayed> : <Placeholder />;

  return <><Family /><Page /></>;
}

function Page(): JSX.Element {
  const got = report.value;
  if (info.value?.fields?.some((f) => f.group)) return <EditedPage info={info.value} got={got} />;
  if (got.state === "error" && got.error!.body.code === NOT_IN_FILE) return <NotInFile error={got.error!} />;
  if (got.state === "error") return <Failed what="This page could not be computed" error={got.error!} retry={readAgain} />;
  if (got.state === "loading" && got.progress) return <Delayed><Loading progress={got.progress} since={got.since} /></Delayed>;
  const value = got.value;
  if (!value || value.analysis !== page.value) return <Placeholder />;
  return value.available ? <ReportPage r={value} waiting={got.state !== "ready"} /> : <NotAvailable r={value} />;
}
