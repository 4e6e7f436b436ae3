// Help and keys.
import { signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { catalog, failures, runs } from "../state/data";
import { REMEDY } from "../state/failures";
import { Icon } from "../ui/icons";
import { Text } from "../ui/text";
import { SEARCH_KEY } from "./search";

export const helpOpen = signal(false);

/** The letter after `g` for each page. */
export const LETTERS: Record<string, string> = {
  o: "overview", f: "findings", r: "roofline", m: "modules", p: "phases", c: "memcpy", k: "kernels", a: "operators", s: "steps", i: "iterations", b: "gpu_breakdown", y: "memory", e: "memory_plan", w: "whatif", h: "health", l: "links",
};

const KEYS: [string, string][] = [
  [SEARCH_KEY, "search pages, runs, findings, kernels, operators, modules"], ["/", "filter the page's table"], ["?", "this card"], ["[ ]", "previous and next step"], ["↑ ↓", "move in a table"], ["→ ←", "open and close a branch"], ["*", "open all below"],
  ["Enter", "open or select the row; in a chart's Select, an area by numbers"], ["c", "copy the row"], ["Esc", "one step back: close, clear the selection"],
];

/** The letters of the pages that there are, each with its title. */
const letters = (): string => Object.entries(LETTERS).flatMap(([letter, name]) => {
  const found = catalog.value.find((a) => a.name === name);
  return found ? [`${letter} ${found.title}`] : [];
}).join(", ");

const SIGNS: [string, string][] = [
  ["≈ 42.4 %", "estimated, or only partly modeled; hover for the reason"], ["63 GB/s ?", "the limit is from a table, not from a data sheet or a measurement"], ["127.3 % ⚑", "above its limit: shown as it is, never cut"],
  ["—", "not known or not recorded; hover for the reason. Never zero"], ["< 0.1", "more than zero, less than can be shown"], ["≥ 508 GB", "at least this much"],
];

export function Help(): JSX.Element | null {
  const card = useRef<HTMLDivElement>(null);
  useEffect(() => { if (helpOpen.value) card.current?.focus(); }, [helpOpen.value]);
  if (!helpOpen.value) return null;
  const close = (): void => { helpOpen.value = false; };
  return (
    <div class="veil" onClick={(e) => { if (e.target === e.currentTarget) close(); }}>
      <div ref={card} class="dialog" role="dialog" aria-modal="true" aria-label="Help and keys" tabIndex={-1} onKeyDown={(e) => { if (e.key === "Escape") { e.stopPropagation(); close(); } }}>
        <div class="dialog-head"><h2>Help and keys</h2><button type="button" class="ghost" aria-label="Close" onClick={close}><Icon name="close" /></button></div>
        <div class="help-grid">
          <div>
            <h3>Keys</h3>
            <dl class="keys-list">{KEYS.map(([k, text]) => <div><dt>{k.split(" ").map((one) => <kbd>{one}</kbd>)}</dt><dd>{text}</dd></div>)}<div><dt><kbd>g</kbd></dt><dd>then a letter: {letters()}</dd></div></dl>
          </div>
          <div>
            <h3>How a number shows what is known</h3>
            <dl class="keys-list">{SIGNS.map(([k, text]) => <div><dt class="sign-dt">{k}</dt><dd>{text}</dd></div>)}</dl>
            <p class="quiet">The speed of light of an operator is the least time its arithmetic and its bytes can take on this device. Time above that limit is what optimization can save. Every view is a link: the address holds the page, the selection, filters, sorting and what is opened.</p>
            {failures.value.length > 0 && (
              <>
                <h3>Analyses that failed to load</h3>
                <ul class="failures">{failures.value.map((f) => <li><strong>{f.name}</strong> <span class="quiet">{f.reason}</span></li>)}</ul>
                <p class="quiet"><Text text={REMEDY} /></p>
              </>
            )}
            {runs.value.value?.features?.version && <p class="quiet">tb_sol_plugin {runs.value.value.features.version}</p>}
          </div>
        </div>
      </div>
    </div>
  );
}
