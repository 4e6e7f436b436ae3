// The two widths at which the layout changes.
import { signal } from "@preact/signals";

const rail = window.matchMedia("(max-width: 1180px)");
const phone = window.matchMedia("(max-width: 760px)");

/** 1180 px and less: icons for words, second-rank columns hidden. */
export const narrow = signal(rail.matches);
/** 760 px and less: page list behind a button. */
export const slim = signal(phone.matches);

rail.addEventListener("change", () => { narrow.value = rail.matches; });
phone.addEventListener("change", () => { slim.value = phone.matches; });
