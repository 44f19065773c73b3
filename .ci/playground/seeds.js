// Every method in both scenarios at its default settings over twenty seeds: Accuracy and final BWT of each run, in percent.
//   node .ci/playground/seeds.js > book/_static/playground/seeds.json
// With addresses as arguments: print the spread of these instead.
const pg = require("./engine.js");

const SEEDS = Array.from({ length: 20 }, (_, k) => k);
const NAMES = ["til", "cil"].flatMap((scenario) => ["naive", "cumulative", "er", "ewc", "cm"].map((method) => `method=${method}&scenario=${scenario}`));
const asked = process.argv.slice(2), round = (v) => Math.round(v * 1e6) / 1e6;

function measure(hash) {
  const runs = SEEDS.map((seed) => pg.whole(pg.parse(`${hash}&seed=${seed}`).setting));
  return { accuracy: runs.map((one) => round(one.accuracy)), bwt: runs.map((one) => round(one.bwt)), R: runs.map(({ run }) => run.R) };
}

for (const hash of asked) {
  const { accuracy, bwt, R } = measure(hash), lost = R.map((rows) => rows[0][0] - rows[rows.length - 1][0]).sort((a, b) => a - b);
  console.log(hash, pg.spread(accuracy), pg.spread(bwt), "task 1 loses", lost[0].toFixed(0), "to", lost[19].toFixed(0), "accuracy from", Math.min(...accuracy), "to", Math.max(...accuracy),
    "task 5", Math.min(...R.map((rows) => rows[4][4])).toFixed(0), "last row of seed 0", R[0][4].map(Math.round).join(" "), "kept share of task 1, least", Math.min(...R.map((r) => r[4][0] / r[0][0])).toFixed(2));
}
if (!asked.length) {
  const names = [...NAMES, "method=cm&scenario=cil&projectors=with", "method=cm&scenario=cil&projectors=without"].filter((hash) => hash !== "method=cm&scenario=cil");
  const found = Object.fromEntries(names.map((hash) => [hash, measure(hash)]));
  const lines = Object.entries(found).map(([hash, { accuracy, bwt }]) => ` "${hash}": {"accuracy": ${JSON.stringify(accuracy)}, "bwt": ${JSON.stringify(bwt)}}`);
  console.log(`{\n${lines.join(",\n")}\n}`);
}
