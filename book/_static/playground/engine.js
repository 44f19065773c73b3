// The engine: five tasks of two digits, one step of training at a time. It draws nothing and knows no page.
//
//   const run = Playground.start(setting);      a setting is what address.js makes of an address
//   while (!run.finished) Playground.step(run);
//   run.R                                        the accuracy matrix, in percent
(function (pg) {
  "use strict";

  const { PIXELS, PER_TASK, TASKS } = pg;
  const BATCH = 16, MOMENTUM = 0.9, MEAN = 4.9, DEVIATION = 6; // of the pixels, which go from 0 to 16
  const TRAIN = 70, TEST = 36, VALIDATION = 14; // images of each digit
  const POINTS = 24; // on the curves, a task
  const RUNAWAY = 1e4; // no weight of a run that learns comes near this

  // --- images -------------------------------------------------------------------------------------------------------

  let images = null;

  // All images, digit by digit, the training images of a digit first. -> pixels 0 ... 16 and x, normalised, [1060, 64]
  function data() {
    if (!images) {
      const pixels = pg.unpackDigits();
      images = { pixels, x: Float64Array.from(pixels, (v) => (v - MEAN) / DEVIATION) };
    }
    return images;
  }

  function gather(rows) { // [n] -> [n, 64]
    const { x } = data(), out = new Float64Array(rows.length * PIXELS);
    rows.forEach((row, b) => out.set(x.subarray(row * PIXELS, (row + 1) * PIXELS), b * PIXELS));
    return out;
  }

  // The digits in the order in which they arrive: label k belongs to digit order[k].
  function arrival({ order, seed }) {
    if (order === "seed") return pg.permutation(10, pg.generator(seed, 0, 0, "order"));
    return order === "natural" ? [0, 1, 2, 3, 4, 5, 6, 7, 8, 9] : [...order].map(Number);
  }

  // The images of a task: training, support (CM; never trained on) and test, each { rows, labels }. With split = "val", a
  // fifth of the training images takes the place of the test images: that is how the defaults were chosen.
  function makeTask(setting, order, i) {
    const task = { train: [], support: [], test: [] };
    for (let k = 0; k < PER_TASK; k++) {
      const label = PER_TASK * i + k, digit = order[label], first = digit * (TRAIN + TEST);
      let train = Array.from({ length: TRAIN }, (_, j) => first + j);
      let test = Array.from({ length: TEST }, (_, j) => first + TRAIN + j);
      if (setting.split === "val") {
        const mixed = pg.permutation(TRAIN, pg.generator(setting.seed, digit, 0, "validation"));
        test = mixed.slice(0, VALIDATION).map((j) => first + j);
        train = mixed.slice(VALIDATION).sort((a, b) => a - b).map((j) => first + j);
      }
      const size = setting.method === "cm" ? Math.ceil((setting.support - k) / PER_TASK) : 0;
      const mixed = pg.permutation(train.length, pg.generator(setting.seed, label, 0, "support")).slice(0, size);
      const put = (part, rows) => rows.forEach((row) => task[part].push({ row, label }));
      put("support", mixed.map((j) => train[j]));
      put("train", train.filter((_, j) => !mixed.includes(j)));
      put("test", test);
    }
    const split = (list) => ({ rows: list.map((one) => one.row), labels: list.map((one) => one.label) });
    return { train: split(task.train), support: split(task.support), test: split(task.test) };
  }

  // --- a run --------------------------------------------------------------------------------------------------------

  // A run at its start: the first task has begun and nothing is learned.
  function start(setting) {
    const layers = pg.layout(setting), order = arrival(setting);
    const run = {
      setting, layers, order, theta: pg.firstWeights(layers, setting.seed), task: -1, finished: false, trouble: "",
      tasks: Array.from({ length: TASKS }, (_, i) => makeTask(setting, order, i)),
      memory: [], centroids: [], kept: [], R: [], curve: [], steps: 0,
    };
    beginTask(run);
    return run;
  }

  // The next task: the past model is the network as it is now; the optimizer begins anew; CM has new support images.
  function beginTask(run) {
    run.past = run.theta.slice();
    run.velocity = new Float64Array(run.theta.length);
    run.task += 1;
    Object.assign(run, { learning: true, epoch: 0, done: 0, batches: null, loss: NaN });
    const { rows, labels } = run.tasks[run.task].support;
    run.support = { x: gather(rows), labels: labels.map((label) => label - PER_TASK * run.task) };
    record(run);
  }

  // One gradient step, or the end of a task. A task that has ended is left only by the next step.
  function step(run) {
    if (run.finished) return;
    if (!run.learning) beginTask(run);
    if (!run.batches || run.done === run.batches.length) Object.assign(run, { batches: drawEpoch(run), done: 0 });
    const batch = run.batches[run.done], before = run.theta.slice();
    const { loss, gradient } = pg.loss(run, { x: gather(batch.rows), labels: batch.labels });
    const sane = pg.sgd(run.theta, run.velocity, gradient, run.setting.lr, MOMENTUM, RUNAWAY);
    if (!sane || !(loss < Infinity)) return stopEarly(run, before);
    Object.assign(run, { loss, done: run.done + 1, steps: run.steps + 1 });
    const total = run.batches.length * run.setting.epochs, now = run.epoch * run.batches.length + run.done;
    if (run.done === run.batches.length) run.epoch += 1;
    if (now === total) endTask(run);
    else if (Math.floor((now * POINTS) / total) > Math.floor(((now - 1) * POINTS) / total)) record(run);
  }

  // The weights have run away: keep the last good ones and say so, instead of showing NaN.
  function stopEarly(run, before) {
    run.theta = before;
    Object.assign(run, { finished: true, learning: false });
    const { method, lam, strength, lr } = run.setting;
    const heavy = method === "cm" && lam >= 10 ? `lambda ${lam}` : method === "ewc" && strength >= 1e3 ? `strength ${strength}` : "";
    run.trouble = `Training blew up in task ${run.task + 1}, at step ${run.done + 1} of epoch ${run.epoch + 1}: the steps are too large ` +
      `(learning rate ${lr}${heavy ? `, ${heavy}` : ""}). The run stops here; make ${heavy ? "one of them" : "it"} smaller.`;
  }

  function endTask(run) {
    const { train } = run.tasks[run.task], { method, scenario } = run.setting;
    if (method === "cm") run.centroids = centroidsNow(run);
    if (method === "er" || (method === "cm" && scenario === "cil")) run.memory = addToMemory(run, train);
    if (method === "ewc") {
      const weights = run.theta.slice(), x = gather(train.rows);
      run.kept = [...run.kept, { theta: weights, importance: pg.importance(run, { x, labels: train.labels }) }];
    }
    Object.assign(run, { learning: false, batches: null, epoch: run.setting.epochs });
    record(run);
    run.R.push(run.curve[run.curve.length - 1].accuracy);
    if (run.task === TASKS - 1) run.finished = true;
  }

  // How far the run is: 0 at the start, 1.5 halfway through task 2, 5 at the end.
  function progress(run) {
    if (!run.learning && !run.trouble) return run.task + 1;
    if (!run.batches) return run.task + run.epoch / run.setting.epochs;
    const inEpoch = run.done === run.batches.length ? 0 : run.done / run.batches.length;
    return run.task + Math.min(1, (run.epoch + inEpoch) / run.setting.epochs);
  }

  // A copy that can go on by itself.
  const copy = (run) => ({ ...run, theta: run.theta.slice(), velocity: run.velocity.slice(), R: [...run.R], curve: [...run.curve] });

  // --- the stream of batches ----------------------------------------------------------------------------------------

  // The batches of one epoch. Every image of the current task comes once; the other parts of a batch go round and round.
  function drawEpoch(run) {
    const parts = makeParts(run), { rows, size } = parts[0], steps = Math.ceil(rows.length / size);
    const orders = parts.map((part, rank) => {
      const draw = pg.generator(run.setting.seed, run.task, run.epoch, `shuffle ${rank}`);
      const length = rank === 0 ? rows.length : steps * part.size, order = [];
      while (order.length < length) order.push(...pg.permutation(part.rows.length, draw));
      return order.slice(0, length);
    });
    return Array.from({ length: steps }, (_, s) => {
      const batch = { rows: [], labels: [] };
      parts.forEach((part, rank) => orders[rank].slice(s * part.size, (s + 1) * part.size).forEach((j) => {
        batch.rows.push(part.rows[j]);
        batch.labels.push(part.labels[j]);
      }));
      return batch;
    });
  }

  // What a batch of 16 is made of. Naive, EWC and CM in TIL: the current task. Cumulative: all tasks so far, mixed. ER in CIL:
  // half current, half memory. ER in TIL and CM in CIL: in equal shares the current task and each past task's exemplars.
  function makeParts(run) {
    const { method, scenario } = run.setting, { train } = run.tasks[run.task];
    if (method === "cumulative") {
      const seen = run.tasks.slice(0, run.task + 1).map((task) => task.train);
      return [{ rows: seen.flatMap((one) => one.rows), labels: seen.flatMap((one) => one.labels), size: BATCH }];
    }
    if (!run.memory.length) return [{ ...train, size: BATCH }];
    const split = (list) => ({ rows: list.map((one) => one.row), labels: list.map((one) => one.label) });
    if (method === "er" && scenario === "cil") return [{ ...train, size: BATCH / 2 }, { ...split(run.memory), size: BATCH / 2 }];
    const share = Math.floor(BATCH / (run.task + 1)), rest = BATCH % (run.task + 1);
    const past = Array.from({ length: run.task }, (_, i) => split(run.memory.filter((one) => pg.taskOf(one.label) === i)));
    return [train, ...past].map((part, rank) => ({ ...part, size: share + (rank < rest ? 1 : 0) }));
  }

  // The exemplar memory has a fixed size, shared evenly by the classes seen; old classes make room by dropping their last ones.
  function addToMemory(run, train) {
    const draw = pg.generator(run.setting.seed, run.task, 0, "exemplars"), classes = PER_TASK * (run.task + 1);
    const mixed = pg.permutation(train.rows.length, draw).map((j) => ({ row: train.rows[j], label: train.labels[j] }));
    const share = Math.floor(run.setting.memory / classes), rest = run.setting.memory % classes;
    return Array.from({ length: classes }, (_, label) =>
      [...run.memory, ...mixed].filter((one) => one.label === label).slice(0, share + (label < rest ? 1 : 0))).flat();
  }

  // --- what the network says ----------------------------------------------------------------------------------------

  // Centroids of the tasks so far, each in its own space; the current ones from the support images as the network sees them now.
  function centroidsNow(run) {
    if (run.setting.method !== "cm" || run.centroids.length > run.task) return run.centroids;
    const { theta, layers, task, support } = run, n = support.labels.length;
    const e = pg.linear(theta, layers.head[task], pg.features(theta, layers, support.x, n), n);
    return [...run.centroids.slice(0, task), pg.centroids(e, support.labels).c];
  }

  // Where images lie in a plane: TIL, the plane of task i (others than CM: two scores); CIL, the one plane. x [n, 64] -> [n, 2]
  function places(run, i, x, n) {
    const { theta, layers, setting, task } = run, h = pg.features(theta, layers, x, n);
    if (setting.scenario === "til") return pg.linear(theta, layers.head[i], h, n);
    if (setting.method !== "cm" || task === 0) return pg.linear(theta, layers.head[0], h, n);
    return pg.merge(run, pg.embedAll(theta, layers, h, n, task + 1)).m;
  }

  // The classes that compete in a plane, each with an affine score a e + b; the highest wins. A centroid c has 2 c e - |c|^2,
  // which is highest where the distance is smallest (chapter 3), so its region is its Voronoi cell. Scores in TIL: the higher
  // of the two coordinates; in CIL: the outputs.
  function rivals(run, i) {
    const { theta, layers, setting, task } = run, first = setting.scenario === "til" ? PER_TASK * i : 0;
    if (setting.method === "cm") {
      const all = centroidsNow(run), own = setting.scenario === "til" ? all[i] : task === 0 ? all[0] : pg.anchors(run, all).c;
      return Array.from({ length: own.length / 2 }, (_, k) => {
        const x = own[2 * k], y = own[2 * k + 1];
        return { label: first + k, at: [x, y], a: [2 * x, 2 * y], b: -(x * x + y * y) };
      });
    }
    if (setting.scenario === "til") return [{ label: first, a: [1, 0], b: 0 }, { label: first + 1, a: [0, 1], b: 0 }];
    return layers.output.slice(0, task + 1).flatMap((layer, j) => [0, 1].map((k) => ({
      label: PER_TASK * j + k, a: [theta[layer.at + 2 * k], theta[layer.at + 2 * k + 1]], b: theta[layer.bias + k],
    })));
  }

  // Scores z of places: CM, minus the distances to the centroids (eqs 2 and 7); others, the outputs. [n, 2] -> n rows
  function scores(run, i, e) {
    const all = rivals(run, i);
    return Array.from({ length: e.length / 2 }, (_, r) => all.map(({ at, a, b }) =>
      at ? -pg.distance(e[2 * r], e[2 * r + 1], at[0], at[1]).d : a[0] * e[2 * r] + a[1] * e[2 * r + 1] + b));
  }

  // The answers to the test images of a task: eqs 6 and 10, the class with the highest score. Also the mean loss.
  function answers(run, i) {
    const { rows, labels } = run.tasks[i].test, e = places(run, i, gather(rows), rows.length);
    const first = run.setting.scenario === "til" ? PER_TASK * i : 0, slope = [];
    let loss = 0, right = 0;
    const given = scores(run, i, e).map((z, r) => {
      loss += pg.crossEntropy(z, labels[r] - first, slope, 1 / labels.length);
      const answer = first + z.indexOf(Math.max(...z));
      right += answer === labels[r] ? 1 : 0;
      return answer;
    });
    return { rows, labels, places: e, given, loss, accuracy: (100 * right) / labels.length };
  }

  function record(run) {
    const all = run.tasks.slice(0, run.task + 1).map((_, i) => answers(run, i));
    run.curve.push({ at: progress(run), accuracy: all.map((one) => one.accuracy), loss: all.map((one) => one.loss) });
  }

  // --- numbers about a run ------------------------------------------------------------------------------------------

  const mean = (list) => list.reduce((sum, v) => sum + v, 0) / list.length;

  // Accuracy: mean of the last row. Final BWT: mean change of the old tasks, from right after each to the end (chapter 1).
  function summary(R) {
    const last = R[R.length - 1];
    if (!last) return null;
    const lost = last.slice(0, -1).map((v, j) => v - R[j][j]);
    return { accuracy: mean(last), bwt: lost.length ? mean(lost) : 0, learning: mean(R.map((row, i) => row[i])) };
  }

  // What a method keeps between tasks, beside the network: numbers take 8 bytes here, a pixel or a label 1.
  function keeps(run) {
    const { method, scenario, projectors } = run.setting, seen = run.learning || run.trouble ? run.task : run.task + 1, items = [];
    const add = (what, count, each) => { if (count) items.push({ what, count, bytes: count * each }); };
    if (method === "cumulative") {
      add("training images", run.tasks.slice(0, seen).reduce((sum, task) => sum + task.train.rows.length, 0), PIXELS + 1);
    }
    add("exemplars", run.memory.length, PIXELS + 1);
    add("centroids", method === "cm" ? PER_TASK * seen : 0, 16);
    add("projectors", method === "cm" && scenario === "cil" && projectors && seen > 1 ? seen : 0, 12 * 8);
    add("copies of weights and importances", run.kept.length, 2 * 8 * run.theta.length);
    return { items, bytes: items.reduce((sum, item) => sum + item.bytes, 0), network: 8 * run.theta.length };
  }

  Object.assign(pg, { BATCH, MOMENTUM, data, gather, arrival, makeTask, start, step, progress, copy, drawEpoch, addToMemory });
  Object.assign(pg, { centroidsNow, places, rivals, scores, answers, summary, keeps });
})(globalThis.Playground = globalThis.Playground || {});
