// The two marks that text of a report may carry: **bold** and `code`. Everything else is plain text.

export type Piece = { kind: "text" | "bold" | "code"; text: string };

const MARK = /\*\*([^*\n]+?)\*\*|`([^`\n]+)`/g;

/** `text` cut at its marks, in order; joining the pieces' text gives the text without the marks. */
export function pieces(text: string): Piece[] {
  const out: Piece[] = [];
  let at = 0;
  for (const match of text.matchAll(MARK)) {
    if (match.index > at) out.push({ kind: "text", text: text.slice(at, match.index) });
    out.push(match[1] !== undefined ? { kind: "bold", text: match[1] } : { kind: "code", text: match[2]! });
    at = match.index + match[0].length;
  }
  if (at < text.length) out.push({ kind: "text", text: text.slice(at) });
  return out;
}

/** The text alone, for labels and titles that cannot carry marks. */
export const plain = (text: string): string => pieces(text).map((p) => p.text).join("");
