// Light and dark: the palette as CSS variables, the theme the page is in, and the dark partner of a light color.
import { computed, effect, signal } from "@preact/signals";
import palette from "../palette.json";
import { hosted, onDark } from "../state/host";

export { markOf, MARKS, paint } from "./members";

const TOKENS = palette.tokens as unknown as Record<string, [string, string]>;

/** Surfaces and shadows that only the page needs; figures never use them. */
const MORE: Record<string, [string, string]> = {
  raised: ["#FFFFFF", "#1F252D"],
  "on-accent": ["#FFFFFF", "#14122B"],
  "warn-bg": ["#FDF3E0", "#2B2415"],
  "warn-line": ["#EFD3A0", "#57461F"],
  "error-bg": ["#FCEDEB", "#2E1B1B"],
  "error-line": ["#EDB9B5", "#5C2D2B"],
  "card-shadow": ["0 1px 2px rgb(20 24 31 / 4%)", "none"],
  float: ["0 8px 28px rgb(20 24 31 / 16%)", "0 8px 28px rgb(0 0 0 / 55%)"],
};

const STORE = "tb-sol.theme";
const hostDark = signal(false);
const chosenTheme = signal<string>(hosted ? "" : kept());

/** The choice of an earlier visit. A frame, or a file, may not be allowed to keep any. */
function kept(): string {
  try {
    return localStorage.getItem(STORE) ?? "";
  } catch {
    return "";
  }
}

function keep(theme: string): void {
  try {
    localStorage.setItem(STORE, theme);
  } catch {
    return;
  }
}

export const dark = computed(() => (chosenTheme.value ? chosenTheme.value === "dark" : hostDark.value));

/** Outside TensorBoard only: the reader's choice, kept for the next visit. */
export function toggleTheme(): void {
  chosenTheme.value = dark.value ? "light" : "dark";
  keep(chosenTheme.value);
}

export const token = (name: string): string => (TOKENS[name] ?? MORE[name] ?? TOKENS["other"]!)[dark.value ? 1 : 0];

/** Fills too light for a 3:1 edge on a light surface; they get an outline. */
export const PALE = new Set(["memset", "norm", "elementwise", "Memset", "idle"]);

const partner = new Map<string, string>();
for (const [light, darkHex] of Object.values(TOKENS)) if (!partner.has(light.toUpperCase())) partner.set(light.toUpperCase(), darkHex);

/** The color to draw for a light hex of the palette in the present theme; anything else stays. */
export const themed = (value: string): string => (dark.value ? (partner.get(value.toUpperCase()) ?? value) : value);

function rules(which: 0 | 1): string {
  return [...Object.entries(TOKENS), ...Object.entries(MORE)].map(([name, pair]) => `--${name}:${pair[which]}`).join(";");
}

/** Writes the variables and keeps the theme attribute right. */
export function startTheme(): void {
  const sheet = document.createElement("style");
  sheet.textContent = `:root{${rules(0)};color-scheme:light}:root[data-theme="dark"]{${rules(1)};color-scheme:dark}`;
  document.head.append(sheet);
  onDark((now) => { hostDark.value = now; });
  effect(() => { document.documentElement.dataset["theme"] = dark.value ? "dark" : "light"; });
}
