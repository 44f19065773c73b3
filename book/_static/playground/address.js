// The address: #method=cm&scenario=cil&lam=0.1. What it leaves out is at its default, and what cannot be is put right with a
// remark, so every address gives a run.
(function (pg) {
  "use strict";

  const METHODS = ["naive", "cumulative", "er", "ewc", "cm"];
  const TITLES = { naive: "Naive", cumulative: "Cumulative", er: "ER", ewc: "EWC", cm: "CM" };
  const RANGES = { // the least and the most, and whether it is a whole number
    lr: [0.0001, 10], lam: [0, 1e6], strength: [0, 1e9], support: [2, 100, true], memory: [10, 700, true],
    epochs: [1, 100, true], seed: [0, 99999, true],
  };
  const WORDS = {
    lr: "learning rate", lam: "lambda", strength: "strength", support: "support size", memory: "memory", epochs: "epochs",
    seed: "seed", method: "method", scenario: "scenario", projectors: "projectors", order: "order", compare: "compare", at: "at",
  };
  const USED = { // by a method, in a scenario
    lam: (s) => s.method === "cm", support: (s) => s.method === "cm", strength: (s) => s.method === "ewc",
    memory: (s) => s.method === "er" || (s.method === "cm" && s.scenario === "cil"),
    projectors: (s) => s.method === "cm" && s.scenario === "cil",
  };
  const COMMON = { scenario: "cil", method: "naive", order: "natural", seed: 0, memory: 50, projectors: true, compare: false, at: 0 };

  // The defaults of a method in a scenario, chosen on validation images (chosen.js).
  function defaults(method, scenario, projectors) {
    const name = `${method}${method === "cm" && scenario === "cil" && projectors === false ? "-without" : ""}-${scenario}`;
    return { lr: 0.05, lam: 0.1, strength: 100, support: 20, epochs: 20, ...COMMON, ...pg.CHOSEN[name], method, scenario };
  }

  function distance(a, b) { // how many letters differ (Levenshtein)
    let row = Array.from({ length: b.length + 1 }, (_, j) => j);
    for (let i = 1; i <= a.length; i++) {
      const next = [i];
      for (let j = 1; j <= b.length; j++) next.push(Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] === b[j - 1] ? 0 : 1)));
      row = next;
    }
    return row[b.length];
  }

  function nearest(word, allowed) {
    const best = [...allowed].sort((a, b) => distance(word, a) - distance(word, b))[0];
    return distance(word, best) <= Math.max(1, word.length / 2) ? ` Did you mean ${best}?` : "";
  }

  const short = (text) => (text.length > 24 ? `${text.slice(0, 24)}…` : text);

  // An address as { setting, remarks }. It never throws.
  function parse(hash) {
    const remarks = [], given = new Map();
    for (const part of String(hash).replace(/^#/, "").slice(0, 2000).split("&")) {
      const cut = part.indexOf("="), key = cut < 0 ? part : part.slice(0, cut);
      if (!part) continue;
      if (!(key in WORDS) || cut < 0) remarks.push(`${short(part)} is no setting.${nearest(key.slice(0, 24), Object.keys(WORDS))}`);
      else given.set(key, decode(part.slice(cut + 1)));
    }
    const choose = (key, allowed, otherwise) => {
      if (!given.has(key) || allowed.includes(given.get(key))) return given.get(key) ?? otherwise;
      remarks.push(`${key}=${short(given.get(key))} is not possible (${allowed.join(", ")}); ${otherwise} is used.${nearest(short(given.get(key)), allowed)}`);
      return otherwise;
    };
    const method = choose("method", METHODS, COMMON.method), scenario = choose("scenario", ["til", "cil"], COMMON.scenario);
    const projectors = choose("projectors", ["with", "without"], "with") === "with";
    const setting = { ...defaults(method, scenario, projectors), projectors };
    setting.compare = choose("compare", ["naive", "no"], "no") === "naive";
    setting.at = Number(choose("at", ["0", "1", "2", "3", "4", "5"], "0"));
    for (const key of Object.keys(RANGES)) if (given.has(key)) setting[key] = within(key, given.get(key), setting[key], remarks);
    if (given.has("order")) setting.order = orderOf(given.get("order"), remarks);
    return { setting, remarks };
  }

  function decode(text) {
    try { return decodeURIComponent(text); } catch (_) { return text; }
  }

  // A number put right: within its range, and whole where it has to be.
  function within(key, text, otherwise, remarks) {
    const [low, high, whole] = RANGES[key], value = /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(String(text).trim()) ? Number(text) : NaN;
    if (!(Math.abs(value) < Infinity)) {
      remarks.push(`${WORDS[key]} ${short(String(text)) || "(nothing)"} is no number; ${otherwise} is used.`);
      return otherwise;
    }
    const right = Math.min(high, Math.max(low, whole ? Math.round(value) : value));
    if (right !== value) remarks.push(`${WORDS[key]} ${value} is not possible: ${REASONS[key] ?? `from ${low} to ${high}`}; ${right} is used.`);
    return right === 0 ? 0 : right; // no minus zero
  }

  const REASONS = {
    memory: "one image for each of the ten digits at least, all 700 at most", support: "one image for each of the two digits of a task at least, 100 at most",
    seed: "a whole number from 0 to 99999",
  };

  function orderOf(text, remarks) {
    if (text === "natural" || text === "seed" || [...text].sort().join("") === "0123456789") return text;
    remarks.push(`order ${short(text) || "(nothing)"} is not possible: natural, seed, or the ten digits, each once; natural is used.`);
    return "natural";
  }

  // A setting as an address, without what is at its default or of no use to the method.
  function format(setting) {
    const usual = defaults(setting.method, setting.scenario, setting.projectors), parts = [`method=${setting.method}`, `scenario=${setting.scenario}`];
    if (USED.projectors(setting) && !setting.projectors) parts.push("projectors=without");
    for (const key of ["lam", "strength", "support", "memory", "lr", "epochs", "order", "seed"]) {
      if ((USED[key] ? USED[key](setting) : true) && setting[key] !== usual[key]) parts.push(`${key}=${setting[key]}`);
    }
    if (setting.compare) parts.push("compare=naive");
    if (setting.at) parts.push(`at=${setting.at}`);
    return `#${parts.join("&")}`;
  }

  // What is worth a warning before a run, though it can be done.
  function warnings(setting) {
    const found = [];
    if (setting.lr >= 1) found.push(`A learning rate of ${setting.lr} is far too large for this network: expect it to learn nothing, or to blow up.`);
    if (USED.lam(setting) && setting.lam * setting.lr >= 5) found.push(`With lambda ${setting.lam} the penalty's steps are larger than the network: expect training to blow up after task 1.`);
    if (USED.strength(setting) && setting.strength >= 1e6) found.push(`A strength of ${setting.strength} makes the penalty's steps very large: expect training to blow up after task 1.`);
    if (USED.support(setting) && setting.support < 6) found.push(`${setting.support} support images for two digits: a centroid is the mean of ${setting.support < 4 ? "one image" : "two images"}, so it trembles.`);
    if (USED.memory(setting) && setting.memory < 20) found.push(`A memory of ${setting.memory} holds about one image of each digit at the end.`);
    return found;
  }

  // The run beside it: the same setting by Naive. Learning rate and epochs are taken over where they were changed.
  function naiveBeside(setting) {
    const usual = defaults(setting.method, setting.scenario, setting.projectors), naive = { ...setting, ...defaults("naive", setting.scenario) };
    for (const key of ["order", "seed", "at"]) naive[key] = setting[key];
    for (const key of ["lr", "epochs"]) if (setting[key] !== usual[key]) naive[key] = setting[key];
    return naive;
  }

  Object.assign(pg, { METHODS, TITLES, RANGES, WORDS, USED, defaults, parse, format, within, orderOf, warnings, naiveBeside });
})(globalThis.Playground = globalThis.Playground || {});
