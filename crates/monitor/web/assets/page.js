// The live page of `bellows web`: asks the server for figures once a second, and shows them. No library, no other origin.
"use strict";

// ---- Numbers in words, as the command writes them (`inspect::text`).

const UNKNOWN = "–";
const known = (value, write) => value === null || value === undefined ? UNKNOWN : write(value);
const count = value => String(Math.round(value)).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
const digits = value => value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
const scaled = value => {
  let prefix = "";
  for (const next of [" k", " M", " G", " T"]) {
    if (value < 999.5) break;
    [value, prefix] = [value / 1000, next];
  }
  return value.toFixed(Number.isInteger(value) && !prefix ? 0 : digits(value)) + prefix;
};
const united = (value, unit) => { const text = scaled(value); return text + (text.includes(" ") ? "" : " ") + unit; };
const pps = value => united(value, "pps");
const bps = value => united(value, "b/s");
const figure = value => value === 0 ? "0" : value < 0.0095 ? value.toExponential(0) : value < 0.9995 ? value.toFixed(3)
  : value < 99.95 ? value.toFixed(digits(value)) : count(value);
const percent = share => (100 * share).toFixed(1) + " %";
const nanos = value => {
  let unit = "ns";
  for (const next of ["µs", "ms", "s"]) {
    if (value < 999.5) break;
    [value, unit] = [value / 1000, next];
  }
  return value.toFixed(unit === "ns" ? 0 : digits(value)) + " " + unit;
};
const two = value => String(Math.floor(value)).padStart(2, "0");
const span = seconds => seconds < 100 ? seconds.toFixed(seconds < 10 ? 1 : 0) + " s"
  : seconds < 3600 ? `${Math.floor(seconds / 60)} min ${two(seconds % 60)} s`
    : seconds < 172800 ? `${Math.floor(seconds / 3600)} h ${two(seconds / 60 % 60)} min`
      : `${Math.floor(seconds / 86400)} d ${Math.floor(seconds / 3600 % 24)} h`;
/// A time of day, with the date if it is not that of today.
const clock = at => {
  const date = new Date(at), time = date.toLocaleTimeString("en-GB");
  return date.toDateString() === new Date().toDateString() ? time
    : `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${time}`;
};
const plural = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

// ---- Elements.

const $ = id => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const fill = (element, attributes, children) => {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter(child => child !== null && child !== undefined && child !== false));
  return element;
};
const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
/// Sets a text, if it is another one: what does not change is not drawn again.
const say = (element, text) => { if (element.textContent !== text) element.textContent = text; };
const mark = (element, name, is) => { if (element.classList.contains(name) !== !!is) element.classList.toggle(name, !!is); };
const set = (element, name, value) => { if (element.getAttribute(name) !== value) element.setAttribute(name, value); };

// ---- What the page knows.

const VIEWS = [["picture", "Picture"], ["apps", "Apps"], ["links", "Links"], ["timing", "Timing"], ["trace", "Trace"], ["events", "Events"]];
const page = {
  name: null, view: "picture", list: null, live: null, allow: false,
  /// The app or link whose details are shown, and where the focus goes back to.
  chosen: null, back: null,
  /// The number of answers so far, for what is asked less often.
  ticks: 0,
  /// The number of answers that did not list the chosen network.
  absent: 0,
};

/// Replaces what is behind the `#` of the address, without a new entry of the history.
const write = words => history.replaceState(null, "", "#" + words);

const remember = () => {
  const words = new URLSearchParams();
  if (page.name) words.set("network", page.name);
  if (page.view !== "picture") words.set("view", page.view);
  write(words);
};

// ---- The token.

/// The token is kept for this tab and this port alone, and sent to this port alone: a cookie would go to all ports of the
/// host, of which others may be those of other users.
const token = {
  key: "bellows-token", value: null,
  /// Takes the token from the address, where it is behind the `#`: browsers do not send that part.
  take(words) {
    const given = words.get("token");
    try {
      if (given) sessionStorage.setItem(token.key, given);
      token.value = given || token.value || sessionStorage.getItem(token.key);
    } catch { token.value = given || token.value; /* The browser keeps nothing. */ }
    if (!given) return;
    words.delete("token");
    write(words);
  },
  header: () => token.value ? { authorization: "Bearer " + token.value } : {},
};

// ---- Requests.

class Refused extends Error {}

const read = async (path, options) => {
  const answer = await fetch(path, {
    cache: "no-store", credentials: "omit", signal: AbortSignal.timeout(15000), ...options,
    headers: { ...options?.headers, ...token.header() },
  });
  if (answer.ok) return answer;
  const text = await answer.text();
  let reason = text.trim();
  try { reason = JSON.parse(text).error; } catch { /* The server's own refusals are plain text. */ }
  if (answer.status === 401) reason = "the token is missing or has changed; open the address that `bellows web` printed, with #token= and the token at its end";
  throw Object.assign(new Refused(reason || answer.statusText), { status: answer.status });
};
const ask = async (path, parameters) => (await read(path + (parameters ? "?" + new URLSearchParams(parameters) : ""))).json();
const order = (path, body, seconds) => read(path, {
  method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body),
  signal: AbortSignal.timeout(1000 * (seconds + 20)),
});

let answered = 0;
let timer = 0;
/// The number of the last round of questions: only that one goes on.
let round = 0;
const pulse = error => {
  const late = error || Date.now() - answered > 5000;
  mark($("pulse"), "late", late);
  say($("pulse"), error instanceof Refused ? error.message : error ? "the server does not answer; trying again" : "live, " + clock(answered));
};

/// Asks for everything that is shown, again and again. A page in the background asks less often.
const tick = async () => {
  clearTimeout(timer);
  const mine = ++round;
  try {
    const { name, chosen } = page;
    const [list, live, detail] = await Promise.all([
      ask("api/networks"),
      name ? ask("api/live", { network: name }).catch(forgive) : null,
      name && chosen ? ask("api/" + chosen.kind, { network: name, [chosen.kind]: chosen.name }).catch(forgive) : null,
    ]);
    answered = Date.now();
    pulse();
    showList(list);
    if (name === page.name && live) show(live);
    if (chosen && chosen === page.chosen) showDetail(detail);
    page.ticks += 1;
  } catch (error) {
    pulse(error);
  }
  if (mine === round) timer = setTimeout(tick, document.hidden ? 10000 : answered ? 1000 : 2000);
};
/// A network may end, and an app may go, between two questions.
const forgive = error => { if (error.status === 404 || error.status === 400) return null; throw error; };

// ---- The list of networks.

const badge = (element, health) => { set(element, "class", "badge " + health); say(element, health); };

const showList = list => {
  page.list = list;
  page.allow = list.allow_changes;
  say($("count"), `(${list.networks.length})`);
  mark(document.querySelector(".frame"), "single", list.networks.length === 1);
  const names = list.networks.map(network => network.name);
  if (!page.name && names.length) {
    const best = list.networks.find(network => network.health === "running") || list.networks[0];
    choose(best.name);
  }
  const known = [...$("list").children].map(item => item.dataset.name);
  if (known.join("\n") !== names.join("\n")) {
    $("list").replaceChildren(...list.networks.map(({ name }) => h("li", { "data-name": name },
      h("button", { type: "button", onclick: () => choose(name) },
        h("span", { class: "name" }, name), h("span", { class: "badge" }), h("span", { class: "rate" })))));
  }
  for (const [index, network] of list.networks.entries()) {
    const button = $("list").children[index].firstChild;
    badge(button.children[1], network.health);
    const rate = network.packets_per_second === null ? network.network || "" : pps(network.packets_per_second);
    say(button.children[2], rate + (network.drops_per_second ? `, drops ${pps(network.drops_per_second)}` : ""));
    if (network.name === page.name) set(button, "aria-current", "true"); else button.removeAttribute("aria-current");
  }
  const none = !names.length;
  $("none").hidden = !none;
  if (none) say($("none"), "No network is running. `bellows run NETWORK` starts one, and it appears here.");
  if (!page.name || names.includes(page.name)) page.absent = 0;
  // One that has just begun, and that the address names, is listed a moment later.
  else if (page.live || ++page.absent > 3) {
    page.name = null;
    $("network").hidden = true;
    close();
  }
};

const choose = name => {
  if (page.name === name) return;
  Object.assign(page, { name, live: null, absent: 0 });
  close();
  picture.forget();
  panels.forget();
  remember();
  if (matchMedia("(max-width: 760px)").matches) $("networks").open = false;
  tick();
};

// ---- The network.

const NEWS = {
  crashed: ["crashed", "The process has ended without ending its run. These are its last counters; `bellows timeline NAME` shows its last breaths."],
  ended: ["ended", "The run has ended. These are its last counters."],
  stalled: ["stalled", ""],
  degraded: ["degraded", ""],
};

/// What the page sees that networks keep events of as well.
const IN_EVENTS = ["running", "restarted", "reloaded", "failed", "slow", "crashed", "ended"];

/// Milliseconds between such an event and the time at which the page sees the same.
const KEPT_WITHIN = 5000;

/// What happened to a network, in the order of time: the events that it has kept, and what the page alone has seen.
const happenings = live => {
  const isKept = event => IN_EVENTS.includes(event.what) && live.kept.some(kept => Math.abs(kept.at_ms - event.at_ms) < KEPT_WITHIN);
  const own = live.events.filter(event => !isKept(event));
  return [...live.kept, ...own].sort((one, other) => one.at_ms - other.at_ms);
};

/// How long the page says that a network was reloaded.
const NEWS_TIME = 15000;

const showAlerts = live => {
  const alerts = [];
  const news = NEWS[live.health];
  if (news) alerts.push([live.health === "crashed" ? "" : "warn", news[0], [news[1].replace("NAME", live.name), ...live.health === "crashed" ? [] : [live.reasons.join("; ")]].join(" ").trim()]);
  else if (live.reasons.length) alerts.push(["warn", "problem", live.reasons.join("; ")]);
  if (live.confirmation) alerts.push(["warn", "unconfirmed", live.confirmation + "."]);
  const last = live.events.filter(event => ["reloaded", "restarted"].includes(event.what)).pop();
  // By the server's clock alone: the browser's may be another one. That of an ended network stands still.
  const isOver = ["crashed", "ended"].includes(live.health);
  if (last && !isOver && live.at_ms - last.at_ms < NEWS_TIME) alerts.push(["warn", last.what, `at ${clock(last.at_ms)}: ${last.text}.`]);
  const key = JSON.stringify(alerts);
  if ($("alerts").dataset.key === key) return;
  $("alerts").dataset.key = key;
  $("alerts").replaceChildren(...alerts.map(([kind, what, text]) => h("p", { class: "alert " + kind }, h("b", {}, what), " ", text)));
};

const TILES = [
  ["packets", "Packets, busiest link", "packets"], ["drops", "Drops", "dropped"], ["asleep", "Asleep", "asleep"],
  ["latency", "Latency, last second"], ["breath", "Breaths"], ["buffers", "Packet buffers in use"],
];
const tiles = {};
const buildTiles = () => {
  for (const [key, name, series] of TILES) {
    const first = h("dd", {}), second = h("dd", { class: "second" });
    const line = series && s("path", { class: "spark" });
    const root = h("div", { class: "tile", id: "tile-" + key }, h("dt", {}, name), first, second,
      line && s("svg", { viewBox: "0 0 100 26", preserveAspectRatio: "none", "aria-hidden": "true" }, line));
    tiles[key] = { root, first, second, line, series };
    $("tiles").append(root);
  }
};

/// The path of a line through values, over a width and height.
const path = (at, values, width, height, most) => {
  const [first, last] = [at[0], at[at.length - 1]];
  let text = "", pen = "M";
  for (let index = 0; index < values.length; index += 1) {
    const value = values[index];
    if (value === null) { pen = "M"; continue; }
    const x = last > first ? (at[index] - first) / (last - first) * width : width;
    text += pen + x.toFixed(1) + " " + (height - 1 - Math.max(0, value) / most * (height - 3)).toFixed(1);
    pen = "L";
  }
  return text;
};

const showTiles = live => {
  const times = what => what && what.p50_ns !== null ? [`p50 ${nanos(what.p50_ns)}`, `p99 ${nanos(what.p99_ns)}`] : [UNKNOWN, ""];
  const texts = {
    packets: [known(live.packets_per_second, pps), known(live.bits_per_second, bps)],
    drops: [known(live.drops_per_second, pps), count(live.dropped || 0) + " in all"],
    asleep: [known(live.asleep, percent), `idle breaths ${known(live.idle_breaths, percent)}`],
    latency: times(live.latency),
    breath: [known(live.breaths_per_second, value => scaled(value) + "/s"), times(live.breath).join(", ").replace(/, $/, "")],
    buffers: [live.buffers ? count(live.buffers_in_use) : UNKNOWN, live.buffers ? `of ${count(live.buffers)}` + (live.buffers_lent ? `, ${count(live.buffers_lent)} lent` : "") : ""],
  };
  for (const [key, tile] of Object.entries(tiles)) {
    say(tile.first, texts[key][0]);
    say(tile.second, texts[key][1]);
    if (!tile.line) continue;
    const values = live.history[tile.series];
    const most = key === "asleep" ? 1 : Math.max(1e-9, ...values.filter(value => value !== null));
    tile.line.setAttribute("d", values.length > 1 ? path(live.history.at_ms, values, 100, 26, most) : "");
  }
  mark(tiles.drops.root, "alarm", live.drops_per_second > 0);
};

const showWorkers = live => {
  const workers = live.workers || [];
  $("workers").hidden = workers.length < 2;
  while ($("workers").children.length > workers.length) $("workers").lastChild.remove();
  workers.forEach((worker, index) => {
    const item = $("workers").children[index] || $("workers").appendChild(h("span", {}));
    const node = worker.node === null ? "" : `, memory node ${worker.node}`;
    say(item, `worker ${worker.name}: ${plural(worker.apps, "app")}, asleep ${percent(worker.asleep)}, ${scaled(worker.breaths)} breaths/s${node}`);
  });
};

const show = live => {
  page.live = live;
  $("network").hidden = false;
  say($("name"), live.name);
  badge($("health"), live.health);
  const facts = [live.uptime_seconds === null ? null : "up " + span(live.uptime_seconds), live.pid && "process " + live.pid,
    live.schedule && "schedule " + live.schedule, live.reloads ? plural(live.reloads, "reload") : null, live.network];
  say($("facts"), facts.filter(Boolean).join(" · "));
  document.title = `${live.name}: ${live.health} – Bellows`;
  $("changes").hidden = !page.allow || live.foreign || !["running", "degraded"].includes(live.health);
  showAlerts(live);
  showTiles(live);
  showWorkers(live);
  mark($("network"), "quiet", live.packets_per_second === null);
  if (page.view === "picture") {
    picture.show(live);
    summary.show(live);
  } else panels.show(live);
};

// ---- The picture.

const HEATS = [10, 30, 100, 300];
const heat = clocks => clocks === null || clocks === undefined ? "cold" : "heat" + HEATS.filter(limit => clocks >= limit).length;
const HEAT_NAMES = ["cold", "heat0", "heat1", "heat2", "heat3", "heat4"];
const paint = (element, clocks) => HEAT_NAMES.forEach(name => mark(element, name, name === heat(clocks)));
const width = packets => packets > 0 ? 1.2 + 0.75 * Math.log10(1 + packets) : 1;

const buildLegend = () => $("legend").append(
  "clocks a packet:",
  ...["< 10", "10–30", "30–100", "100–300", "≥ 300"].map((text, index) => h("span", {}, h("i", { class: "heat" + index }), text)),
  h("span", {}, h("i", { class: "cold" }), "not measured"),
  h("span", {}, h("i", { class: "line w0" }), h("i", { class: "line w1" }), h("i", { class: "line w2" }), "width: packets a second, from none to 10 M, by powers of ten"));

/// The views of a network without its ports and rates, for where these are not legible.
const OVERVIEWS = ["wide", "tall"];
/// The least scales at which the smallest texts are legible, of the full picture and of overviews, and the largest at
/// which one is fitted.
const LEGIBLE = 0.9, LEGIBLE_NAMES = 0.62, LARGEST = 1.8;

const picture = {
  /// What is drawn: the structure of the network and the view of it.
  structure: null, view: null, apps: [], links: [], items: [], svg: null, size: null,
  /// The views of the latest structure that the server has drawn; `null` where it has been asked.
  latest: null, drawn: {},
  /// The scale that a person has chosen; `null` fits the picture into the room. Whether to draw everything all the same.
  zoom: null, everything: false,

  forget() {
    Object.assign(this, { structure: null, view: null, apps: [], links: [], items: [], svg: null, latest: null, drawn: {}, zoom: null, everything: false });
    $("picture").replaceChildren();
  },

  show(live) {
    if (!live.apps) return;
    if (live.structure !== this.latest) Object.assign(this, { latest: live.structure, drawn: {} });
    this.ask("full");
    if (live.structure === this.structure) this.update(live);
  },

  /// Has the server draw a view. A large one takes it a while: figures go on meanwhile.
  ask(view) {
    if (this.drawn[view] !== undefined) return;
    const { drawn } = this, { name } = page;
    drawn[view] = null;
    ask("api/picture", { network: name, view }).then(answer => {
      if (drawn !== this.drawn) return;
      if (answer.structure !== this.latest) { delete drawn[view]; return; }
      const svg = answer.svg && new DOMParser().parseFromString(answer.svg, "image/svg+xml").documentElement;
      const { width, height } = svg ? svg.viewBox.baseVal : {};
      drawn[view] = { ...answer, svg, size: [width, height] };
      this.choose();
    }, () => { delete drawn[view]; });
  },

  /// The width and height that the picture may have: what the window has left below the figures, unless that is little.
  room() {
    const box = $("picture"), rest = innerHeight - (box.getBoundingClientRect().top + scrollY);
    return [box.clientWidth - 1, Math.floor(Math.max(0.72 * innerHeight, rest - 48))];
  },
  fitting([wide, high]) {
    const room = this.room();
    return Math.min(LARGEST, room[0] / wide, room[1] / high);
  },

  /// Draws everything where that is legible, and otherwise the overview that fits best.
  choose() {
    const { drawn } = this, { full } = drawn;
    if (!full || $("view-picture").hidden) return;
    const fits = !full.svg || this.fitting(full.size) >= LEGIBLE;
    $("everything").hidden = fits;
    set($("everything"), "aria-pressed", String(this.everything));
    let view = "full";
    if (!fits && !this.everything) {
      for (const overview of OVERVIEWS) this.ask(overview);
      if (!OVERVIEWS.every(overview => drawn[overview])) return;
      const [wide, tall] = OVERVIEWS.map(overview => this.fitting(drawn[overview].size));
      view = wide >= Math.min(LEGIBLE_NAMES, tall) ? "wide" : "tall";
    }
    if (this.structure === this.latest && this.view === view) this.resize(this.zoom); else this.draw(view);
  },

  draw(view) {
    const live = page.live, drawn = this.drawn[view];
    if (!live || drawn.structure !== live.structure) return;
    Object.assign(this, { structure: drawn.structure, view });
    if (!drawn.svg) {
      this.svg = null;
      [this.apps, this.links, this.items] = [[], [], []];
      $("picture").replaceChildren(h("p", {}, live.apps.length ? "This network is too large for a picture; the views of apps and links list it." : "This network has no apps."));
      return;
    }
    // What is drawn is changed: the view is drawn again when it comes back.
    const svg = document.importNode(drawn.svg, true);
    const focused = document.activeElement && $("picture").contains(document.activeElement) ? document.activeElement.dataset.name : null;
    this.svg = svg;
    this.size = drawn.size;
    mark(svg, "overview", view !== "full");
    // The names of frames are above the links that cross them.
    svg.append(...svg.querySelectorAll(".compound > text, .worker > text"));
    svg.setAttribute("aria-label", `Picture of ${live.name}`);
    this.apps = [...svg.querySelectorAll("g[data-app]")].map(group => this.app(group, drawn, live));
    this.links = [...svg.querySelectorAll("g[data-link]")].map(group => this.link(group, drawn, live));
    const place = ({ box }) => box.x * 4096 + box.y;
    this.apps.sort((one, other) => place(one) - place(other));
    this.items = this.apps.flatMap(app => [app, ...this.links.filter(link => link.from === app.name)]);
    if (this.items.length) this.items[0].group.setAttribute("tabindex", "0");
    $("picture").replaceChildren(svg);
    this.resize(this.zoom);
    this.update(live);
    const again = this.items.find(item => item.name === focused);
    if (again) this.focus(again);
  },

  item(group, kind, name) {
    const item = { group, kind, name };
    fill(group, { tabindex: "-1", role: "button", "data-name": name }, []);
    group.addEventListener("click", () => open(kind, name, group));
    group.addEventListener("focus", () => {
      for (const { group: other } of this.items) if (other !== group && other.getAttribute("tabindex") === "0") other.setAttribute("tabindex", "-1");
      group.setAttribute("tabindex", "0");
    });
    return item;
  },

  app(group, drawn, live) {
    const index = drawn.apps[Number(group.dataset.app)];
    const rect = group.querySelector("rect"), at = name => Number(rect.getAttribute(name));
    const box = { x: at("x"), y: at("y"), width: at("width"), height: at("height") };
    const lost = s("text", { class: "lost middle", x: box.x + box.width / 2, y: box.y + box.height + 12 });
    group.append(lost);
    return Object.assign(this.item(group, "app", live.apps[index].name), { index, box, lost, note: group.querySelector(".note") });
  },

  link(group, drawn, live) {
    const number = group.dataset.link, index = drawn.links[Number(number)];
    const { from, to } = live.links[index];
    const wire = group.querySelector(".wire");
    group.prepend(s("path", { class: "hit", d: wire.getAttribute("d") }));
    const [label, drops] = group.parentNode.querySelectorAll(`text[data-link="${number}"]`);
    const app = end => end.slice(0, end.lastIndexOf("."));
    // A link to a join that an overview leaves out is drawn to where the join's own link leads.
    let end = app(to);
    for (let steps = drawn.apps.length < live.apps.length ? live.apps.length : 0; steps && !drawn.apps.some(at => live.apps[at]?.name === end); steps--) {
      const onward = live.links.find(link => app(link.from) === end);
      if (onward) end = app(onward.to);
    }
    return Object.assign(this.item(group, "link", `${from} -> ${to}`),
      { index, wire, gap: group.querySelector(".gap"), tips: [...group.querySelectorAll(".tip")], label, drops, from: app(from), to: end });
  },

  update(live) {
    for (const item of this.apps) {
      const app = live.apps[item.index];
      if (!app) continue;
      const note = app.state === "failed" ? "failed" : known(app.clocks, value => figure(value) + " clocks/pkt");
      const lost = app.dropped_inside > 0 ? "drops " + pps(app.dropped_inside) : "";
      if (item.note) say(item.note, note);
      say(item.lost, lost);
      paint(item.group, app.clocks);
      mark(item.group, "failed", app.state === "failed");
      mark(item.group, "chosen", page.chosen && page.chosen.kind === "app" && page.chosen.name === item.name);
      set(item.group, "aria-label", [`app ${app.name}`, app.kind, note.replace("/pkt", " a packet"), `receives ${known(app.received, pps)}`, `sends ${known(app.sent, pps)}`, lost].filter(Boolean).join(", "));
    }
    for (const item of this.links) {
      const link = live.links[item.index];
      if (!link) continue;
      const text = link.packets === null ? UNKNOWN : `${pps(link.packets)} ${bps(link.bits)}`;
      const lost = link.dropped > 0 ? "drops " + pps(link.dropped) : "";
      if (item.label) say(item.label, text);
      if (item.drops) say(item.drops, lost);
      const thick = width(link.packets).toFixed(1);
      if (item.thick !== thick) {
        item.thick = thick;
        item.wire.style.strokeWidth = thick;
        if (item.gap) item.gap.style.strokeWidth = String(Number(thick) + 4);
        for (const tip of item.tips) tip.style.strokeWidth = String(Math.max(0, Number(thick) - 1.5));
      }
      const { chosen } = page;
      mark(item.group, "idle", !(link.packets > 0));
      mark(item.group, "flows", link.packets > 0);
      mark(item.group, "lossy", link.dropped > 0);
      mark(item.group, "chosen", chosen && chosen.kind === "link" && chosen.name === item.name);
      mark(item.group, "near", chosen && chosen.kind === "app" && [item.from, item.to].includes(chosen.name));
      set(item.group, "aria-label", `link ${item.name}, ${text}${lost && ", " + lost}`);
    }
  },

  /// Sets the scale; `null` fits the picture into the room.
  resize(zoom) {
    this.zoom = zoom;
    if (!this.svg) return;
    const [wide, high] = this.size.map(length => length * (this.scale = Math.min(4, Math.max(0.05, zoom ?? this.fitting(this.size)))));
    this.svg.setAttribute("width", Math.floor(wide));
    this.svg.setAttribute("height", Math.floor(high));
    $("picture").style.maxHeight = Math.max(this.room()[1], zoom === null ? Math.ceil(high) : 0) + "px";
  },
  /// Fits the picture again, as it was when it was opened.
  fit() {
    this.everything = false;
    this.zoom = null;
    this.choose();
  },
  /// Draws everything at a legible size, or goes back to the overview.
  toggle() {
    this.everything = !this.everything;
    this.zoom = this.everything ? 1.1 : null;
    this.choose();
  },

  focus(item) {
    item.group.focus({ preventScroll: true });
    item.group.scrollIntoView({ block: "nearest", inline: "nearest" });
  },

  /// Follows the links by arrow keys.
  press(event) {
    const item = this.items.find(({ group }) => group === event.target);
    if (!item) return;
    const all = this.items, at = all.indexOf(item);
    const named = name => this.apps.find(app => app.name === name);
    const apps = this.apps, peers = item.kind === "app" ? apps : all.filter(other => other.kind === "link" && other.from === item.from);
    const step = by => peers[Math.min(peers.length - 1, Math.max(0, peers.indexOf(item) + by))];
    const next = {
      ArrowRight: () => item.kind === "app" ? this.links.find(link => link.from === item.name) : named(item.to),
      ArrowLeft: () => item.kind === "app" ? this.links.find(link => link.to === item.name) : named(item.from),
      ArrowDown: () => step(1), ArrowUp: () => step(-1), Home: () => all[0], End: () => all[all.length - 1],
      PageDown: () => all[Math.min(all.length - 1, at + 10)], PageUp: () => all[Math.max(0, at - 10)],
    }[event.key];
    if (event.key === "Enter" || event.key === " ") open(item.kind, item.name, item.group);
    else if (next) { const to = next(); if (to) this.focus(to); } else return;
    event.preventDefault();
  },
};

// ---- Tables.

/// A table whose rows are kept from one update to the next. `columns`: heading, text of a row, and options.
class Rows {
  constructor(caption, columns, options = {}) {
    Object.assign(this, { columns, options, rows: new Map(), sort: options.sort ?? null, falls: true });
    this.body = h("tbody", {});
    this.heads = columns.map(([heading, , { number, by } = {}], index) => h("th", { scope: "col", class: number && "number" },
      by ? h("button", { type: "button", onclick: () => this.order(index) }, heading) : heading));
    this.root = h("div", { class: "table" }, h("table", { "aria-label": caption }, h("thead", {}, h("tr", {}, ...this.heads)), this.body));
  }

  order(index) {
    const { number } = this.columns[index][2];
    [this.falls, this.sort] = [this.sort === index ? !this.falls : !!number, index];
    this.update(this.last);
  }

  update(items) {
    this.last = items;
    let shown = this.options.keep ? items.filter(this.options.keep) : items;
    if (this.sort !== null) {
      const { by } = this.columns[this.sort][2], sign = this.falls ? -1 : 1;
      const value = item => by(item) ?? -1;
      const compare = (one, other) => typeof one === "string" ? one.localeCompare(other, "en", { numeric: true }) : one - other;
      shown = [...shown].sort((one, other) => sign * compare(value(one), value(other)));
    }
    this.heads.forEach((head, index) => {
      if (index === this.sort) set(head, "aria-sort", this.falls ? "descending" : "ascending"); else head.removeAttribute("aria-sort");
    });
    const seen = new Set();
    shown.forEach((item, position) => {
      const key = this.options.key(item);
      seen.add(key);
      let row = this.rows.get(key);
      if (!row) {
        row = h("tr", {}, ...this.columns.map(([, , { number } = {}]) => h("td", { class: number && "number" })));
        if (this.options.open) {
          row.classList.add("pick");
          const button = h("button", { type: "button", class: "open" });
          row.firstChild.append(button);
          row.addEventListener("click", () => this.options.open(key, button));
        }
        this.rows.set(key, row);
      }
      this.columns.forEach(([, text], index) => {
        const cell = row.children[index];
        say(index === 0 && this.options.open ? cell.firstChild : cell, text(item));
      });
      if (this.options.each) this.options.each(row, item);
      if (this.body.children[position] !== row) this.body.insertBefore(row, this.body.children[position] || null);
    });
    for (const [key, row] of this.rows) if (!seen.has(key)) { row.remove(); this.rows.delete(key); }
  }
}

const table = (caption, headings, rows) => h("div", { class: "table" }, h("table", { "aria-label": caption },
  h("thead", {}, h("tr", {}, ...headings.map(([text, number]) => h("th", { scope: "col", class: number && "number" }, text)))),
  h("tbody", {}, ...rows.map(row => h("tr", {}, ...row.map((cell, index) => h("td", { class: headings[index][1] && "number" }, cell)))))));

// ---- Below the picture: what costs most, and what happened last.

const summary = {
  length: 6, rows: null, events: null,

  show(live) {
    if (!this.rows) {
      this.rows = new Rows("Apps that cost most", [
        ["App", app => app.name], ["Clocks/pkt", app => known(app.clocks, figure), { number: true }],
        ["Share", app => known(app.share, percent), { number: true }], ["Received", app => known(app.received, pps), { number: true }],
        ["Dropped", app => known(app.dropped, pps), { number: true }],
      ], { key: app => app.name, open: (name, button) => open("app", name, button), each: (row, app) => mark(row.children[4], "bad", app.dropped > 0) });
      this.events = h("ul", { class: "events" });
      $("summary").append(h("div", {}, h("h3", {}, "Apps that cost most"), this.rows.root), h("div", {}, h("h3", {}, "Latest events"), this.events));
    }
    if (live.apps) this.rows.update([...live.apps].sort((one, other) => (other.share ?? 0) - (one.share ?? 0)).slice(0, this.length));
    const last = happenings(live).slice(-this.length).reverse();
    replace(this.events, last.map(happened), JSON.stringify(last));
  },
};

// ---- The other views.

const panels = {
  built: {},

  forget() {
    this.built = {};
    for (const [view] of VIEWS.slice(1)) $("view-" + view).replaceChildren();
  },

  show(live) {
    const { view } = page;
    const built = this.built[view] ||= this[view + "Built"]();
    if (live.apps || view === "events") this[view](live, built);
  },

  search(what, rows) {
    const input = h("input", { type: "search", "aria-label": `Show ${what} whose names contain`, placeholder: `filter ${what}`, oninput: () => rows.update(rows.last || []) });
    rows.options.keep = item => rows.options.key(item).toLowerCase().includes(input.value.toLowerCase());
    return h("div", { class: "tools" }, input);
  },

  appsBuilt() {
    const rows = new Rows("Apps", [
      ["App", app => app.name, { by: app => app.name }], ["Type", app => app.kind, { by: app => app.kind }],
      ["State", app => app.state, { by: app => app.state }],
      ["Received", app => known(app.received, pps), { number: true, by: app => app.received }],
      ["Sent", app => known(app.sent, pps), { number: true, by: app => app.sent }],
      ["Dropped", app => known(app.dropped, pps), { number: true, by: app => app.dropped }],
      ["Dropped in all", app => count(app.dropped_packets), { number: true, by: app => app.dropped_packets }],
      ["Clocks/pkt", app => known(app.clocks, figure), { number: true, by: app => app.clocks }],
      ["Share", app => known(app.share, percent), { number: true, by: app => app.share }],
      ["Pkts/call", app => known(app.packets_per_call, figure), { number: true, by: app => app.packets_per_call }],
      ["Worker", app => app.worker, { by: app => app.worker }],
    ], {
      key: app => app.name, open: (name, button) => open("app", name, button),
      each: (row, app) => {
        mark(row, "chosen", page.chosen && page.chosen.kind === "app" && page.chosen.name === app.name);
        mark(row.children[2], "bad", app.state === "failed");
        mark(row.children[5], "bad", app.dropped > 0);
        mark(row.children[7], "heat", true);
        paint(row.children[7], app.clocks);
      },
    });
    $("view-apps").append(this.search("apps", rows), rows.root);
    return rows;
  },
  apps(live, rows) { rows.update(live.apps); },

  linksBuilt() {
    const rows = new Rows("Links", [
      ["Link", link => `${link.from} -> ${link.to}`, { by: link => link.from }],
      ["Packets", link => known(link.packets, pps), { number: true, by: link => link.packets }],
      ["Bits", link => known(link.bits, bps), { number: true, by: link => link.bits }],
      ["Dropped", link => known(link.dropped, pps), { number: true, by: link => link.dropped }],
      ["Dropped in all", link => count(link.dropped_packets), { number: true, by: link => link.dropped_packets }],
      ["Waiting", link => count(link.waiting), { number: true, by: link => link.waiting }],
    ], {
      key: link => `${link.from} -> ${link.to}`, open: (name, button) => open("link", name, button),
      each: (row, link) => {
        mark(row, "chosen", page.chosen && page.chosen.kind === "link" && page.chosen.name === `${link.from} -> ${link.to}`);
        mark(row.children[3], "bad", link.dropped > 0);
      },
    });
    $("view-links").append(this.search("links", rows), rows.root);
    return rows;
  },
  links(live, rows) { rows.update(live.links); },

  timingBuilt() {
    const built = { latency: h("div", {}), breath: h("div", {}), slow: h("div", {}), at: -9, asked: null };
    $("view-timing").append(h("div", { class: "columns" }, built.latency, built.breath), built.slow);
    return built;
  },
  timing(live, built) {
    // A slow server is not asked again before it has answered.
    if (built.asked === page.name || page.ticks - built.at < 3) return;
    built.at = page.ticks;
    const network = page.name;
    built.asked = network;
    const shown = then => answer => { if (network === page.name) then(answer); };
    const latency = ask("api/latency", { network }).then(shown(times => {
      const since = counted(times);
      built.latency.replaceChildren(...histogram("Latency of packets, from source to end", times.latency, since));
      built.breath.replaceChildren(...histogram("Duration of breaths in which packets move", times.breath, since));
    }), () => {});
    const timeline = ask("api/timeline", { network }).then(shown(timeline => built.slow.replaceChildren(...slowBreaths(timeline))),
      shown(error => built.slow.replaceChildren(h("h3", {}, "Slowest breaths"), h("p", { class: "faint" }, error.message))));
    Promise.allSettled([latency, timeline]).then(() => { if (built.asked === network) built.asked = null; });
  },

  traceBuilt() {
    const result = h("div", { "aria-live": "polite" });
    const app = h("select", {}, h("option", { value: "" }, "any app that brings packets in"));
    const filter = h("input", { placeholder: "tcp port 80", spellcheck: "false", autocapitalize: "off" });
    const number = h("input", { type: "number", min: 1, max: 100, value: 5, required: true });
    const seconds = h("input", { type: "number", min: 1, max: 60, value: 5, required: true });
    const button = h("button", { class: "strong" }, "Follow packets");
    const form = h("form", { class: "ask", onsubmit: event => {
      event.preventDefault();
      const body = { network: page.name, count: Number(number.value), seconds: Number(seconds.value), filter: filter.value || null, app: app.value || null };
      run(button, result, `following packets for up to ${body.seconds} s …`, async () => {
        const answer = await (await order("api/trace", body, body.seconds)).json();
        return journeys(answer);
      });
    } }, h("label", {}, "Packets", number), h("label", {}, "Seconds at most", seconds), h("label", { class: "wide" }, "Sent by", app),
      h("label", { class: "wide" }, "Only packets that match", filter), button);
    $("view-trace").append(h("p", { class: "faint" }, "Follows single packets through the network: each app, link and time. The network runs a little slower meanwhile."), form, result);
    return { app };
  },
  trace(live, { app }) {
    const names = live.apps.map(one => one.name);
    if (names.join("\n") === app.dataset.names) return;
    app.dataset.names = names.join("\n");
    const { value } = app;
    app.replaceChildren(app.firstChild, ...names.map(name => h("option", { value: name }, name)));
    if (names.includes(value)) app.value = value;
  },

  eventsBuilt() {
    const list = h("ul", { class: "events" });
    $("view-events").append(h("p", { class: "faint" }, "What happened to this network, also before this page was opened, the latest first."), list);
    return list;
  },
  events(live, list) {
    const all = happenings(live);
    const key = [live.name, live.kept, live.events].map(part => JSON.stringify(part)).join();
    if (list.dataset.key === key) return;
    list.dataset.key = key;
    list.replaceChildren(...all.reverse().map(happened));
  },
};

/// An event as an item of a list.
const happened = event => h("li", {}, h("span", { class: "number" }, clock(event.at_ms)),
  h("span", { class: event.level === "error" || ["crashed", "failed"].includes(event.what) ? "bad" : "" }, event.what), h("span", {}, event.text));

/// Runs what a person has asked for, with the button off meanwhile.
const run = async (button, result, text, work) => {
  button.disabled = true;
  result.replaceChildren(h("p", { class: "faint" }, text));
  try {
    result.replaceChildren(...await work());
  } catch (error) {
    result.replaceChildren(h("p", { class: "alert" }, h("b", {}, "failed"), " ", error.message));
  }
  button.disabled = false;
};

/// Since when a report counts.
const counted = ({ cleared, seconds }) => `since ${cleared ? "the counts were restarted" : "the run began"}, ${span(seconds)}`;

/// A histogram of times: its classes joined to powers of two.
const histogram = (title, times, since) => {
  const classes = new Map();
  for (const [most, number] of times.classes) {
    const limit = 2 ** Math.ceil(Math.log2(Math.max(1, most)));
    classes.set(limit, (classes.get(limit) || 0) + number);
  }
  const limits = [...classes.keys()].sort((one, other) => one - other);
  const most = Math.max(1, ...classes.values());
  const bar = limit => {
    const bar = h("div", { class: "bar" });
    bar.style.width = 100 * classes.get(limit) / most + "%";
    return [h("span", { class: "number" }, "≤ " + nanos(limit)), bar,
      h("span", { class: "number" }, `${count(classes.get(limit))} (${percent(classes.get(limit) / times.samples)})`)];
  };
  const marks = [["p50", times.p50_ns], ["p99", times.p99_ns], ["p99.9", times.p99_9_ns], ["maximum", times.maximum_ns]];
  return [h("h3", {}, title),
    h("p", {}, marks.map(([name, value]) => `${name} ${known(value, nanos)}`).join(", ")),
    h("p", { class: "faint" }, `${count(times.samples)} samples ${since}`),
    h("div", { class: "bars" }, ...limits.flatMap(bar))];
};

const cause = ({ what, app, entry }) => what === "app" ? `${entry} of ${app}` : "time between calls";
const why = breath => {
  const { cause: at } = breath;
  if (!at) return "not unusual";
  const { app, entry } = at;
  if (at.what === "between") return `none of the apps: ${nanos(breath.between_ns)} passed between their calls, usually ${nanos(breath.usual_between_ns)}`;
  const call = breath.calls.filter(one => one.app === app && one.entry === entry).sort((one, other) => other.duration_ns - one.duration_ns)[0];
  if (!call) return `${entry} of ${app}`;
  const usual = call.usual_ns === null ? "the only one that was recorded" : `usually ${nanos(call.usual_ns)} for ${count(call.usual_packets ?? 0)}`;
  return `the ${entry} of ${app} took ${nanos(call.duration_ns)} for ${plural(call.packets, "packet")}, ${usual}`;
};
const slowBreaths = timeline => {
  const workers = timeline.workers.length > 1;
  const rows = timeline.slowest.map(breath => [clock(breath.start_ns / 1e6), ...workers ? [breath.worker] : [], nanos(breath.duration_ns), why(breath)]);
  const head = [["Time", true], ...workers ? [["Worker"]] : [], ["Duration", true], ["Why"]];
  const all = timeline.suspects.reduce((sum, suspect) => sum + suspect.breaths, 0);
  const suspects = timeline.suspects.slice(0, 8).map(suspect => [cause(suspect), count(suspect.breaths), percent(suspect.breaths / all), percent(suspect.usual_share)]);
  return [h("h3", {}, "Slowest breaths of the last minute"),
    h("p", { class: "faint" }, "The median of breaths that move packets is " + timeline.workers.map(worker => nanos(worker.median_ns) + (workers ? " for " + worker.name : "")).join(", ") + "."),
    rows.length ? table("Slowest breaths", head, rows) : h("p", {}, "Nothing has been recorded yet."),
    ...suspects.length ? [h("h3", {}, "What made breaths slow"), table("Causes of slow breaths", [["Made slow by"], ["Breaths", true], ["Share", true], ["Usual share of the time", true]], suspects)] : []];
};

/// The paths of packets, from a trace.
const journeys = answer => {
  const ends = { time: "The time is over.", over: "The network has ended.", gone: "The app is gone.", steps: "The packets take too many steps to follow them further." };
  const said = answer.packets.length ? `${plural(answer.packets.length, "packet")} followed.` : "No such packet came.";
  const notes = h("p", {}, [said, answer.end === "complete" ? "" : ends[answer.end] || "", answer.obstacle || ""].filter(Boolean).join(" "));
  const step = (one, _, steps) => {
    // What a packet is, is told once and where it has changed.
    const before = one.before === null || one.before === undefined ? null : steps[one.before].summary;
    const summary = one.summary !== before && one.summary;
    const what = one.what === "sent" ? `${one.app}.${one.port} -> ${one.to || "a link that is gone"}` : one.what === "dropped" ? `${one.app}: dropped, ${one.reason}` : `${one.app}: ended`;
    const text = h("span", { class: one.what === "dropped" && "bad" }, what);
    return h("li", {}, h("span", { class: "number" }, "+" + nanos(one.after_ns)), h("span", {}, text, summary && h("span", { class: "summary" }, summary)));
  };
  return [notes, ...answer.packets.map(packet => h("article", { class: "packet" }, h("h3", {}, `Packet ${packet.packet}, ${clock(packet.at_ns / 1e6)}`), h("ol", {}, ...packet.steps.map(step)),
    packet.inside.length ? h("p", { class: "faint" }, `still in ${packet.inside.join(", ")}, or on the way to it`) : null))];
};

// ---- Charts.

const STYLES = ["one", "two", "three"];

/// A chart of the last minutes: its title, the names of its lines, and how a value is written.
const chart = (title, names, write) => {
  const lines = names.map((_, index) => s("path", { class: STYLES[index] }));
  const cursor = s("path", { class: "cursor" });
  const most = h("span", {}), from = h("span", {}), readout = h("output", {}), values = names.map(() => h("span", { class: "number" }));
  const keys = names.map((name, index) => h("span", { class: "key" }, s("svg", { viewBox: "0 0 20 10", "aria-hidden": "true" }, s("path", { class: STYLES[index], d: "M0 5H20" })), name, values[index]));
  const plot = h("div", { class: "plot", tabindex: "0", role: "img" }, s("svg", { viewBox: "0 0 300 90", preserveAspectRatio: "none", "aria-hidden": "true" }, ...lines, cursor));
  let data = null, at = null;
  const point = () => {
    if (!data || at === null || !data.at.length) { cursor.setAttribute("d", ""); say(readout, "now"); return; }
    at = Math.min(data.at.length - 1, Math.max(0, at));
    const [first, last] = [data.at[0], data.at[data.at.length - 1]];
    cursor.setAttribute("d", `M${last > first ? ((data.at[at] - first) / (last - first) * 300).toFixed(1) : 300} 0V90`);
    say(readout, `${clock(data.at[at])}: ` + data.lists.map((list, index) => `${names[index]} ${known(list[at], write)}`).join(", "));
  };
  plot.addEventListener("pointermove", event => {
    const box = plot.getBoundingClientRect();
    if (data) { at = Math.round((event.clientX - box.left) / box.width * (data.at.length - 1)); point(); }
  });
  plot.addEventListener("pointerleave", () => { at = null; point(); });
  plot.addEventListener("blur", () => { at = null; point(); });
  plot.addEventListener("keydown", event => {
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -1e6, End: 1e6 }[event.key];
    if (!by || !data) return;
    at = (at ?? data.at.length - 1) + by;
    point();
    event.preventDefault();
  });
  const root = h("figure", { class: "chart" }, h("figcaption", { class: "top" }, h("b", {}, title), ...keys), plot, h("div", { class: "foot" }, from, most, readout));
  return { root, update(times, lists) {
    data = { at: times, lists };
    const top = Math.max(1e-9, ...lists.flat().filter(value => value !== null));
    lists.forEach((list, index) => {
      lines[index].setAttribute("d", list.length > 1 ? path(times, list, 300, 90, top) : "");
      say(values[index], known(list[list.length - 1], write));
    });
    say(most, "max " + (top > 1e-9 ? write(top) : "0"));
    say(from, times.length ? `−${span(Math.round((times[times.length - 1] - times[0]) / 1000))}` : "no readings yet");
    set(plot, "aria-label", `${title} over the last minutes: ` + names.map((name, index) => `${name} now ${values[index].textContent}`).join(", ") + `; ${most.textContent}. Arrow keys read single values.`);
    point();
  } };
};
const figuresOf = (history, keys, shown) => shown.update(history.at_ms, keys.map(key => history[key]));

// ---- Details of an app or link.

const detail = { parts: null };

const open = (kind, name, from) => {
  const again = page.chosen && page.chosen.kind === kind && page.chosen.name === name;
  page.back = from || page.back;
  if (!again) {
    page.chosen = { kind, name };
    detail.parts = kind === "app" ? appParts(name) : linkParts(name);
    const shut = h("button", { type: "button", "aria-label": "Close the details", onclick: close }, "Close");
    $("detail").replaceChildren(h("div", { class: "bar" }, h("h2", { id: "detail-name" }, name), shut), ...detail.parts.all);
    $("detail").scrollTop = 0;
  }
  $("detail").hidden = false;
  document.querySelector(".frame").classList.add("open");
  $("detail").querySelector("button").focus({ preventScroll: true });
  if (page.live && !again) refresh();
  tick();
};

const close = () => {
  if (!page.chosen) return;
  page.chosen = null;
  $("detail").hidden = true;
  $("detail").replaceChildren();
  document.querySelector(".frame").classList.remove("open");
  const back = page.back && page.back.isConnected ? page.back : null;
  page.back = null;
  if (back) back.focus({ preventScroll: true });
  refresh();
};
const refresh = () => {
  if (!page.live) return;
  if (page.view === "picture") picture.update(page.live); else if (["apps", "links"].includes(page.view)) panels.show(page.live);
};

const facts = (element, pairs) => {
  const shown = pairs.filter(Boolean);
  while (element.children.length > 2 * shown.length) element.lastChild.remove();
  shown.forEach(([name, value], index) => {
    const term = element.children[2 * index] || element.appendChild(h("dt", {}));
    const text = element.children[2 * index + 1] || element.appendChild(h("dd", {}));
    say(term, name);
    say(text, value);
  });
};

const appParts = name => {
  const parts = {
    facts: h("dl", { class: "facts" }), traffic: chart("Packets", ["received", "sent"], pps), cost: chart("Clocks a packet", ["clocks"], figure),
    drops: chart("Drops", ["dropped"], pps), costs: h("div", {}), times: h("div", {}), reasons: h("div", {}), counters: h("div", {}), links: h("div", {}), status: h("div", { class: "tree" }),
  };
  const again = h("button", { type: "button", onclick: () => askStatus(name, parts.status, again) }, "Ask again");
  const follow = h("button", { type: "button", onclick: () => {
    view("trace");
    panels.show(page.live);
    panels.built.trace.app.value = name;
    close();
    $("view-trace").querySelector("input").focus();
  } }, "Trace its packets …");
  parts.all = [parts.facts, h("p", { class: "actions" }, follow), parts.traffic.root, parts.drops.root, parts.cost.root, parts.costs, parts.times, parts.reasons, parts.counters, parts.links,
    h("h3", {}, "Status"), parts.status, again];
  askStatus(name, parts.status, again);
  return parts;
};

/// Asks the engine for the states of its apps: once when a person opens an app, and again when told to.
const askStatus = async (name, to, button) => {
  if (!page.live || !["running", "degraded"].includes(page.live.health)) {
    to.replaceChildren(h("p", { class: "faint" }, "Only a running network tells the states of its apps."));
    button.hidden = true;
    return;
  }
  await run(button, to, "asking …", async () => {
    const { apps } = await ask("api/status", { network: page.name });
    const found = apps.find(app => app.app === name);
    return [found ? tree(found.status) : h("p", { class: "faint" }, "This app reports no state.")];
  });
};
const tree = value => {
  if (value === null || value === "") return UNKNOWN;
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "object") return String(value);
  const entries = Array.isArray(value) ? value.map(part => ["", part]) : Object.entries(value);
  if (!entries.length) return "none";
  return h("ul", {}, ...entries.map(([key, part]) => h("li", {}, key && h("b", {}, key + ": "), tree(part))));
};

const linkParts = name => {
  const parts = {
    facts: h("dl", { class: "facts" }), traffic: chart("Packets", ["packets"], pps), bits: chart("Bits", ["bits"], bps),
    drops: chart("Drops, link full", ["dropped"], pps), waiting: chart("Waiting in the link", ["packets"], count), times: h("div", {}),
  };
  const number = h("input", { type: "number", min: 1, max: 100000, value: 1000, required: true });
  const seconds = h("input", { type: "number", min: 1, max: 60, value: 10, required: true });
  const filter = h("input", { placeholder: "udp port 53", spellcheck: "false", autocapitalize: "off" });
  const button = h("button", { class: "strong" }, "Capture and download");
  const result = h("div", { "aria-live": "polite" });
  const form = h("form", { class: "ask", onsubmit: event => {
    event.preventDefault();
    const body = { network: page.name, link: name, count: Number(number.value), seconds: Number(seconds.value), filter: filter.value || null };
    run(button, result, `capturing for up to ${body.seconds} s …`, async () => {
      const answer = await order("api/tap", body, body.seconds);
      const [packets, missed, left, end] = ["packets", "missed", "left-out", "end"].map(key => answer.headers.get("bellows-" + key));
      const ends = { gone: " The link is gone.", over: " The network has ended.", size: " The capture has reached its maximum size." };
      const file = URL.createObjectURL(await answer.blob());
      const link = h("a", { href: file, download: `${page.name}-${name}`.replace(/[^\w.-]+/g, "-") + ".pcap" });
      link.click();
      setTimeout(() => URL.revokeObjectURL(file), 60000);
      return [h("p", {}, `${plural(Number(packets), "packet")} captured, ${count(Number(missed))} missed${Number(left) ? `, ${count(Number(left))} left out: other link types` : ""}.${ends[end] || ""}`)];
    });
  } }, h("label", {}, "Packets at most", number), h("label", {}, "Seconds at most", seconds), h("label", { class: "wide" }, "Only packets that match", filter), button);
  parts.all = [parts.facts, parts.traffic.root, parts.bits.root, parts.drops.root, parts.waiting.root, parts.times,
    h("h3", {}, "Capture its packets"), h("p", { class: "faint" }, "A pcap file for Wireshark or tcpdump. The network runs a little slower meanwhile."), form, result];
  return parts;
};

const showDetail = answer => {
  const { chosen, live } = page, { parts } = detail;
  if (!chosen || !live) return;
  if (!answer) {
    facts(parts.facts, [["", live.apps ? `The ${chosen.kind} is not part of the network now.` : UNKNOWN]]);
    return;
  }
  if (chosen.kind === "link") showLink(answer, live, parts); else showApp(answer, live, parts);
  showTimes(chosen, answer, parts);
};

/// Histograms below an app: how long its calls take, and below one where packets end, and a link, how long packets take.
const showTimes = async (chosen, { app }, parts) => {
  const network = page.name;
  if (parts.asked || page.ticks - (parts.at ?? -9) < 3) return;
  parts.at = page.ticks;
  parts.asked = true;
  const of = (path, more = {}) => ask(path, { network, ...more }).catch(() => null);
  const [durations, latency] = await Promise.all([
    app ? of("api/durations", { app: chosen.name }) : null, !app || app.ended > 0 ? of("api/latency") : null,
  ]);
  parts.asked = false;
  if (chosen !== page.chosen) return;
  parts.times.replaceChildren(
    ...durations ? histogram("Duration of its calls", durations.durations, `in the last ${span(durations.seconds)}`) : [],
    ...latency ? histogram("Latency of all packets of the network", latency.latency, counted(latency)) : []);
};

const showLink = ({ link, index, history }, live, parts) => {
  const now = live.links[index] || {};
  facts(parts.facts, [
    ["rate", now.packets === null ? UNKNOWN : `${known(now.packets, pps)}, ${known(now.bits, bps)}`],
    ["packets", count(link.packets)], ["bytes", count(link.bytes)], ["mean packet", link.packets ? figure(link.bytes / link.packets) + " bytes" : UNKNOWN],
    ["waiting", `${count(link.waiting)} packets, ${count(link.waiting_bytes)} bytes`], ["dropped, full", count(link.txdrop)],
  ]);
  figuresOf(history, ["packets"], parts.traffic);
  figuresOf(history, ["bits"], parts.bits);
  figuresOf(history, ["dropped"], parts.drops);
  figuresOf(history, ["waiting"], parts.waiting);
};

const showApp = ({ app, index, helps, rows, cleared, seconds, links, history }, live, parts) => {
  const now = live.apps[index] || {};
  facts(parts.facts, [
    ["type", app.kind], ["state", app.state + (app.panics ? `, ${plural(app.panics, "panic")}` : "")], (live.workers || []).length > 1 && ["worker", app.worker],
    ["received", `${count(app.in_packets)} packets, ${count(app.in_bytes)} bytes`], ["sent", `${count(app.out_packets)} packets, ${count(app.out_bytes)} bytes`],
    app.made > 0 && ["made", `${count(app.made)} packets`], app.ended > 0 && ["ended here", `${count(app.ended)} packets`], app.held > 0 && ["held", `${count(app.held)} packets`],
    ["cost now", `${known(now.clocks, figure)} clocks/pkt, ${known(now.share, percent)} of all clocks`],
  ]);
  figuresOf(history, ["received", "sent"], parts.traffic);
  figuresOf(history, ["clocks"], parts.cost);
  figuresOf(history, ["dropped"], parts.drops);
  const since = counted({ cleared, seconds });
  replace(parts.costs, [h("h3", {}, "Cost"), rows.length ? table("Cost", [["Entry"], ["Calls", true], ["Packets", true], ["Clocks/pkt", true], ["Pkts/call", true], ["Share", true]],
    rows.map(row => [row.entry, count(row.calls), (row.packets_estimated ? "~" : "") + known(row.packets, count), known(row.clocks_per_packet, figure), known(row.packets_per_call, figure), known(row.share, percent)]))
    : h("p", { class: "faint" }, "It has not been called."), h("p", { class: "faint hint" }, since)], JSON.stringify([rows, Math.round(seconds)]));
  const list = (to, title, counters, head) => {
    const shown = Object.entries(counters).filter(([, value]) => value > 0);
    replace(to, shown.length ? [h("h3", {}, title), table(title, head, shown.map(([name, value]) => [h("code", {}, name), count(value), helps[name] || ""]))] : [], JSON.stringify(shown));
  };
  list(parts.reasons, "Drops by reason", app.drops, [["Reason"], ["Packets", true], ["What it means"]]);
  list(parts.counters, "Counters", app.counters, [["Counter"], ["Value", true], ["What it counts"]]);
  const named = links.map(link => live.links[link]).filter(Boolean).map(link => `${link.from} -> ${link.to}`);
  replace(parts.links, [h("h3", {}, "Links"), h("ul", {}, ...named.map(name => h("li", {}, h("button", { type: "button", onclick: () => open("link", name) }, name))))], named.join("\n"));
};
/// Replaces content only if its key is another one.
const replace = (element, children, key) => {
  if (element.dataset.key === key) return;
  element.dataset.key = key;
  element.replaceChildren(...children);
};

// ---- Changes, if they are allowed.

const confirmed = (title, text, verb) => new Promise(resolve => {
  const dialog = $("confirm");
  say($("confirm-title"), title);
  say($("confirm-text"), text);
  say($("confirm-yes"), verb);
  dialog.returnValue = "no";
  dialog.onclose = () => resolve(dialog.returnValue === "yes");
  dialog.showModal();
});
const change = async (change, title, text, verb) => {
  const network = page.name;
  if (!await confirmed(title, text, verb)) return;
  try {
    await order("api/change", { change, network }, 60);
  } catch (error) {
    await confirmed("It has failed", error.message, "OK");
  }
  tick();
};

// ---- The page.

const view = name => {
  page.view = name;
  for (const [other] of VIEWS) {
    const tab = $("tab-" + other), is = other === name;
    set(tab, "aria-selected", String(is));
    tab.tabIndex = is ? 0 : -1;
    $("view-" + other).hidden = !is;
  }
  remember();
  if (page.live) show(page.live);
};

const start = () => {
  buildTiles();
  buildLegend();
  $("tabs").append(...VIEWS.map(([name, title]) => h("button", { type: "button", role: "tab", id: "tab-" + name, "aria-controls": "view-" + name, onclick: () => view(name) }, title)));
  $("tabs").addEventListener("keydown", event => {
    const names = VIEWS.map(([name]) => name), at = names.indexOf(page.view);
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: names.length - 1 }[event.key];
    if (next === undefined) return;
    view(names[(next + names.length) % names.length]);
    $("tab-" + page.view).focus();
    event.preventDefault();
  });
  $("picture").addEventListener("keydown", event => picture.press(event));
  const zoom = by => () => picture.resize((picture.scale || 1) * by);
  $("smaller").addEventListener("click", zoom(1 / 1.25));
  $("larger").addEventListener("click", zoom(1.25));
  $("fit").addEventListener("click", () => picture.fit());
  $("everything").addEventListener("click", () => picture.toggle());
  new ResizeObserver(() => picture.choose()).observe($("picture"));
  addEventListener("resize", () => picture.choose());
  document.addEventListener("keydown", event => { if (event.key === "Escape" && !$("confirm").open && page.chosen) close(); });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) tick(); });
  $("reload").addEventListener("click", () => change("reload", `Reload ${page.name}?`, "The network file is read again and takes the place of what runs, between two breaths. Unchanged apps keep running.", "Reload"));
  $("clear").addEventListener("click", () => change("clear", `Restart the counts of ${page.name}?`, "Costs and latencies count from now on, here and in `bellows show`. The counters themselves go on.", "Restart counts"));
  if (matchMedia("(max-width: 760px)").matches) $("networks").open = false;
  const words = new URLSearchParams(location.hash.slice(1));
  token.take(words);
  // The address of a page that is open already loads nothing.
  addEventListener("hashchange", () => { token.take(new URLSearchParams(location.hash.slice(1))); tick(); });
  page.name = words.get("network");
  view(VIEWS.some(([name]) => name === words.get("view")) ? words.get("view") : "picture");
  tick();
};
start();
