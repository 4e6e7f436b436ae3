// Lists inside one value of the address: items joined by commas, `\` before a comma or a backslash of an item.

/** One string for a list of strings; the empty list is "", a list of one empty string is `\`. */
export function joinList(items: readonly string[]): string {
  if (items.length === 1 && items[0] === "") return "\\";
  return items.map((item) => item.replace(/[\\,]/g, "\\$&")).join(",");
}

/** The list back from `joinList`; never throws. */
export function splitList(text: string): string[] {
  if (text === "") return [];
  if (text === "\\") return [""];
  const out: string[] = [];
  let item = "";
  for (let i = 0; i < text.length; i++) {
    const c = text[i]!;
    if (c === "\\" && i + 1 < text.length) item += text[++i];
    else if (c === ",") {
      out.push(item);
      item = "";
    } else item += c;
  }
  out.push(item);
  return out;
}

/** Ids with runs of neighboring whole numbers written as `3-7`: the short form of an opened tree. */
export function joinIds(ids: readonly string[]): string {
  const whole = [...new Set(ids.filter((id) => /^(0|[1-9]\d{0,8})$/.test(id)))].map(Number).sort((a, b) => a - b);
  const other = [...new Set(ids.filter((id) => !/^(0|[1-9]\d{0,8})$/.test(id)))].sort();
  const parts: string[] = [];
  for (let i = 0; i < whole.length; ) {
    let j = i;
    while (j + 1 < whole.length && whole[j + 1] === whole[j]! + 1) j++;
    parts.push(j > i + 1 ? `${whole[i]}-${whole[j]}` : whole.slice(i, j + 1).join(","));
    i = j + 1;
  }
  const named = other.map((id) => (/^\d+-\d+$/.test(id) ? "\\" + id : id.replace(/[\\,]/g, "\\$&")));
  return [...parts, ...named].join(",");
}

/** The ids back from `joinIds`; a run longer than 100 000 is not believed. */
export function splitIds(text: string): string[] {
  if (text === "") return [];
  const out: string[] = [];
  for (const raw of text.match(/(?:\\.|[^\\,])+/gs) ?? []) {
    const run = /^(\d{1,9})-(\d{1,9})$/.exec(raw);
    if (run && Number(run[2]) >= Number(run[1]) && Number(run[2]) - Number(run[1]) <= 100_000) {
      for (let i = Number(run[1]); i <= Number(run[2]); i++) out.push(String(i));
    } else out.push(raw.replace(/\\(.)/gs, "$1"));
  }
  return out;
}
