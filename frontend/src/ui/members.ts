/** Colors and marks with a fixed meaning: of kinds of work, and of directions of copies. */

import palette from "../palette.json";

const TOKENS: object = palette.tokens;

export const MARKS = palette.marks as Record<string, string>;
/** Directions that look like a color of another name. */
const SAME: Record<string, string> = { PtoP: "communication", "copy kernel": "DtoD" };

/** `var(--gemm)` for a member of the palette; `other` for a name that is not in it. */
export const paint = (name: string | undefined): string => `var(--${name && Object.hasOwn(TOKENS, name) ? name : name && Object.hasOwn(SAME, name) ? SAME[name] : "other"})`;

/** The mark of a kind or a direction, as figures draw it; none for other names. */
export const markOf = (name: string): string | undefined => (Object.hasOwn(MARKS, name) ? MARKS[name] : Object.hasOwn(SAME, name) ? MARKS["other"] : undefined);
