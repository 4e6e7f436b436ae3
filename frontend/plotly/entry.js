// Kinds of traces of the custom bundle; src/sections/figure/plotly.ts lists the same ones. Every other kind is drawn by the whole Plotly.
import Plotly from "plotly.js/lib/core";
import bar from "plotly.js/lib/bar";
import heatmap from "plotly.js/lib/heatmap";
import icicle from "plotly.js/lib/icicle";

Plotly.register([bar, heatmap, icicle]); // scatter is part of the core

export default Plotly;
