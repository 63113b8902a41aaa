// The console's own script: the token of actions, lazy details, charts. No page needs it to be read.
"use strict";

const KEY = "smq-token";

// Where users log in, the page has the token of their session.
const ofSession = document.querySelector('meta[name="smq-token"]');

// --- the token: from the address behind the #, then from this browser's storage ---------------

const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  localStorage.setItem(KEY, given);
  history.replaceState(null, "", location.pathname + location.search);
}

function showToken() {
  const state = document.getElementById("token-state");
  if (state) state.textContent = localStorage.getItem(KEY) ? "known" : "none";
}

document.addEventListener("htmx:configRequest", (event) => {
  if (event.detail.elt.closest("[data-token]")) {
    event.detail.headers["x-smq-token"] = ofSession ? ofSession.content : localStorage.getItem(KEY) || "";
  }
});

document.addEventListener("htmx:sendError", (event) => {
  const said = event.detail.target;
  if (said && said.classList.contains("said")) said.textContent = "The broker does not answer.";
});

// A result may be larger than a form: bring it into view.
document.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target.classList.contains("said")) {
    event.detail.target.scrollIntoView({ block: "nearest" });
  }
});

// --- details whose content is fetched when they are opened ------------------------------------

document.addEventListener("toggle", (event) => {
  const details = event.target;
  if (details.open && details.matches("details[data-lazy]")) {
    const content = details.querySelector("[hx-trigger]");
    if (content) htmx.trigger(content, "open");
  }
}, true);

// --- charts -----------------------------------------------------------------------------------

const UNITS = ["", "K", "M", "G", "T"];

function short(value, base) {
  let unit = 0;
  while (Math.abs(value) >= base && unit < UNITS.length - 1) {
    value /= base;
    unit += 1;
  }
  const isShort = value < 10 && (unit || !Number.isInteger(value));
  return (isShort ? value.toFixed(1) : Math.round(value)) + UNITS[unit];
}

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const CLOCK = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };

function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString([], CLOCK);
}

function draw(element, data) {
  const labels = element.dataset.labels.split(",");
  const base = element.dataset.unit === "bytes" ? 1024 : 1000;
  const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1 } };
  const paths = labels.map((label, number) => ({
    label, width: 2, stroke: color(`--chart-${number}`),
    value: (_, value) => (value === null || value === undefined ? "–" : short(value, base)),
  }));
  return new uPlot({
    width: element.clientWidth, height: 180,
    scales: { y: { range: (_, low, high) => [0, Math.max(1, high * 1.1)] } },
    series: [{ label: "time", value: (_, time) => (time ? clock(time) : "–") }, ...paths],
    axes: [{ ...axis, space: 80, values: (_, times) => times.map(clock) }, { ...axis, size: 56, values: (_, values) => values.map((value) => short(value, base)) }],
  }, data, element);
}

function wanted(element, answer) {
  const columns = element.dataset.series.split(",").map((name) => answer.names.indexOf(name) + 1);
  return [answer.series[0], ...columns.map((column) => answer.series[column])];
}

// Charts of one address share its answers.
const charts = new Map();

async function refresh(address, elements) {
  if (document.hidden) return;
  const response = await fetch(address);
  if (!response.ok) return;
  const answer = await response.json();
  for (const element of elements) {
    const data = wanted(element, answer);
    if (element.plot) element.plot.setData(data);
    else element.plot = draw(element, data);
  }
}

function redraw() {
  for (const [address, elements] of charts) {
    for (const element of elements) {
      if (element.plot) element.plot.destroy();
      element.plot = null;
    }
    refresh(address, elements).catch(() => {});
  }
}

function startCharts() {
  for (const element of document.querySelectorAll("[data-chart]")) {
    const address = element.dataset.chart;
    charts.set(address, [...(charts.get(address) || []), element]);
  }
  for (const [address, elements] of charts) {
    refresh(address, elements).catch(() => {});
    const every = Number(elements[0].dataset.live) || 2;
    setInterval(() => refresh(address, elements).catch(() => {}), every * 1000);
  }
  let timer = 0;
  addEventListener("resize", () => {
    clearTimeout(timer);
    timer = setTimeout(redraw, 200);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}

// --- the start: the script is deferred, so the page is there ------------------------------------

const tokenForm = document.getElementById("token-form");
if (tokenForm) {
  tokenForm.addEventListener("submit", (event) => {
    event.preventDefault();
    const field = document.getElementById("token");
    localStorage.setItem(KEY, field.value.trim());
    field.value = "";
    document.getElementById("token-box").open = false;
    showToken();
  });
  document.getElementById("token-forget").addEventListener("click", () => {
    localStorage.removeItem(KEY);
    showToken();
  });
}
showToken();
startCharts();
