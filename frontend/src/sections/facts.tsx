// Named single values: a list, tiles, one equation, a whole and its parts, or a small card.
import type { ComponentChildren, JSX } from "preact";
import type { FactsSection } from "../api/types";
import { linkView } from "../state/view";
import { human } from "../units";
import { ViewLink } from "../ui/link";
import { Mark as Shape } from "../ui/icons";
import { Text } from "../ui/text";
import { MARKS, paint, PALE } from "../ui/theme";
import { cardCount, factorCount, namesOf } from "./cards";
import { Value } from "./value";

const labelOf = (s: FactsSection, name: string): string => s.labels?.[name] ?? (name[0]?.toUpperCase() ?? "") + name.slice(1).replace(/_(ns|pct)$/, "").replace(/_/g, " ");

function Fact({ s, name }: { s: FactsSection; name: string }): JSX.Element {
  const value = <Value value={s.values[name] ?? null} unit={s.units?.[name] ?? ""} mark={s.marks?.[name]} doc={s.docs?.[name]} />;
  const link = s.value_links?.[name];
  return link ? <ViewLink view={linkView(link)} class="link">{value}</ViewLink> : value;
}

/** What a value was in the baseline, and by how much it changed: `was 4.1 ms, +3.2 %`. */
export function baseText(s: FactsSection, name: string): string {
  const [was, now, unit] = [s.base?.[name], s.values[name], s.units?.[name] ?? ""];
  if (was === undefined || was === null || was === now) return "";
  const text = typeof was === "number" ? human(was, unit || (Number.isInteger(was) ? "count" : "")) : String(was);
  const part = typeof was === "number" && typeof now === "number" && was && unit !== "ratio" && unit !== "%" ? (now - was) / Math.abs(was) : null;
  return part === null ? `was ${text}` : `was ${text}, ${part > 0 ? "+" : ""}${human(part, "ratio")}`;
}

function Was({ s, name }: { s: FactsSection; name: string }): JSX.Element | null {
  const text = baseText(s, name);
  return text ? <div class="was">{text}</div> : null;
}

/** `lead` is shown in an equation without a text; a text equal to `headline`, which the head of the page shows, is left out. */
export function Facts({ s: section, lead, headline }: { s: FactsSection; lead?: string; headline?: string }): JSX.Element {
  const s = section.text && section.text === headline && section.style !== "equation" ? { ...section, text: "" } : section;
  switch (s.style) {
    case "tiles": return <Tiles s={s} list={namesOf(s)} />;
    case "equation": return <Equation s={s} lead={lead ?? ""} />;
    case "split": return <Split s={s} />;
    case "card": return <SmallCard s={s} />;
    default: return <FactList s={s} list={namesOf(s)} />;
  }
}

function FactList({ s, list }: { s: FactsSection; list: string[] }): JSX.Element {
  return (
    <>
      {s.text && <p class="facts-text"><Text text={s.text} /></p>}
      <dl class="facts">
        {list.map((name) => (
          <div class="fact">
            <dt data-tip={s.docs?.[name]}>{labelOf(s, name)}</dt>
            <dd><Fact s={s} name={name} /><Was s={s} name={name} />{s.notes?.[name] && <span class="fact-note"><Text text={s.notes[name]!} /></span>}</dd>
          </div>
        ))}
      </dl>
    </>
  );
}

function Tiles({ s, list }: { s: FactsSection; list: string[] }): JSX.Element {
  return (
    <>
      <div class="tiles">
        {list.map((name) => (
          <div class="tile">
            <div class="tile-label" data-tip={s.docs?.[name]}>{s.colors?.[name] && <Swatch name={s.colors[name]!} />}{labelOf(s, name)}</div>
            <div class={`tile-value ${isLong(s, name) ? "long" : ""}`}><Fact s={s} name={name} /></div>
            <Was s={s} name={name} />
            {s.notes?.[name] && <div class="tile-note"><Text text={s.notes[name]!} /></div>}
          </div>
        ))}
      </div>
      {s.text && <p class="facts-text below"><Text text={s.text} /></p>}
    </>
  );
}

/** Whether a number is too long for a tile at full size, say the parameters of a model. */
const isLong = (s: FactsSection, name: string): boolean => {
  const value = s.values[name];
  return typeof value === "number" && human(value, s.units?.[name] ?? "").length > 11;
};

const LONG_TEXT = 130;

function Equation({ s, lead }: { s: FactsSection; lead: string }): JSX.Element {
  const all = namesOf(s);
  const values = all.map((n) => (typeof s.values[n] === "number" ? (s.values[n] as number) : null));
  const ratios = all.findIndex((n, i) => i > 0 && (s.units?.[n] ?? "") !== "ratio");
  const count = Math.min(factorCount(values), ratios < 0 ? all.length - 1 : ratios - 1);
  const known = values.slice(1, 1 + count).some((v) => v !== null); // where no factor is known, only the product is shown
  const [first, factors, rest] = [all[0], known ? all.slice(1, 1 + count) : [], all.slice(1 + count)];
  const text = s.text || lead;
  const long = text.length > LONG_TEXT; // a longer one is below, over the whole width
  return (
    <div class={`equation ${rest.length > 3 ? "many" : ""} ${long ? "text-below" : ""}`}>
      <div class="equation-main">
        {first && (
          <div class="equation-total">
            <div class="headline-number"><Fact s={s} name={first} /></div>
            <div class="equation-label" data-tip={s.docs?.[first]}>{labelOf(s, first)}</div>
            <Was s={s} name={first} />
          </div>
        )}
        {factors.map((name, i) => {
          const v = s.values[name];
          return (
            <>
              <span class="operator" aria-hidden="true">{i === 0 ? "=" : "×"}</span>
              <div class="factor">
                <div class="tile-label" data-tip={s.docs?.[name]}>{labelOf(s, name)}</div>
                <div class="factor-value"><Fact s={s} name={name} /></div>
                {typeof v === "number" && <div class="track"><span style={{ width: `${Math.min(100, Math.max(0, v * 100))}%`, background: paint(s.colors?.[name] ?? "bar-ink") }} /></div>}
                <Was s={s} name={name} />
                {s.notes?.[name] && <div class="tile-note"><Text text={s.notes[name]!} /></div>}
              </div>
            </>
          );
        })}
        {text && !long && <p class="equation-text"><Text text={text} /></p>}
      </div>
      {rest.length > 0 && <div class="equation-tiles"><Tiles s={{ ...s, text: "" }} list={rest} /></div>}
      {long && <p class="equation-text below"><Text text={text} /></p>}
    </div>
  );
}

function Split({ s }: { s: FactsSection }): JSX.Element {
  const parts = namesOf(s).map((name) => ({ name, value: s.values[name], unit: s.units?.[name] ?? "" }));
  const whole = parts.reduce((sum, p) => sum + (typeof p.value === "number" ? Math.max(0, p.value) : 0), 0);
  const share = (v: unknown): number => (typeof v === "number" && whole > 0 ? Math.max(0, v) / whole : 0);
  const label = parts.map((p) => `${labelOf(s, p.name)} ${human(p.value as number | null, p.unit)}`).join(", ");
  return (
    <>
      <div class="split" role="img" aria-label={label}>
        {parts.filter((p) => share(p.value) > 0).map((p) => (
          <span
            class={s.colors?.[p.name] === "idle" ? "idle" : ""} style={{ flexGrow: share(p.value), background: s.colors?.[p.name] === "idle" ? undefined : paint(s.colors?.[p.name]) }}
            data-tip={`${labelOf(s, p.name)}  ${human(p.value as number, p.unit)}, ${human(share(p.value), "ratio")}`}
          />
        ))}
      </div>
      <div class="legend">
        {parts.map((p) => (
          <div class="legend-item" data-tip={s.docs?.[p.name]}>
            <Swatch name={s.colors?.[p.name] ?? "other"} />
            <span class="legend-label">{labelOf(s, p.name)}</span>
            <span class="legend-value"><Fact s={s} name={p.name} /></span>
            {typeof p.value === "number" && whole > 0 && <span class="legend-share">{human(share(p.value), "ratio")}</span>}
            <Was s={s} name={p.name} />
          </div>
        ))}
      </div>
      {s.text && <p class="facts-text below"><Text text={s.text} /></p>}
    </>
  );
}

export const Swatch = ({ name }: { name: string }): JSX.Element => <span class={`swatch ${name === "idle" ? "idle" : PALE.has(name) ? "pale" : ""}`} style={name === "idle" ? undefined : { background: paint(name) }} />;

/** The count of a small card, as a link where it has one. */
export function CardCount({ s }: { s: FactsSection }): JSX.Element | null {
  const name = cardCount(s);
  return name ? <span class="card-count" data-tip={labelOf(s, name)} aria-label={labelOf(s, name)}><Fact s={s} name={name} /></span> : null;
}

/** Two large values, then the rest as short lines; ratios with a bar. */
function SmallCard({ s }: { s: FactsSection }): JSX.Element {
  const list = namesOf(s).filter((n) => n !== cardCount(s));
  const member = Object.values(s.colors ?? {})[0];
  const large = list.filter((n) => typeof s.values[n] === "number" && s.units?.[n] !== "ratio" && s.units?.[n] !== "count").slice(0, 2);
  const rest = list.filter((n) => !large.includes(n));
  const bar = (name: string): ComponentChildren => {
    const v = s.values[name];
    return s.units?.[name] === "ratio" && typeof v === "number" ? <div class="track small"><span style={{ width: `${Math.min(100, Math.max(0, v * 100))}%`, background: paint(s.colors?.[name] ?? member ?? "bar-ink") }} /></div> : null;
  };
  return (
    <div class="small-card">
      {large.length > 0 && <div class="small-large">{large.map((n) => <span data-tip={labelOf(s, n)}><Fact s={s} name={n} /><Was s={s} name={n} /></span>)}</div>}
      {rest.map((name) => (
        <div class="small-row">
          <div class="small-line"><span data-tip={s.docs?.[name]}>{labelOf(s, name)}</span><Fact s={s} name={name} /></div>
          <Was s={s} name={name} />
          {bar(name)}
          {s.notes?.[name] && <div class="tile-note"><Text text={s.notes[name]!} /></div>}
        </div>
      ))}
      {s.text && <p class="facts-text below"><Text text={s.text} /></p>}
    </div>
  );
}

/** The mark of a small card's title: the shape of what it is about. */
export function CardMark({ s }: { s: FactsSection }): JSX.Element | null {
  const member = s.style === "card" ? Object.values(s.colors ?? {})[0] : undefined;
  return member && MARKS[member] ? <Shape shape={MARKS[member]!} color={paint(member)} /> : null;
}

