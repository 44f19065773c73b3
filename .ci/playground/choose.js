// Choose each method's settings on validation images, by the same search for all: one knob after the other, the best mean
// Accuracy over three seeds, until a whole round changes nothing (two rounds at most). Seeds are not those of the table.
//   node .ci/playground/choose.js [cm-til ...] > /tmp/chosen.js      (half an hour of one core; names: only these anew)
const pg = require("./engine.js");

const SEEDS = [1000, 1001, 1002];
const RATES = [0.005, 0.01, 0.02, 0.05, 0.1];
const KNOBS = {
  naive: { lr: RATES }, cumulative: { lr: RATES }, er: { lr: RATES },
  ewc: { lr: RATES, strength: [1, 10, 30, 100, 300, 1000] },
  cm: { lr: RATES, lam: [0.03, 0.1, 0.3, 1, 3], support: [10, 20, 40] },
};
const START = { lr: 0.05, lam: 0.3, strength: 30, support: 20 };
const EPOCHS = 10; // of every method, so that a run is short enough to watch

function score(setting) {
  const found = SEEDS.map((seed) => pg.whole({ ...setting, seed, split: "val" }).accuracy ?? 0);
  return pg.spread(found).mean;
}

function search(name, scenario) {
  const method = name.replace("-without", ""), knobs = KNOBS[method], seen = new Map();
  const base = { ...pg.defaults(method, scenario, name === "cm"), ...START, epochs: EPOCHS, projectors: name === "cm" };
  const rate = (values) => {
    const key = JSON.stringify(values);
    if (!seen.has(key)) {
      seen.set(key, score({ ...base, ...values }));
      process.stderr.write(`${name} ${scenario} ${key} ${seen.get(key).toFixed(2)}\n`);
    }
    return seen.get(key);
  };
  let best = Object.fromEntries(Object.keys(knobs).map((knob) => [knob, START[knob]]));
  for (let round = 0; round < 2; round++) {
    const before = JSON.stringify(best);
    for (const [knob, values] of Object.entries(knobs)) {
      for (const value of values) if (rate({ ...best, [knob]: value }) > rate(best)) best = { ...best, [knob]: value };
    }
    if (JSON.stringify(best) === before) break;
  }
  return { ...best, epochs: EPOCHS, validation: Math.round(100 * rate(best)) / 100 };
}

const asked = process.argv.slice(2), chosen = {};
for (const scenario of ["til", "cil"]) {
  for (const name of ["naive", "cumulative", "er", "ewc", "cm", ...(scenario === "cil" ? ["cm-without"] : [])]) {
    if (asked.length && !asked.includes(`${name}-${scenario}`)) chosen[`${name}-${scenario}`] = pg.CHOSEN[`${name}-${scenario}`];
    else chosen[`${name}-${scenario}`] = search(name, scenario);
  }
}
const rows = Object.entries(chosen).map(([name, values]) => `    "${name}": ${JSON.stringify(values).replace(/([:,])"/g, '$1 "').replace(/":/g, '": ')},`);
console.log(`// Each method's settings, chosen on validation images by .ci/playground/choose.js; the mean Accuracy there, in percent.
(function (pg) {
  "use strict";

  pg.CHOSEN = {
${rows.join("\n")}
  };
})(globalThis.Playground = globalThis.Playground || {});`);
