// Asks the gateway for what it has counted, every two seconds, and shows it. Everything is put into
// the document as text: a name with markup in it stays a name.
"use strict";

const PERIOD = 2000; // milliseconds between two looks
const KEPT = 150; // looks that are kept, for the lines in the tiles
const SMOOTH = 5; // looks that a rate is taken over
const TOKEN = "hitpath-token";

const $ = (id) => document.getElementById(id);

function make(tag, options = {}, ...children) {
  const svg = ["svg", "g", "rect", "text", "path", "title", "defs", "marker"].includes(tag);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(options)) node.setAttribute(name, value);
  node.append(...children.filter((child) => child !== null));
  return node;
}

// ---------------------------------------------------------------------------- numbers for people

function short(number) {
  if (!Number.isFinite(number)) return "–";
  const units = ["", "\u00a0k", "\u00a0M", "\u00a0G", "\u00a0T", "\u00a0P"];
  let unit = 0;
  while (Math.abs(number) >= 999.5 && unit < units.length - 1) {
    number /= 1000;
    unit += 1;
  }
  const digits = unit === 0 && Number.isInteger(number) ? 0 : Math.abs(number) < 9.95 ? 1 : 0;
  return number.toFixed(digits) + units[unit];
}

const whole = (number) => Number(number).toLocaleString("en-GB").replaceAll(",", "\u00a0");
const percent = (part) => (Number.isFinite(part) ? (100 * part).toFixed(1) + " %" : "–");

const several = (count, one, many) => `${whole(count)}\u00a0${count === 1 ? one : many}`;

function brief(nanoseconds) {
  if (nanoseconds < 999.5) return `${nanoseconds.toFixed(0)}\u00a0ns`;
  return nanoseconds < 999500 ? `${(nanoseconds / 1e3).toFixed(1)}\u00a0µs` : `${(nanoseconds / 1e6).toFixed(1)}\u00a0ms`;
}

function span(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  const [days, hours, minutes] = [86400, 3600, 60].map((unit) => Math.floor(seconds / unit));
  if (days > 0) return `${days} d ${hours % 24} h`;
  if (hours > 0) return `${hours} h ${minutes % 60} min`;
  if (minutes > 0) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(seconds)} s`;
}

// ---------------------------------------------------------------------------- what was seen

const seen = []; // { at, state, counts }, the newest last

// Everything that only grows, by name.
function counts(state) {
  const all = new Map();
  const count = (name, value) => all.set(name, Number(value ?? 0));
  for (const port of state.ports) {
    const { rx_packets, tx_packets, rx_bytes, tx_bytes } = port.statistics ?? {};
    Object.entries({ rx_packets, tx_packets, rx_bytes, tx_bytes }).forEach(([name, value]) => count(`port ${port.name} ${name}`, value));
  }
  const of_workers = (name) => state.workers.reduce((sum, worker) => sum + worker[name], 0);
  count("received", of_workers("packets"));
  count("encrypted", of_workers("encrypted"));
  count("decrypted", of_workers("decrypted"));
  count("sent", state.ports.reduce((sum, port) => sum + (port.parent ? 0 : port.statistics?.tx_packets ?? 0), 0));
  count("dropped", state.drops.reduce((sum, drop) => sum + drop.packets, 0));
  for (const drop of state.drops) count(`drop ${drop.reason}`, drop.packets);
  for (const sa of state.sas) {
    count(`sa ${key(sa)} packets`, sa.packets);
    count(`sa ${key(sa)} bytes`, sa.bytes);
  }
  for (const table of state.caches) {
    count(`hits ${table.table}`, table.hits);
    count(`misses ${table.table}`, table.misses.new + table.misses.stale + table.misses.evicted + table.misses.bypassed);
  }
  count("timed packets", state.costs.total.packets);
  for (const stage of state.costs.total.stages) {
    count(`stage ${stage.stage} packets`, stage.packets);
    count(`stage ${stage.stage} calls`, stage.calls);
    count(`stage ${stage.stage} cycles`, stage.cycles);
  }
  return all;
}

const key = (sa) => `${sa.vrf} ${sa.destination} ${sa.spi}`;

// How much a count has grown, over some looks; nothing if it has fallen, as the gateway began anew.
function grown(name, looks = SMOOTH) {
  const now = seen.at(-1);
  const then = seen.at(-1 - Math.min(looks, seen.length - 1));
  const more = (now.counts.get(name) ?? NaN) - (then.counts.get(name) ?? 0);
  return { more: more >= 0 ? more : NaN, seconds: (now.at - then.at) / 1000 };
}

function rate(name) {
  const { more, seconds } = grown(name);
  return seconds > 0 ? more / seconds : NaN;
}

// The rates of all looks, for a line.
function line(name) {
  const rates = [];
  for (let at = 1; at < seen.length; at += 1) {
    const more = seen[at].counts.get(name) - seen[at - 1].counts.get(name);
    rates.push(more >= 0 ? (1000 * more) / (seen[at].at - seen[at - 1].at) : 0);
  }
  return rates;
}

// ---------------------------------------------------------------------------- parts of the page

// Those that are a heading and a table.
const TITLES = { ports: "Ports", drops: "Drops", tunnels: "Tunnels", cache: "Decision cache", vrfs: "VRFs" };

for (const place of document.querySelectorAll("[data-parts]")) {
  const part = (id) => make("section", { "aria-labelledby": `${id}-title` },
    make("h2", { id: `${id}-title` }, TITLES[id]), make("div", { id }));
  place.append(...place.dataset.parts.split(" ").map(part));
}

function table(into, columns, rows, none) {
  if (rows.length === 0) {
    $(into).replaceChildren(make("p", { class: "none" }, none));
    return;
  }
  const kind = (column) => (column.number ? "number" : column.kind ?? "");
  const head = make("tr", {}, ...columns.map((column) => make("th", { scope: "col", class: kind(column) }, column.name)));
  const body = rows.map((row) =>
    make("tr", {}, ...columns.map((column, at) => {
      const cell = row[at];
      const empty = cell === "" || cell === "–" ? " empty" : "";
      return make("td", { class: kind(column) + empty, "data-label": column.name }, cell);
    })),
  );
  const made = make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
  const old = $(into).querySelector(".scroll");
  const scroll = make("div", { class: "scroll", tabindex: "0" }, made);
  const top = old?.scrollTop ?? 0;
  $(into).replaceChildren(scroll);
  scroll.scrollTop = top;
}

const text = (name) => ({ name });
const number = (name) => ({ name, number: true });
const title = (name) => ({ name, kind: "title" });

function state_of(word, good) {
  return make("span", { class: `state ${good === true ? "good" : good === false ? "bad" : ""}` }, word);
}

function tile(name, value, unit, more, options = {}) {
  const drawn = options.line && options.line.length > 1 ? spark(options.line) : null;
  return make(
    "div",
    { class: options.bad ? "tile bad" : "tile" },
    make("div", { class: "name" }, name),
    make("div", { class: "value" }, value, make("small", {}, unit ? ` ${unit}` : "")),
    drawn ?? make("div", { class: "more", title: more ?? "" }, more ?? ""),
  );
}

function spark(values) {
  const most = Math.max(...values, 1);
  const points = values.map((value, at) => `${(100 * at) / (values.length - 1)},${(19 - 18 * (value / most)).toFixed(2)}`);
  return make("svg", { viewBox: "0 0 100 20", preserveAspectRatio: "none", "aria-hidden": "true" },
    make("path", { class: "spark", d: `M${points.join("L")}` }));
}

function tiles(state) {
  const hits = state.caches.reduce((sum, table) => sum + grown(`hits ${table.table}`).more, 0);
  const misses = state.caches.reduce((sum, table) => sum + grown(`misses ${table.table}`).more, 0);
  const all_hits = state.caches.reduce((sum, table) => sum + table.hits, 0);
  const all = all_hits + state.caches.reduce((sum, table) => sum + seen.at(-1).counts.get(`misses ${table.table}`), 0);
  const cost = state.costs.total.cycles_per_packet;
  const nanoseconds = (1e9 * cost) / state.costs.cycles_per_second;
  const drops = rate("dropped");
  const connections = state.connections;
  const made = [
    tile("Received", short(rate("received")), "packets/s", "", { line: line("received") }),
    tile("Sent", short(rate("sent")), "packets/s", "", { line: line("sent") }),
    tile("Dropped", short(drops), "packets/s", "", { line: line("dropped"), bad: drops >= 1 }),
    tile("Cache hits", percent(hits + misses > 0 ? hits / (hits + misses) : all_hits / all), "",
      hits + misses > 0 ? "of the last seconds" : all > 0 ? "since the start" : "no packet yet"),
    tile("A packet costs", cost === undefined ? "–" : short(cost), "cycles", cost === undefined ? "not timed yet" : `${brief(nanoseconds)} since start`),
    tile("SAs", whole(state.objects.find((it) => it.kind === "sa")?.count ?? 0), "", `${several(state.vrfs.length, "VRF", "VRFs")}, ${several(state.ports.length, "port", "ports")}`),
  ];
  if (connections.most > 0) {
    made.push(tile("Connections", whole(connections.connections), "", `of ${whole(connections.most)}`));
  }
  $("tiles").replaceChildren(...made);
}

// What each packet of a stage is counted as, where there is such a count.
const COUNTED = { receive: "received", seal: "encrypted", open: "decrypted", transmit: "sent" };

// What a stage does, of the time in which something was timed: the last minutes, or since the start.
function stage_of(cost) {
  const of = (what) => grown(`stage ${cost.stage} ${what}`, KEPT).more;
  const timed = grown("timed packets", KEPT).more;
  const recent = timed > 0;
  const packets = recent ? of("packets") : cost.packets;
  const calls = recent ? of("calls") : cost.calls;
  const cycles = recent ? of("cycles") : cost.cycles;
  const received = recent ? timed : seen.at(-1).state.costs.total.packets;
  return { packets, calls, cycles, per_received: packets / received };
}

function stages(state) {
  const all = new Map(state.costs.total.stages.map((cost) => [cost.stage, stage_of(cost)]));
  const cycles = [...all.values()].reduce((sum, stage) => sum + stage.cycles, 0);
  const received = rate("received");
  for (const [name, stage] of all) {
    stage.share = cycles > 0 ? stage.cycles / cycles : 0;
    // Of other stages than these is known how many packets they had for each received in the rounds that were timed.
    const timed = Number.isFinite(stage.per_received) ? stage.per_received * received : NaN;
    stage.rate = name in COUNTED ? rate(COUNTED[name]) : timed;
    stage.passes = stage.packets > 0 || stage.rate > 0;
  }
  const rounds = state.costs.total.rounds;
  $("stages-hint").textContent = rounds > 0
    ? `One round in about 256 is timed: ${whole(rounds)} so far. What stages cost follows from these.`
    : "One round in about 256 is timed; none was yet.";
  graph(state.graph, all);
  const does = new Map(state.graph.map((stage) => [stage.name, stage.does]));
  const rows = [...all].filter(([, stage]) => stage.cycles > 0 || stage.passes).map(([name, stage]) => [
    make("span", { title: does.get(name) ?? "what a round does beside its stages" }, name),
    stage.passes ? short(stage.rate) : "–",
    stage.calls > 0 ? (stage.packets / stage.calls).toFixed(1) : "–",
    stage.packets > 0 ? short(stage.cycles / stage.packets) : "–",
    make("span", {}, percent(stage.share), bar(stage.share)),
  ]);
  table("stages", [title("Stage"), number("Packets/s"), number("Packets/call"), number("Cycles/packet"), number("Share")], rows, "No stage was timed yet.");
}

function bar(share) {
  const width = Math.max(0, Math.min(100, 100 * share)).toFixed(1);
  return make("svg", { class: "bar", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
    make("rect", { width, height: 8, rx: 3 }));
}

// The stages in layers, each behind all that lead to it; ways back to a stage before are dashed.
function layers(drawn) {
  const layer = new Map();
  for (const stage of drawn) {
    const before = drawn.filter((other) => layer.has(other.name) && other.next.includes(stage.name));
    layer.set(stage.name, before.reduce((most, other) => Math.max(most, layer.get(other.name) + 1), 0));
  }
  return layer;
}

const narrow = window.matchMedia("(max-width: 40rem)");

function graph(drawn, all) {
  const layer = layers(drawn);
  const [width, height] = [112, 44];
  const upright = narrow.matches;
  const across = upright ? width + 24 : width + 34;
  const along = upright ? height + 30 : height + 22;
  const place = new Map();
  const rows = [];
  for (const { name } of drawn) {
    const at = layer.get(name);
    rows[at] = (rows[at] ?? 0) + 1;
    place.set(name, { layer: at, row: rows[at] - 1 });
  }
  const most = Math.max(...rows);
  const head = 46; // for ways that pass over stages
  for (const spot of place.values()) {
    spot.x = upright ? head + spot.row * across : spot.layer * across + 1;
    spot.y = upright ? spot.layer * along + 1 : head + spot.row * along;
  }
  const edges = [];
  for (const from of drawn) {
    for (const name of from.next) {
      if (place.has(name)) edges.push(edge(place.get(from.name), place.get(name), width, height, upright));
    }
  }
  const nodes = drawn.map(({ name, does }) => node(place.get(name), name, does, all.get(name), width, height));
  const size = upright
    ? [head + most * across + 30, rows.length * along]
    : [rows.length * across - 32, head + most * along + 26];
  const arrow = make("defs", {}, make("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 6, markerHeight: 6, orient: "auto" },
    make("path", { class: "arrow", d: "M0 0L8 4L0 8z" })));
  $("graph").replaceChildren(make("svg", { viewBox: `0 0 ${size[0]} ${size[1]}`, role: "img", "aria-label": "The stages of a packet's way, and how many packets pass each" }, arrow, ...edges, ...nodes));
}

function node(spot, name, does, stage, width, height) {
  const busy = stage !== undefined && stage.passes;
  const heat = busy ? Math.min(1, stage.share) : 0;
  const cost = busy && stage.packets > 0 ? ` · ${short(stage.cycles / stage.packets)} cyc` : "";
  const rate_of = busy ? `${short(stage.rate)}/s${cost}` : "–";
  return make("g", { class: busy ? "node" : "node still", transform: `translate(${spot.x} ${spot.y})` },
    make("title", {}, `${name}: ${does}`),
    make("rect", { width, height, rx: 7 }),
    make("rect", { class: "heat", x: 0, y: height - 4, width: Math.max(0, width * heat).toFixed(1), height: 4, rx: 2 }),
    make("text", { class: "stage", x: width / 2, y: 18, "text-anchor": "middle" }, name),
    make("text", { class: "rate", x: width / 2, y: 34, "text-anchor": "middle" }, rate_of));
}

function edge(from, to, width, height, upright) {
  const span_of = to.layer - from.layer;
  const back = span_of <= 0;
  let d;
  if (!upright) {
    const [y1, y2] = [from.y + height / 2, to.y + height / 2];
    if (span_of === 1) {
      const [x1, x2] = [from.x + width, to.x - 2];
      const middle = (x1 + x2) / 2;
      d = `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`;
    } else if (back) {
      const [x1, x2] = [from.x + width / 2 + 8, to.x + width / 2 + 8];
      const low = Math.max(from.y, to.y) + height;
      d = `M${x1} ${from.y + height}C${x1} ${low + 30} ${x2} ${low + 30} ${x2} ${to.y + height + 2}`;
    } else {
      const [x1, x2] = [from.x + width / 2 + 6, to.x + width / 2 - 6 * Math.min(4, span_of)];
      const high = Math.min(from.y, to.y) - 8 - 9 * span_of;
      d = `M${x1} ${from.y}C${x1 + 20} ${high} ${x2 - 20} ${high} ${x2} ${to.y - 2}`;
    }
  } else {
    const [x1, x2] = [from.x + width / 2, to.x + width / 2];
    if (span_of === 1) {
      const [y1, y2] = [from.y + height, to.y - 2];
      const middle = (y1 + y2) / 2;
      d = `M${x1} ${y1}C${x1} ${middle} ${x2} ${middle} ${x2} ${y2}`;
    } else if (back) {
      const [y1, y2] = [from.y + height / 2 - 6, to.y + height / 2 + 6];
      const far = Math.max(from.x, to.x) + width;
      d = `M${from.x + width} ${y1}C${far + 36} ${y1} ${far + 36} ${y2} ${to.x + width + 2} ${y2}`;
    } else {
      const [y1, y2] = [from.y + height / 2 + 6, to.y + height / 2 - 6];
      const near = Math.min(from.x, to.x) - 8 - 8 * span_of;
      d = `M${from.x} ${y1}C${near} ${y1} ${near} ${y2} ${to.x - 2} ${y2}`;
    }
  }
  return make("path", { class: back ? "edge back" : "edge", d, "marker-end": "url(#arrow)" });
}

function ports(state) {
  const lost = (port) => {
    const it = port.statistics ?? {};
    return ["rx_ring_full", "rx_missed", "rx_errors", "tx_dropped", "tx_too_long", "tx_down", "tx_errors"].reduce((sum, name) => sum + (it[name] ?? 0), 0);
  };
  const rows = state.ports.map((port) => [
    make("span", { title: `${port.kind}${port.interface ? " on " + port.interface : ""}, ${port.addresses.join(", ") || "no address"}` }, port.name),
    state_of(port.up ? "up" : "down", port.up),
    port.vrf,
    short(rate(`port ${port.name} rx_packets`)),
    short(8 * rate(`port ${port.name} rx_bytes`)),
    short(rate(`port ${port.name} tx_packets`)),
    short(8 * rate(`port ${port.name} tx_bytes`)),
    whole(lost(port)),
  ]);
  table("ports", [title("Port"), text("State"), text("VRF"), number("In/s"), number("In bit/s"), number("Out/s"), number("Out bit/s"), number("Lost")], rows, left_out(state, "port", "No port."));
}

function drops(state) {
  const rows = state.drops
    .slice()
    .sort((one, other) => other.packets - one.packets)
    .map((drop) => [drop.reason, whole(drop.packets), short(rate(`drop ${drop.reason}`)), drop.meaning]);
  table("drops", [title("Reason"), number("Packets"), number("Per second"), { name: "Meaning", kind: "long" }], rows, "No packet was dropped.");
}

// Sequence numbers of 32 bits end an SA: a peer that does not rekey in time falls silent.
const WORN = 0.9 * 2 ** 32;

function tunnels(state) {
  const rows = state.sas.map((sa) => {
    const worn = Math.max(sa.sent_sequence, sa.received_sequence) > WORN;
    const word = worn ? "used up soon" : sa.newest ? "in use" : "replaced";
    return [
      `${sa.source} → ${sa.destination}`,
      "0x" + sa.spi.toString(16).padStart(8, "0"),
      sa.vrf,
      state_of(word, worn ? false : sa.newest ? true : undefined),
      span(sa.age_seconds),
      [sa.aead, sa.encryption, sa.authentication].filter((it) => it).map((it) => it.name).join(" + "),
      short(rate(`sa ${key(sa)} packets`)),
      short(8 * rate(`sa ${key(sa)} bytes`)),
      whole(sa.packets),
      whole(sa.errors.packets),
    ];
  });
  table("tunnels", [title("Tunnel"), text("SPI"), text("VRF"), text("State"), text("Age"), { name: "Algorithm", kind: "wide" }, number("Packets/s"), number("Bit/s"), number("Packets"), number("Errors")], rows, left_out(state, "sa", "No SA."));
}

function left_out(state, kind, none) {
  const of = state.objects.find((it) => it.kind === kind);
  return of !== undefined && of.left_out > 0
    ? `There are ${whole(of.left_out)}, more than objects in [metrics] lets be listed; hitpath show has them.`
    : none;
}

function caches(state) {
  const used = state.caches.filter((table) => table.state !== "off");
  const rows = used.map((cache) => {
    return [
      cache.table,
      state_of(cache.state.replace("-", " "), cache.state === "in-use" ? true : undefined),
      cache.hit_ratio === undefined ? "–" : percent(cache.hit_ratio),
      short(rate(`hits ${cache.table}`)),
      short(rate(`misses ${cache.table}`)),
      percent(cache.occupied / cache.buckets),
      cache.costs.saved_ns === undefined ? "–" : `${cache.costs.saved_ns.toFixed(0)} ns`,
    ];
  });
  table("cache", [title("Table"), text("State"), number("Hit ratio"), number("Hits/s"), number("Misses/s"), number("Full"), number("Saves")], rows, "It is switched off.");
}

function vrfs(state) {
  const rows = state.vrfs.map((vrf) => [
    vrf.name,
    vrf.closed ? state_of("closed", false) : state_of("open", true),
    whole(vrf.ports.length),
    whole(vrf.routes),
    whole(vrf.policies),
    whole(vrf.states),
  ]);
  table("vrfs", [title("VRF"), text("State"), number("Ports"), number("Routes"), number("Policies"), number("SAs")], rows, left_out(state, "vrf", "No VRF."));
}

function show() {
  const { state } = seen.at(-1);
  const up = state.now - state.started;
  $("what").textContent = `${state.version}, running for ${span(up)}, ${several(state.workers.length, "worker", "workers")}`;
  tiles(state);
  stages(state);
  ports(state);
  drops(state);
  tunnels(state);
  caches(state);
  vrfs(state);
}

// ---------------------------------------------------------------------------- asking

class NotAllowed extends Error {}

async function ask(path, options = {}) {
  const headers = { ...options.headers };
  const token = sessionStorage.getItem(TOKEN);
  if (token !== null) headers.Authorization = `Bearer ${token}`;
  const reply = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit", redirect: "error", signal: AbortSignal.timeout(20000) });
  const body = await reply.text();
  if (reply.status === 401) throw new NotAllowed(token === null ? "" : "This is not the token.");
  if (!reply.ok) {
    let why = body.trim();
    try {
      const refusal = JSON.parse(body);
      why = refusal.hint ? `${refusal.message} (${refusal.hint})` : refusal.message;
    } catch {
      // It is text.
    }
    throw new Error(why || `The gateway answers ${reply.status}.`);
  }
  return JSON.parse(body);
}

function say(word, kind) {
  $("status").textContent = word;
  $("status").className = kind;
}

let timer = null;

function again(after) {
  clearTimeout(timer);
  timer = setTimeout(look, after);
}

async function look() {
  if (document.hidden) return again(PERIOD);
  try {
    const state = await ask("state");
    // When the gateway has measured it, by its own clock: what comes late, or is shown twice, is not
    // faster or slower for it.
    seen.push({ at: 1000 * state.measured, state, counts: counts(state) });
    if (seen.length > 1 && seen.at(-1).at <= seen.at(-2).at) seen.pop();
    if (seen.length > KEPT) seen.shift();
    $("sign-in").hidden = true;
    $("main").hidden = false;
    show();
    say("live", "live");
    again(PERIOD);
  } catch (error) {
    if (error instanceof NotAllowed) {
      sessionStorage.removeItem(TOKEN);
      $("main").hidden = true;
      $("sign-in").hidden = false;
      $("sign-in-why").textContent = error.message;
      say("a token is needed", "");
      $("token").focus();
    } else {
      say(error instanceof TypeError || error.name === "TimeoutError" ? "the gateway does not answer" : error.message, "wrong");
      again(2 * PERIOD);
    }
  }
}

$("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(TOKEN, $("token").value.trim());
  $("token").value = "";
  again(0);
});

$("explain").addEventListener("submit", async (event) => {
  event.preventDefault();
  $("explain-why").textContent = "";
  try {
    const steps = await ask("explain", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ packet: $("packet").value }),
    });
    $("steps").replaceChildren(...steps.map(({ stage, text: said }) =>
      make("li", {}, make("span", { class: "step" }, stage), make("span", { class: "text" }, said))));
  } catch (error) {
    $("steps").replaceChildren();
    $("explain-why").textContent = error.message || "The token is needed again.";
  }
});

narrow.addEventListener("change", () => seen.length > 0 && show());
document.addEventListener("visibilitychange", () => document.hidden || ($("sign-in").hidden && again(0)));
look();
