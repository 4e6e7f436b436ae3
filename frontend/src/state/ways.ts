// What else leads to a view than its address: a link as Markdown, the command and the line of Python that answer the same. Pure.
// A mirror of `tb_sol_plugin/web/links.py`.
import type { View } from "./codec";

/** Stands where a person names the logdir. */
const LOGDIR = "LOGDIR";

type Asked = Pick<View, "page" | "run" | "worker" | "span" | "step" | "capture" | "device" | "query">;

const fields = (query: Readonly<Record<string, string>>): [string, string][] => Object.entries(query).filter(([, value]) => value !== "").sort(([a], [b]) => (a < b ? -1 : 1));

/** A word as a shell takes it. */
const quoted = (word: string): string => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\"'\"'")}'`);

/** The command that prints the same report. */
export function commandOf(v: Asked): string {
  const given: [string, string][] = [["run", v.run], ["worker", v.worker], ["span", v.span], ["step", v.step], ["capture", v.capture], ["device-limits", v.device]];
  const options = [...given.filter(([, value]) => value), ...fields(v.query).map(([name, value]): [string, string] => [name.replaceAll("_", "-"), value])];
  return ["tb-sol", "analyze", v.page, LOGDIR, ...options.flatMap(([name, value]) => [`--${name}`, quoted(value)]), "--format", "text"].join(" ");
}

/** The line of Python that makes the same report. */
export function pythonOf(v: Asked): string {
  const text = JSON.stringify;
  const opened = [["run", v.run], ["capture", v.capture]].filter(([, value]) => value).map(([name, value]) => `, ${name}=${text(value)}`);
  const run = `sol.open(${text(LOGDIR)}${opened.join("")})`;
  const named = [["worker", v.worker], ["span", v.span]].filter(([, value]) => value).map(([name, value]) => `c.${name} == ${text(value)}`);
  const shown = named.length ? `next(c for c in ${run}.captures if ${named.join(" and ")})` : run;
  const given: [string, string][] = [["step", v.step], ["device_limits", v.device]];
  const options = [...given.filter(([, value]) => value), ...fields(v.query)].map(([name, value]) => `${name}=${text(value)}`);
  return `${shown}.analyze(${[text(v.page), ...options].join(", ")})`;
}

/** A link with the headline of the page as its words. */
export function markdownOf(title: string, headline: string, address: string): string {
  const words = `${title}${headline && `: ${headline}`}`.replace(/\*\*|`/g, "").replace(/[[\]\\]/g, "\\$&").replace(/\s+/g, " ");
  return `[${words}](${address.replaceAll("(", "%28").replaceAll(")", "%29")})`;
}
