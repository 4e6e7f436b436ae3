// Small cards: which sections they are, how they share a row, and the count after a title. Pure.
import type { FactsSection, Section } from "../api/types";

export const isCard = (s: Section): boolean => s.kind === "facts" && s.style === "card";

/** Sections one by one; small cards that follow each other together, so that they share their widths. */
export function rowsOf(sections: readonly Section[]): Section[][] {
  const rows: Section[][] = [];
  for (const s of sections) {
    const last = rows.at(-1);
    if (isCard(s) && last && isCard(last[0]!)) last.push(s);
    else rows.push([s]);
  }
  return rows;
}

/** Names of the facts that are shown. */
export const namesOf = (s: FactsSection): string[] => Object.keys(s.values).filter((n) => !s.hidden?.includes(n));

/** The first count of a small card, shown after its title where the card has more values. */
export function cardCount(s: FactsSection): string | undefined {
  const list = namesOf(s);
  return s.style === "card" && list.length > 1 ? list.find((n) => s.units?.[n] === "count") : undefined;
}

/** How many values after the first multiply to it: those up to where the product fits, else none; two where the first is unknown. */
export function factorCount(values: (number | null)[]): number {
  const [whole, ...rest] = values;
  if (typeof whole !== "number") return Math.min(2, rest.length);
  let product = 1;
  for (let i = 0; i < rest.length; i++) {
    const v = rest[i];
    if (typeof v !== "number") break;
    product *= v;
    if (i > 0 && Math.abs(product - whole) <= Math.max(Math.abs(whole) * 0.01, 1e-6)) return i + 1;
  }
  return 0;
}
