// A plot drawn inside closed details has no size yet; paper has no way to open them.
const details = document.querySelectorAll("details:not(.more)");
const fit = (box) => window.Plotly && box.querySelectorAll(".js-plotly-plot").forEach((plot) => Plotly.Plots.resize(plot));
details.forEach((box) => box.addEventListener("toggle", () => box.open && fit(box)));
addEventListener("beforeprint", () => details.forEach((box) => { box.open = true; fit(box); }));

// plotly.js is kept as gzip in base64: unpacked, it would be most of the page.
async function draw(packed) {
  const bytes = Uint8Array.from(atob(packed.textContent), (letter) => letter.charCodeAt(0));
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(plain).text();
  document.head.append(script);
  for (const figure of document.querySelectorAll("script[data-figure]")) {
    const { data, layout, config } = JSON.parse(figure.textContent);
    await Plotly.newPlot(figure.dataset.figure, data, layout, config);
  }
  document.documentElement.dataset.drawn = "yes";
}
const packed = document.getElementById("plotly");
if (packed) draw(packed);
