// The playground's engine in Node, as the page has it.
const path = require("path");

const folder = path.join(__dirname, "..", "..", "book", "_static", "playground");
for (const name of ["numbers", "digits", "network", "methods", "engine", "chosen", "address", "picture"]) {
  require(path.join(folder, `${name}.js`));
}
const pg = globalThis.Playground;

// A whole run. -> { accuracy, bwt, learning }, all null when it blew up
pg.whole = (setting) => {
  const run = pg.start(setting);
  while (!run.finished) pg.step(run);
  return { run, ...(run.trouble ? { accuracy: null, bwt: null, learning: null } : pg.summary(run.R)) };
};

pg.spread = (values) => {
  const mean = values.reduce((sum, v) => sum + v, 0) / values.length;
  return { mean, sd: Math.sqrt(values.reduce((sum, v) => sum + (v - mean) ** 2, 0) / values.length) };
};

module.exports = pg;
