// The page list: groups, icons; pages that this recording has no data for are grayed, with the reason below.
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import type { AnalysisInfo } from "../api/types";
import { catalog, failures } from "../state/data";
import type { Failure } from "../state/failures";
import { entriesOf, familyOf, headOf } from "../state/family";
import { page, pageView } from "../state/view";
import { Icon, Logo } from "../ui/icons";
import { ViewLink } from "../ui/link";
import { narrow, slim } from "../ui/width";
import { helpOpen } from "./help";

export const menuOpen = signal(false);

const GROUPS = ["", "Time", "Speed of light", "Run", "Experimental"];

/** The first sentence or clause of a reason, whole. */
export function shortReason(because: string | undefined): string {
  const text = (because ?? "").split(/(?<=[.;:])\s/)[0] ?? "";
  return text.replace(/[.;:]$/, "");
}

export function Nav(): JSX.Element {
  const all = entriesOf(catalog.value);
  const foot = all.filter((a) => a.group === "foot");
  const rail = narrow.value && !slim.value;
  return (
    <>
      {slim.value && menuOpen.value && <div class="nav-veil" onClick={() => { menuOpen.value = false; }} />}
      <nav class={`nav ${rail ? "rail" : ""} ${slim.value && menuOpen.value ? "open" : ""}`} aria-label="Pages" onKeyDown={(e) => { if (e.key === "Escape") menuOpen.value = false; }}>
        <div class="nav-head"><Logo /><span class="nav-name">Speed of light</span></div>
        <div class="nav-groups">
          {GROUPS.map((group) => {
            const items = all.filter((a) => (a.group ?? "") === group);
            if (!items.length) return null;
            return (
              <div class="nav-group" role="group" aria-label={group || "Overview"}>
                {group && <div class="nav-title">{group}</div>}
                {items.map((a) => <Item a={a} rail={rail} />)}
              </div>
            );
          })}
          {failures.value.length > 0 && (
            <div class="nav-group" role="group" aria-label="Failed to load">
              <div class="nav-title">Failed to load</div>
              {failures.value.map((f) => <FailedItem f={f} rail={rail} />)}
            </div>
          )}
        </div>
        <div class="nav-foot">
          {foot.map((a) => <Item a={a} rail={rail} />)}
          <button type="button" class="nav-item" data-tip={rail ? "Help and keys" : undefined} aria-label="Help and keys" onClick={() => { helpOpen.value = true; menuOpen.value = false; }}>
            <Icon name="help" /><span class="nav-text">Help and keys</span><kbd>?</kbd>
          </button>
        </div>
      </nav>
    </>
  );
}

function Item({ a, rail }: { a: AnalysisInfo; rail: boolean }): JSX.Element {
  const off = a.available === false;
  const on = headOf(catalog.value, page.value)?.name === a.name;
  const reason = off ? shortReason(a.because) : "";
  const tip = rail ? (reason ? `${a.title}: ${reason}` : a.title) : off ? a.because : a.question;
  return (
    <ViewLink view={pageView(a.name)} class={`nav-item ${on ? "on" : ""} ${off ? "off" : ""}`} tip={tip ?? ""} label={off ? [a.title, reason, "not available", a.because !== reason && a.because].filter(Boolean).join(", ") : a.count ? `${a.title}, ${a.count}` : a.title} current={on && (familyOf(catalog.value, a.name).length > 1 ? "within" : true)} onGo={() => { menuOpen.value = false; }}>
      <Icon name={a.icon ?? a.name} />
      <span class="nav-text">{a.title}{reason && <> <span class="nav-reason">{reason}</span></>}</span>{" "}
      {!!a.count && <span class="nav-count">{a.count}</span>}
    </ViewLink>
  );
}

/** An analysis that could not be loaded: its page says why and what helps. */
function FailedItem({ f, rail }: { f: Failure; rail: boolean }): JSX.Element {
  const on = page.value === f.name;
  return (
    <ViewLink view={pageView(f.name)} class={`nav-item off ${on ? "on" : ""}`} tip={rail ? `${f.name}: ${f.reason}` : f.reason} label={`${f.name}, ${f.reason}, failed to load`} current={on} onGo={() => { menuOpen.value = false; }}>
      <Icon name="error" />
      <span class="nav-text">{f.name} <span class="nav-reason any">{f.reason}</span></span>
    </ViewLink>
  );
}
