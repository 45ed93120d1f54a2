// Draws the figures, sorts and filters tables, gives them as CSV. All data stand in the page.
const material = JSON.parse(document.getElementById("material").textContent);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const config = { displayModeBar: false, responsive: true };

// Lines of several runs as one trace, with gaps between: a trace a run would be slow.
const join = (trace, lines) => {
  trace.x = []; trace.y = []; trace.customdata = [];
  for (const [run, x, y] of lines) {
    trace.x.push(...x, null);
    trace.y.push(...y, null);
    trace.customdata.push(...x.map(() => [run]), [null]);
  }
};

for (const [name, figure] of Object.entries(material.figures)) {
  const plot = document.getElementById(`plot-${name}`);
  if (typeof Plotly === "undefined") {
    plot.textContent = "This figure needs the network: plotly.js could not be loaded.";
    continue;
  }
  const name_runs = () => {
    for (const trace of figure.data) {
      if (trace.customdata) trace.text = trace.customdata.map(([run]) => material.hover[run]);
    }
  };
  if (figure.choices) {
    const box = plot.closest("figure");
    const select = box.querySelector(".choice");
    const choose = () => {
      const choice = figure.choices.find((entry) => entry.name === select.value);
      figure.data.forEach((trace, i) => {
        if (figure.chosen === "xaxis") trace.x = choice.x[i];
        else join(trace, choice ? choice.lines[i] : []);
      });
      name_runs();
      const option = select.selectedOptions[0].textContent;
      figure.layout[figure.chosen].title.text = figure.title ? "" : option;
      figure.layout.xaxis.autorange = figure.layout.yaxis.autorange = true;
      figure.layout.shapes = choice?.shapes ?? [];
      box.querySelector(".said").textContent = choice?.said ?? "";
      Plotly.react(plot, figure.data, figure.layout, config);
    };
    select.addEventListener("change", choose);
    choose();
  } else {
    name_runs();
    Plotly.newPlot(plot, figure.data, figure.layout, config);
  }
}

for (const button of all("[data-csv]")) {
  button.addEventListener("click", () => {
    const name = button.dataset.csv;
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([material.tables[name]], { type: "text/csv" }));
    link.download = `${name}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  });
}

for (const table of all("table.sortable")) {
  const heads = all("thead tr:last-child th", table);
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const numeric = head.classList.contains("n");
    const before = head.getAttribute("aria-sort");
    const way = before ? (before === "ascending" ? -1 : 1) : numeric ? -1 : 1;
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", way > 0 ? "ascending" : "descending");
    const body = table.tBodies[0];
    const key = (row) => row.cells[column].dataset.key ?? row.cells[column].textContent.trim();
    const compare = (a, b) => (isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b);
    const rows = [...body.rows].sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      return x === "" || y === "" ? (x === "") - (y === "") : way * compare(x, y);
    });
    body.append(...rows);
  }));
}

for (const field of all(".find")) {
  const rows = all("tbody tr", field.closest(".tools").nextElementSibling);
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/);
    rows.forEach((row) => (row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word))));
  });
}

const fit = () => all(".js-plotly-plot").filter((plot) => plot.offsetParent).forEach((plot) => Plotly.Plots.resize(plot));
for (const button of all("[data-choose]")) {
  button.addEventListener("click", () => {
    all("[data-choose]").forEach((other) => other.setAttribute("aria-pressed", other === button));
    const chosen = button.dataset.choose;
    all("[data-set]").forEach((block) => (block.hidden = chosen !== "" && block.dataset.set !== chosen));
    fit();
  });
}
addEventListener("beforeprint", fit);
