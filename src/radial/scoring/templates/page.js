// A plot drawn inside closed details has no size yet; paper has no way to open them.
const details = document.querySelectorAll("details:not(.more)");
const fit = (box) => box.querySelectorAll(".js-plotly-plot").forEach((plot) => Plotly.Plots.resize(plot));
details.forEach((box) => box.addEventListener("toggle", () => box.open && fit(box)));
addEventListener("beforeprint", () => details.forEach((box) => { box.open = true; fit(box); }));
