// The module that TensorBoard imports: `render()` puts the page into this document.
import { render as mount, h } from "preact";
import "./style/index.css";
import { inFile, openFile } from "./api/file";
import { startData, rescan } from "./state/data";
import { preload } from "./sections/figure/plotly";
import { fitFrame, onReload } from "./state/host";
import { followAddress, page } from "./state/view";
import { startTheme } from "./ui/theme";
import { startTips } from "./ui/tip";
import { App } from "./pages/app";
import { startKeys } from "./pages/keys";

/** ms after which Plotly is read on a page without a figure. */
const PLOTLY_AFTER = 2000;

function stylesheet(): Promise<void> {
  if (inFile) return Promise.resolve(); // which stands in the page
  return new Promise((done) => {
    const link = document.createElement("link");
    link.rel = "stylesheet";
    const name = "index.css";
    link.href = new URL(name, import.meta.url).href;
    link.onload = () => done();
    link.onerror = () => done(); // unstyled numbers are better than none
    document.head.append(link);
  });
}

/** Shows the page. Called once, by TensorBoard, by serve.js or by a page that was saved as a file. */
export async function render(): Promise<void> {
  document.documentElement.lang = "en";
  startTheme();
  await openFile();
  followAddress();
  startData();
  if (page.peek() === "timeline") window.setTimeout(preload, PLOTLY_AFTER); // which draws no figure: its first picture comes first
  else preload();
  startTips();
  startKeys();
  onReload(rescan);
  await stylesheet();
  const root = document.createElement("div");
  root.id = "tb-sol";
  document.body.append(root);
  mount(h(App, null), root);
  fitFrame(root.firstElementChild as HTMLElement);
}
