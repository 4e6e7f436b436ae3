// Keyboard shortcuts of the page. None while typing, none with a modifier.
import { go, pageView } from "../state/view";
import { catalog } from "../state/data";
import { stepOut } from "../sections/linked";
import { awaitLetter, letterAwaited, takeKeys, typing } from "../state/host";
import { closeCopy, copyOpen } from "../ui/copy";
import { stepBy } from "./bar";
import { helpOpen, LETTERS } from "./help";
import { searchOpen } from "./search";

export function startKeys(): void {
  takeKeys();
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && (helpOpen.peek() || copyOpen())) {
      helpOpen.value = false; // also when the card has not taken the focus yet
      closeCopy();
      return;
    }
    if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "k" && (searchOpen.peek() || !document.querySelector(".dialog"))) {
      event.preventDefault(); // the browser's own would leave the page
      searchOpen.value = !searchOpen.peek();
      return;
    }
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    if (document.querySelector(".dialog")) return;
    const key = event.key;
    if (key === "Escape" && !document.querySelector(".float") && stepOut()) return event.preventDefault();
    if (letterAwaited()) {
      awaitLetter(false);
      const name = LETTERS[key];
      if (name && catalog.peek().some((a) => a.name === name)) {
        event.preventDefault();
        go(pageView(name), "push");
      }
      return;
    }
    if (key === "g") awaitLetter(true);
    else if (key === "?") helpOpen.value = true;
    else if (key === "[") stepBy(-1);
    else if (key === "]") stepBy(1);
    else if (key === "/") document.querySelector<HTMLInputElement>(".find-input")?.focus();
    else return;
    event.preventDefault();
  });
}
