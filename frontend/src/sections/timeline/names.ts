// Names of events by number, the category of each, and the search in them. Pure.
import type { Names } from "../../api/timeline";

const ELEMENTWISE = /^(?:\w+_)?elementwise_kernel\w*<(.+)>$/;

export class NameTable {
  readonly text: readonly string[];
  readonly categories: Uint8Array;
  private readonly shorts: Readonly<Record<string, string>>;

  constructor(names: Names) {
    this.text = names.names;
    this.shorts = names.short ?? {};
    this.categories = Uint8Array.from(names.categories);
  }

  at(id: number): string {
    return this.text[id] ?? "…";
  }

  /** What a person calls it: of a kernel its name without parameters and most template arguments. */
  short(id: number): string {
    return this.shorts[id] ?? this.at(id);
  }

  /** The same where there is little room: of a loop over elements what it does to each. */
  narrow(id: number): string {
    return ELEMENTWISE.exec(this.short(id))?.[1] ?? this.short(id);
  }

  private byName: ReadonlyMap<string, string> | null = null;

  /** The short name of a name. */
  shortOf(name: string): string {
    this.byName ??= new Map(Object.entries(this.shorts).map(([id, short]) => [this.at(Number(id)), short]));
    return this.byName.get(name) ?? name;
  }
}

export const NO_NAMES = new NameTable({ names: [], categories: [] });
/** Names above which only plain text is looked for, and not here. */
export const MOST_SEARCHED = 200_000;
/** Ids that one request may carry; of more, the text itself is sent. */
export const MOST_IDS = 2_000;

export const categoryOf = (categories: Uint8Array, name: number): number => categories[name] ?? 0;

export interface Pattern {
  test: (name: string) => boolean;
  /** plain text, not a regular expression */
  plain: boolean;
  /** why a pattern is none, "" where it is one */
  wrong: string;
}

/** `/…/` is a regular expression, anything else plain text; letters of both cases are the same. */
export function patternOf(text: string): Pattern {
  const found = /^\/(.+)\/$/s.exec(text);
  if (!found) {
    const plain = text.toLowerCase();
    return { test: (name) => name.toLowerCase().includes(plain), plain: true, wrong: "" };
  }
  try {
    const expression = new RegExp(found[1]!, "i");
    return { test: (name) => expression.test(name), plain: false, wrong: "" };
  } catch {
    return { test: () => false, plain: false, wrong: `${text} is no regular expression` };
  }
}

/** Ids of the names that match. */
export function matching(names: NameTable, pattern: Pattern): number[] {
  const out: number[] = [];
  names.text.forEach((name, id) => { if (pattern.test(name)) out.push(id); });
  return out;
}
