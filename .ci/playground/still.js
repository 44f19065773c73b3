// The picture for those without scripts: two runs at their end, drawn by the page's own engine and pen.
//   node .ci/playground/still.js > book/_static/playground/still.svg
const pg = require("./engine.js");

const SIZE = 340, INKS = { ink: "", edge: "", halo: "", faint: "" };
const SHOWN = ["#method=naive&scenario=cil", "#method=cm&scenario=cil"];

pg.still = () => {
  const parts = SHOWN.map((hash) => {
    const { setting } = pg.parse(hash), { run } = pg.whole(setting), out = [];
    const what = pg.scene(run, 0, null), half = { ...what, points: what.points.filter((_, k) => k % 3 === 0) }, row = run.R[run.R.length - 1].map((v) => Math.round(v)), sums = pg.summary(run.R);
    pg.drawPlane(pg.svgPen(out), half, pg.view(what), SIZE, INKS);
    const title = `${pg.TITLES[setting.method]}, CIL`;
    const text = `${title}, after five tasks: ${row.join(", ")} % right on tasks 1 to 5; Accuracy ${sums.accuracy.toFixed(1)} %.`;
    return `<figure><svg viewBox="0 0 ${SIZE} ${SIZE}" role="img" aria-label="The plane of ${title}, with the test images of ten digits in their cells.">${out.join("")}</svg><figcaption>${text}</figcaption></figure>`;
  });
  return `<div class="pg pg-still">\n<div>${parts.join("\n")}</div>\n` +
    "<p>A point is a test image (every third one is drawn), its colour the digit; a ring says that it lies in the cell of another digit. With scripts on, this page trains both, and others, before your eyes.</p>\n</div>\n";
};

if (require.main === module) process.stdout.write(pg.still());
