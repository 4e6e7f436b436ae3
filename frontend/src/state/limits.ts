// Device limits as text: KEY, KEY@1410MHz, KEY+sparse, or the last two alone for the device as recorded.

export interface Limits {
  key: string;
  clock: string;
  sparse: boolean;
}

/** The parts of an expression. What cannot be parsed stays in the key: the server reports what is wrong. */
export function splitLimits(text: string): Limits {
  const found = /^([^@+]*?)\s*(?:@\s*(\d+(?:\.\d+)?)\s*MHz)?\s*(\+\s*sparse)?$/i.exec(text.trim());
  return found ? { key: found[1]!, clock: found[2] ?? "", sparse: found[3] !== undefined } : { key: text.trim(), clock: "", sparse: false };
}

/** The expression of the parts; a clock that is no number is left for the server to refuse. */
export const joinLimits = ({ key, clock, sparse }: Limits): string => key + (clock ? `@${clock}${/[a-z]$/i.test(clock) ? "" : "MHz"}` : "") + (sparse ? "+sparse" : "");
