// Starts the page outside TensorBoard (`tb-sol serve`). Inside, TensorBoard imports index.js itself.
import { render } from "./index.js";

render();
