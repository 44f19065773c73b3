// The methods: losses with their gradients, written out. Equation numbers are those of the book (chapters 3, 4, 5 and 7).
//
// A loss takes a run and a batch and returns { loss, gradient }. A run has: setting, layers, theta (all weights), task (the
// current one, from 0), past (theta as it was before the task), support { x, labels }, centroids (of past tasks, [2, 2] each),
// kept (EWC: weights and importances of past tasks). A batch has x [n, 64] and labels [n], which count over all classes seen:
// task i owns the labels 2 i and 2 i + 1.
(function (pg) {
  "use strict";

  const { PLANE, PER_TASK } = pg;
  const taskOf = (label) => Math.floor(label / PER_TASK);

  // --- the pieces ---------------------------------------------------------------------------------------------------

  // Minus the log of the softmax at the true class: -log p_y, with dL/dz_k = p_k - [k = y] (chapter 1). z [K]
  function crossEntropy(z, y, slope, weight) {
    let top = z[0], total = 0;
    for (let k = 1; k < z.length; k++) if (z[k] > top) top = z[k];
    for (let k = 0; k < z.length; k++) total += slope[k] = pg.exp(z[k] - top);
    for (let k = 0; k < z.length; k++) slope[k] = weight * (slope[k] / total - (k === y ? 1 : 0));
    return weight * (pg.log(total) - (z[y] - top));
  }

  // The distance d(e, c), Euclidean and not squared (before eq. 2), and its slope by e, which is 0 where e = c. e [2], c [2]
  function distance(ex, ey, cx, cy) {
    const x = ex - cx, y = ey - cy, d = Math.sqrt(x * x + y * y);
    return d > 0 ? { d, x: x / d, y: y / d } : { d: 0, x: 0, y: 0 };
  }

  // Eq. 1: the centroid of a class is the mean embedding of its support images. e [S, 2], labels 0 or 1 -> [2, 2]
  function centroids(e, labels) {
    const c = new Float64Array(PER_TASK * PLANE), count = [0, 0];
    labels.forEach((k, s) => { count[k]++; c[2 * k] += e[2 * s]; c[2 * k + 1] += e[2 * s + 1]; });
    for (let k = 0; k < PER_TASK; k++) { c[2 * k] /= count[k]; c[2 * k + 1] /= count[k]; }
    return { c, count };
  }

  // Eqs 2 and 3: the softmax over minus the distances to all centroids, and minus its log at the true class, averaged over the
  // batch. Adds to de [n, 2] and dc [K, 2]. e [n, 2], c [K, 2]
  function centroidLoss(e, c, labels, first, de, dc) {
    const n = labels.length, K = c.length / 2, z = new Float64Array(K), slope = new Float64Array(K);
    let loss = 0;
    const apart = [];
    for (let b = 0; b < n; b++) {
      for (let k = 0; k < K; k++) {
        apart[k] = distance(e[2 * b], e[2 * b + 1], c[2 * k], c[2 * k + 1]);
        z[k] = -apart[k].d;
      }
      loss += crossEntropy(z, labels[b] - first, slope, 1 / n);
      for (let k = 0; k < K; k++) { // dz = -dd
        const gx = -slope[k] * apart[k].x, gy = -slope[k] * apart[k].y;
        de[2 * b] += gx; de[2 * b + 1] += gy;
        dc[2 * k] -= gx; dc[2 * k + 1] -= gy;
      }
    }
    return loss;
  }

  // Eq. 4: the drift, how far the past tasks' embeddings of this batch have moved: the mean over past tasks and images of
  // d(e_i before, e_i now). Adds weight times its slope to de, one [n, 2] a past task.
  function drift(before, now, n, weight, de) {
    const share = 1 / (before.length * n);
    let total = 0;
    before.forEach((old, i) => {
      for (let b = 0; b < n; b++) {
        const moved = distance(now[i][2 * b], now[i][2 * b + 1], old[2 * b], old[2 * b + 1]);
        total += share * moved.d;
        de[i][2 * b] += weight * share * moved.x;
        de[i][2 * b + 1] += weight * share * moved.y;
      }
    });
    return total;
  }

  // Embeddings e_i(x) = f_i(psi(x)) of the first heads. h [n, 32] -> one [n, 2] a head
  const embedAll = (theta, layers, h, n, heads) =>
    Array.from({ length: heads }, (_, i) => pg.linear(theta, layers.head[i], h, n));

  // Eq. 8: the projector pi(e) = e * sigmoid(a(e)) + b(e), where a and b are a ReLU and one linear layer each. Without
  // projectors pi(e) = e. e [n, 2]; `back` takes dL/dpi, adds to the gradient and returns dL/de.
  function project(run, i, e) {
    const { theta, layers } = run, n = e.length / 2;
    if (!run.setting.projectors) return { q: e, back: (dq) => dq };
    const r = pg.relu(e), a = pg.linear(theta, layers.scale[i], r, n).map(pg.sigmoid);
    const b = pg.linear(theta, layers.shift[i], r, n);
    const back = (dq, gradient) => {
      const dr = new Float64Array(2 * n);
      pg.linearBack(theta, layers.scale[i], r, n, dq.map((v, k) => v * e[k] * a[k] * (1 - a[k])), gradient, dr);
      pg.linearBack(theta, layers.shift[i], r, n, dq, gradient, dr);
      const passed = pg.reluBack(r, dr);
      return dq.map((v, k) => v * a[k] + passed[k]);
    };
    return { q: e.map((v, k) => v * a[k] + b[k]), back };
  }

  // The merged embedding m(x) = 1/t sum_j pi_j(e_j(x)), inside eq. 7.
  function merge(run, embeddings) {
    const projected = embeddings.map((e, j) => project(run, j, e)), share = 1 / embeddings.length;
    const m = new Float64Array(embeddings[0].length);
    for (const { q } of projected) q.forEach((v, k) => { m[k] += share * v; });
    const back = (dm, gradient) => projected.map((one) => one.back(dm.map((v) => v * share), gradient));
    return { m, back };
  }

  // The anchors of eq. 7: the centroids of each task through its own projector. t times [2, 2] -> [2 t, 2]
  function anchors(run, all) {
    const projected = all.map((c, j) => project(run, j, c)), c = new Float64Array(4 * all.length);
    projected.forEach(({ q }, j) => c.set(q, 4 * j));
    const back = (dc, gradient) => projected.map((one, j) => one.back(dc.slice(4 * j, 4 * j + 4), gradient));
    return { c, back };
  }

  // --- the losses ---------------------------------------------------------------------------------------------------

  // Naive, Cumulative, ER and EWC: softmax and cross-entropy. TIL: each image over the two classes of its own task; CIL: over
  // all classes seen. The mean over the batch.
  function plainLoss(run, { x, labels }) {
    const { theta, layers } = run, n = labels.length, gradient = new Float64Array(theta.length);
    const h = pg.features(theta, layers, x, n), dh = new Float64Array(h.length);
    const loss = run.setting.scenario === "til" ? tilScores(run, h, labels, dh, gradient) : cilScores(run, h, labels, dh, gradient);
    pg.featuresBack(theta, layers, x, n, h, dh, gradient);
    return { loss, gradient };
  }

  function tilScores({ theta, layers }, h, labels, dh, gradient) {
    const n = labels.length, slope = new Float64Array(PER_TASK);
    let loss = 0;
    for (let b = 0; b < n; b++) {
      const i = taskOf(labels[b]), one = h.subarray(b * pg.HIDDEN, (b + 1) * pg.HIDDEN);
      loss += crossEntropy(pg.linear(theta, layers.head[i], one, 1), labels[b] - PER_TASK * i, slope, 1 / n);
      pg.linearBack(theta, layers.head[i], one, 1, slope, gradient, dh.subarray(b * pg.HIDDEN, (b + 1) * pg.HIDDEN));
    }
    return loss;
  }

  function cilScores({ theta, layers, task }, h, labels, dh, gradient) {
    const n = labels.length, e = pg.linear(theta, layers.head[0], h, n), de = new Float64Array(e.length);
    const z = new Float64Array(PER_TASK * (task + 1)), slope = new Float64Array(z.length);
    let loss = 0;
    for (let b = 0; b < n; b++) {
      const one = e.subarray(2 * b, 2 * b + 2), back = de.subarray(2 * b, 2 * b + 2);
      for (let i = 0; i <= task; i++) z.set(pg.linear(theta, layers.output[i], one, 1), PER_TASK * i);
      loss += crossEntropy(z, labels[b], slope, 1 / n);
      for (let i = 0; i <= task; i++) {
        pg.linearBack(theta, layers.output[i], one, 1, slope.subarray(PER_TASK * i, PER_TASK * i + 2), gradient, back);
      }
    }
    pg.linearBack(theta, layers.head[0], h, n, de, gradient, dh);
    return loss;
  }

  // EWC: cross-entropy, and for each past task i the squared distance of each weight from where it was, by its importance:
  // + strength * sum_i sum_p F_i,p (theta_p - theta_i,p)^2 (chapter 7).
  function ewcLoss(run, batch) {
    const result = plainLoss(run, batch), strength = run.setting.strength;
    for (const { theta, importance } of run.kept) {
      for (let p = 0; p < theta.length; p++) {
        const moved = run.theta[p] - theta[p];
        result.loss += strength * importance[p] * moved * moved;
        result.gradient[p] += 2 * strength * importance[p] * moved;
      }
    }
    return result;
  }

  // EWC's importance of each weight: the diagonal of the Fisher information, the mean over images of the squared gradient of
  // the loss of one image. x [n, 64]
  function importance(run, { x, labels }) {
    const sum = new Float64Array(run.theta.length);
    labels.forEach((label, b) => {
      const { gradient } = plainLoss(run, { x: x.subarray(b * pg.PIXELS, (b + 1) * pg.PIXELS), labels: [label] });
      gradient.forEach((g, p) => { sum[p] += (g * g) / labels.length; });
    });
    return sum;
  }

  // CM: the centroid loss (eq. 3) in the first task; then L = loss + lambda * drift, eq. 5 in TIL and eq. 9 in CIL.
  function cmLoss(run, { x, labels }) {
    const { theta, layers, task, support, setting } = run, n = labels.length, S = support.labels.length;
    const gradient = new Float64Array(theta.length);
    const h = pg.features(theta, layers, x, n), dh = new Float64Array(h.length);
    const hs = pg.features(theta, layers, support.x, S), dhs = new Float64Array(hs.length);
    const first = setting.scenario === "til" ? task : 0; // TIL needs the current head for the loss, all others for the drift
    const e = embedAll(theta, layers, h, n, task + 1), de = e.map((one) => new Float64Array(one.length));
    const es = pg.linear(theta, layers.head[task], hs, S), des = new Float64Array(es.length);

    const own = centroids(es, support.labels), dc = new Float64Array(own.c.length);
    let loss = first === task ? centroidLoss(e[task], own.c, labels, PER_TASK * task, de[task], dc)
      : mergedLoss(run, e, [...run.centroids.slice(0, task), own.c], labels, de, dc, gradient);
    if (task > 0) {
      const before = embedAll(run.past, layers, pg.features(run.past, layers, x, n), n, task);
      loss += setting.lam * drift(before, e.slice(0, task), n, setting.lam, de);
    }
    support.labels.forEach((k, s) => { // eq. 1 backward: each support image has its share of its centroid
      des[2 * s] = dc[2 * k] / own.count[k];
      des[2 * s + 1] = dc[2 * k + 1] / own.count[k];
    });
    de.forEach((one, i) => pg.linearBack(theta, layers.head[i], h, n, one, gradient, dh));
    pg.linearBack(theta, layers.head[task], hs, S, des, gradient, dhs);
    pg.featuresBack(theta, layers, x, n, h, dh, gradient);
    pg.featuresBack(theta, layers, support.x, S, hs, dhs, gradient);
    return { loss, gradient };
  }

  // Eq. 9's first part: minus the log of eq. 7 at the true class. Only the current task's centroids pass gradient on.
  function mergedLoss(run, e, all, labels, de, dc, gradient) {
    const merged = merge(run, e), anchor = anchors(run, all);
    const dm = new Float64Array(merged.m.length), da = new Float64Array(anchor.c.length);
    const loss = centroidLoss(merged.m, anchor.c, labels, 0, dm, da);
    merged.back(dm, gradient).forEach((one, i) => one.forEach((v, k) => { de[i][k] += v; }));
    anchor.back(da, gradient)[run.task].forEach((v, k) => { dc[k] += v; });
    return loss;
  }

  const LOSSES = { naive: plainLoss, cumulative: plainLoss, er: plainLoss, ewc: ewcLoss, cm: cmLoss };
  const loss = (run, batch) => LOSSES[run.setting.method](run, batch);

  Object.assign(pg, { taskOf, crossEntropy, distance, centroids, centroidLoss, drift, embedAll, project, merge, anchors });
  Object.assign(pg, { plainLoss, ewcLoss, cmLoss, importance, loss });
})(globalThis.Playground = globalThis.Playground || {});
