// Search over everything that has a name: a field, and below it what matches by kind. Arrow keys move, Enter goes there, Esc closes.
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import * as api from "../api/client";
import type { Found, Link } from "../api/types";
import { catalog, chosen, pages, report, runs, where } from "../state/data";
import { foundGroups, localGroups, moved, ordered, type Result } from "../state/search";
import { go, linkView, pageView, view } from "../state/view";
import { Icon } from "../ui/icons";
import { Middle } from "../ui/text";

export const searchOpen = signal(false);
export const SEARCH_KEY = /Mac|iP(hone|ad)/.test(navigator.platform) ? "⌘K" : "Ctrl K";
const SETTLES = 150;

type Asked = { state: "idle" | "waiting" | "reading" | "ready"; found: Found | null } | { state: "error"; found: null; message: string };

/** Asks the server when typing pauses; the answer to the last text counts, and one that is being read is asked again. */
function useFound(text: string): Asked {
  const [asked, setAsked] = useState<Asked>({ state: "idle", found: null });
  const w = where.value;
  useEffect(() => {
    if (!w) return setAsked({ state: "idle", found: null });
    const stop = new AbortController();
    setAsked((now) => ({ state: "waiting", found: now.found }));
    const ask = async (): Promise<void> => {
      try {
        const found = await api.getFound(w, text, view.peek().device, stop.signal);
        if (!stop.signal.aborted) setAsked({ state: "ready", found });
      } catch (error) {
        if (stop.signal.aborted) return;
        if (!(error instanceof api.ApiError)) throw error;
        if (!error.loading) return setAsked({ state: "error", found: null, message: error.message });
        setAsked({ state: "reading", found: null });
        timer = window.setTimeout(() => void ask(), 800);
      }
    };
    let timer = window.setTimeout(() => void ask(), text ? SETTLES : 0);
    return () => { stop.abort(); window.clearTimeout(timer); };
  }, [text, w?.run, w?.worker, w?.span]);
  return asked;
}

export function Search(): JSX.Element | null {
  return searchOpen.value ? <Palette /> : null;
}

function Palette(): JSX.Element {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const input = useRef<HTMLInputElement>(null);
  const list = useRef<HTMLDivElement>(null);
  const back = useRef<Element | null>(document.activeElement);
  const asked = useFound(text.trim());
  const all = pages.value.value?.analyses ?? catalog.value;
  const names = useMemo(() => (runs.value.value?.runs ?? []).map((r) => r.name), [runs.value.value]);
  const here = chosen.value?.run.name ?? "";
  const groups = ordered(text, localGroups(text, all, names, here), foundGroups(asked.found, text));
  const isComplete = !where.value || asked.state === "error" || asked.found?.query === text.trim();
  const results = groups.flatMap((g) => g.results);
  const place = Math.min(at, results.length - 1);

  useLayoutEffect(() => { input.current?.focus(); }, []);
  useEffect(() => { list.current?.querySelector("[aria-selected='true']")?.scrollIntoView({ block: "nearest" }); }, [place, results.length]);
  const close = (): void => {
    searchOpen.value = false;
    if (back.current instanceof HTMLElement) back.current.focus({ preventScroll: true });
  };
  const open = (one: Result | undefined): void => {
    if (!one) return;
    close();
    go(viewOf(one.go), "push");
    if (one.table) showTable(one.table);
  };
  const key = (event: KeyboardEvent): void => {
    if (event.isComposing) return;
    if (event.key === "Escape") { event.stopPropagation(); close(); }
    else if (event.key === "Enter") open(results[place]);
    else if (event.key === "Tab") input.current?.focus();
    else if (moved(place, event.key, results.length) !== place) setAt(moved(place, event.key, results.length));
    else return;
    event.preventDefault();
  };
  let index = -1;
  return (
    <div class="veil high" onMouseDown={(e) => { if (e.target === e.currentTarget) close(); }}>
      <div class="dialog palette" role="dialog" aria-modal="true" aria-label="Search" onKeyDown={key}>
        <label class="search">
          <Icon name="search" size={16} />
          <input
            ref={input} type="text" role="combobox" aria-label="Search" placeholder="Search pages, runs, findings, kernels, operators, modules" autocomplete="off" spellcheck={false} maxLength={200}
            aria-expanded={results.length > 0} aria-controls="search-results" aria-autocomplete="list" aria-activedescendant={place >= 0 ? `search-${place}` : undefined}
            value={text} onInput={(e) => { setText(e.currentTarget.value); setAt(0); }}
          />
          <kbd>Esc</kbd>
        </label>
        <div class="palette-results" id="search-results" ref={list} role="listbox" aria-label="Results" aria-busy={!isComplete}>
          {groups.map((g) => (
            <div role="group" aria-label={g.title}>
              <div class="palette-group" role="presentation"><span>{g.title}</span>{g.more > 0 && <span class="quiet">{g.more.toLocaleString("en-US")} more; type to narrow</span>}</div>
              {g.results.map((one) => {
                const own = ++index;
                return (
                  <div id={`search-${own}`} role="option" aria-selected={own === place} class={`option ${own === place ? "on" : ""}`} data-tip={one.tip || undefined} onMouseMove={() => { if (own !== place) setAt(own); }} onClick={() => open(one)}>
                    {one.table ? <Middle text={one.text} /> : <span class="palette-text">{one.text}</span>}{one.note && <span class="note">{one.note}</span>}
                  </div>
                );
              })}
            </div>
          ))}
        </div>
        <p class="none" role="status">{statusOf(asked, text.trim(), results.length)}</p>
      </div>
    </div>
  );
}

/** A link, on this recording; of a run, its own page of what is shown now. */
const viewOf = (link: Link): ReturnType<typeof linkView> => (link.analysis ? linkView(link) : { ...pageView(view.peek().page), run: link.query?.["run"] ?? "", worker: "", span: "", step: "", capture: "" });

/** Scrolls to the table that was filtered, once its page is there; not after a move elsewhere. */
function showTable(id: string): void {
  const wanted = view.peek();
  const look = (left: number): void => {
    if (view.peek().page !== wanted.page || !left) return;
    const table = document.querySelector(`[data-section="${CSS.escape(id)}"]`);
    if (table && report.peek().value?.analysis === wanted.page) table.scrollIntoView({ block: "start" });
    else window.setTimeout(() => look(left - 1), 100);
  };
  window.setTimeout(() => look(50), 50);
}

function statusOf(asked: Asked, text: string, count: number): string {
  if (asked.state === "error") return `Names of this recording could not be searched: ${asked.message}`;
  if (asked.state === "reading") return "The recording is being read; its names follow.";
  if (asked.state === "waiting" && !asked.found) return "Searching…";
  if (!count && asked.state !== "waiting") return `Nothing is named “${text}”.`;
  return "Times are of the whole recording. ↑ ↓ move, Enter opens.";
}
