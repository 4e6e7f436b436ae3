// An analysis with further views: a title and a bar of tabs that stays while the view below it changes. Each tab is a link.
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { alone } from "../api/file";
import type { AnalysisInfo } from "../api/types";
import { catalog } from "../state/data";
import { familyOf } from "../state/family";
import { page, pageView } from "../state/view";
import { ViewLink } from "../ui/link";
import { shortReason } from "./nav";

/** Title of the first tab: the analysis that the others are views of. */
const FIRST = "Summary";

/** Whether the present page has a bar of tabs, which shows its title. A report that stands alone has no other views. */
export const hasTabs = (): boolean => !alone && familyOf(catalog.value, page.value).length > 1;

export function Family(): JSX.Element | null {
  const tabs = familyOf(catalog.value, page.value);
  const bar = useRef<HTMLDivElement>(null);
  useEffect(() => {
    // a bar wider than the window shows the present tab
    const [all, now] = [bar.current, bar.current?.querySelector<HTMLElement>("[aria-current]")];
    if (all && now) all.scrollLeft = Math.max(0, now.offsetLeft - (all.clientWidth - now.offsetWidth) / 2);
  }, [page.value, tabs.length > 1]);
  if (!hasTabs()) return null;
  const head = tabs[0]!;
  const label = (a: AnalysisInfo): string => (a === head ? FIRST : a.title);
  const move = (event: KeyboardEvent): void => {
    const links = [...(event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>("a")];
    const at = links.indexOf(document.activeElement as HTMLElement);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: links.length - 1 }[event.key];
    if (to === undefined || at < 0) return;
    event.preventDefault();
    event.stopPropagation();
    links[(to + links.length) % links.length]!.focus();
  };
  return (
    <div class="family">
      <h1>{head.title}{page.value !== head.name && <span class="sr">: {label(tabs.find((a) => a.name === page.value)!)}</span>}</h1>
      <nav class="tabs" aria-label={`Views of ${head.title}`} onKeyDown={move}>
        <div class="tabs-row" ref={bar}>
          {tabs.map((a) => {
            const [on, off] = [a.name === page.value, a.available === false];
            return (
              <ViewLink key={a.name} view={pageView(a.name)} class={`tab ${on ? "on" : ""} ${off ? "off" : ""}`} tip={(off ? a.because : a.question) ?? ""} label={off ? `${label(a)}, not available: ${a.because ?? ""}` : label(a)} current={on} stop={!on}>
                {label(a)}{off && head.available !== false && <span class="tab-reason">{shortReason(a.because)}</span>}
              </ViewLink>
            );
          })}
        </div>
      </nav>
    </div>
  );
}
