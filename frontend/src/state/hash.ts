// The hash of TensorBoard's address: tokens split at `&`; the one without `=` is the active tab; ours are `p.sol.KEY=VALUE`.
import type { Pairs } from "./codec";

export const PLUGIN = "sol";
const PREFIX = `p.${PLUGIN}.`;

/** Our pairs in `hash`; a malformed escape costs its own token only. */
export function readHash(hash: string): Pairs {
  const out: Pairs = {};
  for (const token of tokens(hash)) {
    const eq = token.indexOf("=");
    if (eq < 0) continue;
    try {
      const key = decodeURIComponent(token.slice(0, eq));
      if (key.startsWith(PREFIX)) out[key.slice(PREFIX.length)] = decodeURIComponent(token.slice(eq + 1));
    } catch {
      continue; // not ours to repair: another tool may have cut the link here
    }
  }
  return out;
}

/** The hash with our pairs replaced, our tab active, and everyone else's tokens kept in place. */
export function writeHash(hash: string, pairs: Pairs): string {
  const keep = tokens(hash).filter((token) => token.includes("=") && !isOurs(token));
  const ours = Object.entries(pairs).map(([k, v]) => `${enc(PREFIX + k)}=${enc(v)}`);
  return "#" + [PLUGIN, ...keep, ...ours].join("&");
}

/** The active tab, "" where none is named yet. */
export const activeTab = (hash: string): string => tokens(hash).find((token) => !token.includes("=")) ?? "";

const tokens = (hash: string): string[] => hash.replace(/^#/, "").split("&").filter(Boolean);

function isOurs(token: string): boolean {
  try {
    return decodeURIComponent(token.slice(0, token.indexOf("="))).startsWith(PREFIX);
  } catch {
    return false;
  }
}

/** Percent escapes for everything the hash grammar minds; lone surrogates become U+FFFD, the rest of ASCII stays readable. */
function enc(text: string): string {
  const whole = text.replace(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, "\ufffd");
  return encodeURIComponent(whole).replace(/%(2C|2F|3A|2B)/g, (escape) => decodeURIComponent(escape));
}
