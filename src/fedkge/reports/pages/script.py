"""The script that draws the page's plots, in the page's colours, and again when these change."""

from __future__ import annotations

SCRIPT = """
(() => {
  "use strict";
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const variable = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const dashes = ["solid", "dash", "dot", "dashdot"];

  const WIDE = 620;  // pixels from which lines are named at their ends rather than in a legend

  const steps = n => Array.from({length: n}, (_, i) => variable("--att" + i))
    .flatMap((colour, i) => [[i / n, colour], [(i + 1) / n, colour]]);

  const paint = (trace, room) => {
    const {series, dash} = trace.meta;
    const colour = variable("--" + series);
    const whiskers = trace.error_y && {error_y: {...trace.error_y, color: variable("--ink")}};
    const styles = {
      scatter: () => ({
        line: {width: 2.5, color: colour, dash: dashes[dash % 4], ...trace.line},
        marker: {color: colour, line: {width: 1.5, color: variable("--panel")}, ...trace.marker},
        fillcolor: colour + "33",
        ...(whiskers && {error_y: {...trace.error_y, color: colour}}),
      }),
      bar: () => ({
        marker: {color: colour, pattern: {shape: ["", "/", "x", "."][dash % 4]}},
        outsidetextfont: {color: variable("--soft"), size: 11}, ...whiskers,
        ...(room < WIDE && trace.orientation !== "h" && {textposition: "none"}),  // too narrow for numbers
      }),
      box: () => ({marker: {color: colour, size: 4}, line: {color: colour}}),
      heatmap: () => ({
        colorscale: series === "attendance" ? steps(4) : [[0, variable("--heat0")], [1, variable("--heat1")]],
        textfont: {color: variable("--ink")},
      }),
    };
    return {...trace, ...styles[trace.type]()};
  };

  const nameEnds = ends => {
    const longest = Math.max(...ends.map(([, name]) => name.replace(/&[^;]+;/g, "x").length));
    return {
      showlegend: false, margin: {l: 40, r: 14 + 7 * longest, t: 32, b: 24},
      annotations: ends.map(([series, name, y, shift]) => ({
        xref: "paper", x: 1, xanchor: "left", xshift: 4, y, yshift: shift, yanchor: "middle", text: name,
        showarrow: false, font: {color: variable("--" + series), size: 12},
      })),
    };
  };

  const axis = given => ({
    gridcolor: variable("--grid"), linecolor: variable("--line"), zerolinecolor: variable("--line"),
    automargin: true, ...given,
  });

  let printing = false;
  const draw = id => {
    const {data, layout, height, tools, ends} = figures[id];
    const room = document.getElementById(id).clientWidth;
    const ink = variable("--ink"), panel = variable("--panel");
    const style = {
      height, width: printing ? room : undefined,
      margin: {l: 40, r: 12, t: tools ? 32 : 12, b: 24}, paper_bgcolor: panel, plot_bgcolor: panel,
      font: {color: variable("--soft"), family: getComputedStyle(document.body).fontFamily, size: 12.5},
      legend: {orientation: "h", x: 0, y: 1.02, yanchor: "bottom", traceorder: "normal",
        font: {color: ink}},
      hoverlabel: {bgcolor: panel, bordercolor: variable("--line"), font: {color: ink}, align: "left"},
      ...layout, xaxis: axis(layout.xaxis), yaxis: axis(layout.yaxis),
      ...(ends.length && room >= WIDE ? nameEnds(ends) : {}),
    };
    const buttons = [["toImage", "zoom2d", "pan2d", "resetScale2d"]];  // none that sends the data anywhere
    const config = {responsive: true, displaylogo: false, displayModeBar: tools && room >= WIDE && "hover",
      modeBarButtons: buttons};
    return Plotly.react(id, data.map(trace => paint(trace, room)), style, config);
  };

  const drawAll = () => Object.keys(figures).forEach(id => {
    const fail = error => {
      const place = document.getElementById(id);
      place.classList.add("failed");
      place.textContent = "This plot could not be drawn: " + error.message;
    };
    try { draw(id).catch(fail); } catch (error) { fail(error); }
  });

  const print = on => {
    printing = on;
    document.documentElement.classList.toggle("printing", on);
    drawAll();
    if (!on) Object.keys(figures).forEach(id => Plotly.Plots.resize(id));  // back to the screen's width
  };
  drawAll();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
})();
"""
