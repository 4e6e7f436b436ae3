// One value with its mark: measured, estimated, unverified, flagged, a bound, or unknown with the reason.
import type { ComponentChildren, JSX } from "preact";
import type { Mark, Scalar } from "../api/types";
import { exact, humanParts, NARROW } from "../units";
import { Text } from "../ui/text";

export const SIGN: Partial<Record<Mark["state"], string>> = { estimated: "≈", partial: "≈", lower_bound: "≥" };
export const WORD: Record<Mark["state"], string> = {
  estimated: "Estimated",
  partial: "Partly modeled",
  unverified: "Unverified limit",
  flagged: "Above its limit",
  unknown: "Unknown",
  lower_bound: "At least",
  incomplete: "Incomplete",
};

/** The reason of a mark, as a tooltip. */
export function whyText(mark: Mark | undefined): string {
  return mark ? (mark.why ? `${WORD[mark.state]}: ${mark.why}` : WORD[mark.state]) : "";
}

interface MarkedProps {
  mark?: Mark | undefined;
  /** the formatted number where it is shown without a table: `< 0.1` gets no second sign */
  text?: string;
  children: ComponentChildren;
}

/** The signs of a mark around a number that is already formatted. */
export function Marked({ mark, text = "", children }: MarkedProps): JSX.Element {
  if (!mark) return <>{children}</>;
  const sign = text.startsWith("<") ? undefined : SIGN[mark.state];
  return (
    <span class={`marked ${mark.state}`}>
      {sign && <span class="sign">{sign}{NARROW}</span>}
      {children}
      {mark.state === "unverified" && <sup>?</sup>}
      {mark.state === "flagged" && <span class="flag" role="img" aria-label="flagged">⚑</span>}
      {mark.state === "incomplete" && <span class="hatch" role="img" aria-label="incomplete" />}
    </span>
  );
}

interface ValueProps {
  value: Scalar;
  unit?: string;
  mark?: Mark | undefined;
  doc?: string | undefined;
}

/** A single value (in facts, tiles, tooltips) in the unit that suits it, the exact figure on hover. */
export function Value({ value, unit = "", mark, doc }: ValueProps): JSX.Element {
  const why = whyText(mark);
  if (value === null || value === undefined) {
    const reason = why || "Not known from this recording.";
    return <span class="unknown" tabIndex={0} data-tip={reason} aria-label={`unknown: ${reason}`}>—</span>;
  }
  if (typeof value !== "number") {
    const text = typeof value === "boolean" ? (value ? "yes" : "no") : value;
    return <span class="value text-value" data-tip={[doc, why].filter(Boolean).join("\n") || undefined}><Marked mark={mark}><Text text={text} /></Marked></span>;
  }
  const parts = unit === "" ? plainNumber(value) : humanParts(value, unit);
  const tip = [doc, unit ? exact(value, unit) : "", why].filter(Boolean).join("\n");
  return (
    <span class="value" data-tip={tip || undefined}>
      <Marked mark={mark} text={parts.text}>
        {parts.text}
        {parts.unit && <span class="unit">{NARROW}{parts.unit}</span>}
      </Marked>
    </span>
  );
}

/** A number without a unit is an id, a version or a count of something: whole ones stay whole. */
const plainNumber = (value: number): { text: string; unit: string } => (Number.isInteger(value) ? humanParts(value, "count") : humanParts(value, ""));
