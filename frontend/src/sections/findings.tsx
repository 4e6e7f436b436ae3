// Recommendations, what is proven before what is possible and what other work hides, the largest saving of each first: length is severity, the color says what is removed.
import type { JSX } from "preact";
import type { Finding, FindingsSection } from "../api/types";
import { human, MINUS, NARROW, partsBeside } from "../units";
import { ReportLink } from "../ui/link";
import { Copy } from "../ui/copy";
import { Text } from "../ui/text";
import { paint } from "../ui/theme";

/** What the savings are, and what they come to together where there are several. */
export function findingsSubtitle(s: FindingsSection): string {
  const words = s.subtitle || (!s.findings.length ? "" : s.saves === "memory" ? "memory it could free, at most" : "saving per step, at most");
  const shown = s.findings.filter((f) => !f.hidden).length;
  const together = typeof s.combined_ns === "number" && shown > 1 ? `${shown === 2 && s.findings.length === 2 ? "both" : `${shown === s.findings.length ? "these" : "the first"} ${shown}`} together **${human(s.combined_ns, "ns")}**` : "";
  return [words, together].filter(Boolean).join("; ");
}

export function Findings({ s }: { s: FindingsSection }): JSX.Element {
  const memory = s.saves === "memory";
  const largest = Math.max(1, ...s.findings.map((f) => savingOf(f, memory) ?? 0));
  if (!s.findings.length) return <p class="section-empty"><Text text={s.empty || "No finding."} /></p>;
  return (
    <ol class="findings">
      {s.findings.map((f, i) => <>{groupOf(f) && groupOf(f) !== groupOf(s.findings[i - 1]) && <li class="finding-group" data-tip={GROUPS[groupOf(f)]}>{groupOf(f)}</li>}<FindingItem f={f} largest={largest} memory={memory} whole={memory ? "the peak" : /step/.test(s.subtitle ?? "step") ? "step" : "the time"} /></>)}
    </ol>
  );
}

const GROUPS: Record<string, string> = {
  "Possible, not proven": "The recording makes the cause likely but does not prove it.",
  "Hidden behind other work": "By replay of all dependencies, fixing one of these alone saves next to nothing: other work holds the step.",
};

function groupOf(f?: Finding): string {
  return f?.hidden ? "Hidden behind other work" : f?.candidate ? "Possible, not proven" : "";
}

/** How a saving is known, in words. */
function basisOf(f: Finding, whole: string): string {
  const per = whole === "step" ? ", per step" : "";
  return typeof f.removed_ns === "number" ? `by replay of all dependencies${per}; it takes ${human(f.removed_ns, "ns")}` : `at most${per}`;
}

function savingOf(f: Finding, memory: boolean): number | null {
  return (memory ? f.saving_bytes : f.saving_ns) ?? null;
}

function FindingItem({ f, largest, memory, whole }: { f: Finding; largest: number; memory: boolean; whole: string }): JSX.Element {
  const saving = savingOf(f, memory);
  const parts = saving === null ? null : partsBeside(saving, memory ? "B" : "ns", largest);
  return (
    <li class="finding" data-rule={f.rule}>
      <div class="finding-left">
        <div class="saving" data-tip={saving === null ? "This recording does not show how much this saves." : basisOf(f, whole)}>
          {parts === null ? "—" : <>{MINUS}{parts.text}<span class="unit">{NARROW}{parts.unit}</span></>}
        </div>
        <div class="track thin"><span style={{ width: saving === null ? "0" : `max(1.5px, ${(saving / largest) * 100}%)`, background: paint(f.color) }} /></div>
        {typeof f.share === "number" && <div class="tile-note">{human(f.share, "ratio")} of {whole}</div>}
      </div>
      <div class="finding-right">
        <h3>{f.candidate && <span class="tag">Possible</span>}<Text text={f.title} /></h3>
        <p><Text text={f.evidence} /></p>
        <div class="finding-foot">
          {f.fix && <Copy class="fix" what="the fix" text={() => f.fix!} label={`Copy: ${f.fix}`}><code>{f.fix}</code></Copy>}
          {f.rows && <ReportLink link={f.rows} fallback="Its rows" />}
          {f.link && <ReportLink link={f.link} fallback="Evidence" />}
        </div>
      </div>
    </li>
  );
}
