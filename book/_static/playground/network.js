// The network: 64 pixels, 32 hidden units (psi), then 2 numbers. All weights lie in one array, theta; a layer knows its place.
(function (pg) {
  "use strict";

  const PIXELS = 64, HIDDEN = 32, PLANE = 2, PER_TASK = 2, TASKS = 5;

  // Which layers a setting has. A layer is y = W x + b: W [outputs, inputs] row by row, then b [outputs].
  //   TIL, all methods   psi and a head f_i for each task; for CM its two numbers are a place, for others two scores
  //   CIL, CM            psi, a head and a projector pi_i (scale a_i, shift b_i) for each task
  //   CIL, others        psi, one head to the plane, and two outputs more for each task
  function layout(setting) {
    const layers = { size: 0 };
    const add = (name, task, outputs, inputs) => {
      const layer = { name, task, outputs, inputs, at: layers.size, bias: layers.size + outputs * inputs };
      layers.size = layer.bias + outputs;
      (layers[name] = layers[name] || []).push(layer);
    };
    const each = (name, outputs, inputs) => { for (let i = 0; i < TASKS; i++) add(name, i, outputs, inputs); };
    add("hidden", 0, HIDDEN, PIXELS);
    if (setting.scenario === "cil" && setting.method !== "cm") {
      add("head", 0, PLANE, HIDDEN);
      each("output", PER_TASK, PLANE);
    } else each("head", PLANE, HIDDEN);
    if (setting.scenario === "cil" && setting.method === "cm" && setting.projectors) {
      each("scale", PLANE, PLANE);
      each("shift", PLANE, PLANE);
    }
    return layers;
  }

  // First weights, uniform in +-1/sqrt(inputs); a layer has the same ones in all methods of a seed.
  function firstWeights(layers, seed) {
    const theta = new Float64Array(layers.size);
    for (const layer of Object.values(layers).flat().filter((one) => one.name)) {
      const draw = pg.generator(seed, layer.task, 0, layer.name), bound = 1 / Math.sqrt(layer.inputs);
      for (let p = layer.at; p < layer.bias + layer.outputs; p++) theta[p] = (2 * draw() - 1) * bound;
    }
    return theta;
  }

  // y = W x + b for n rows, with four sums side by side, which a processor adds at the same time. x [n, inputs] -> [n, outputs]
  function linear(theta, layer, x, n) {
    const { outputs, inputs, at, bias } = layer, y = new Float64Array(n * outputs), fours = inputs - (inputs % 4);
    for (let r = 0; r < n; r++) {
      for (let o = 0, from = r * inputs; o < outputs; o++) {
        const w = at + o * inputs;
        let s0 = theta[bias + o], s1 = 0, s2 = 0, s3 = 0, i = 0;
        for (; i < fours; i += 4) {
          s0 += theta[w + i] * x[from + i];
          s1 += theta[w + i + 1] * x[from + i + 1];
          s2 += theta[w + i + 2] * x[from + i + 2];
          s3 += theta[w + i + 3] * x[from + i + 3];
        }
        for (; i < inputs; i++) s0 += theta[w + i] * x[from + i];
        y[r * outputs + o] = s0 + s1 + (s2 + s3);
      }
    }
    return y;
  }

  // Backward through y = W x + b: adds to the gradient, and to dx where it is asked for. dy [n, outputs]
  //   dL/dW = dy x^T,   dL/db = dy,   dL/dx = W^T dy
  function linearBack(theta, layer, x, n, dy, gradient, dx) {
    const { outputs, inputs, at, bias } = layer;
    for (let r = 0; r < n; r++) {
      for (let o = 0; o < outputs; o++) {
        const slope = dy[r * outputs + o];
        if (slope === 0) continue;
        gradient[bias + o] += slope;
        for (let i = 0, w = at + o * inputs, from = r * inputs; i < inputs; i++) {
          gradient[w + i] += slope * x[from + i];
          if (dx) dx[from + i] += slope * theta[w + i];
        }
      }
    }
  }

  // ReLU: what is below 0 becomes 0, and passes no gradient back.
  function relu(x) {
    const y = new Float64Array(x.length);
    for (let k = 0; k < x.length; k++) if (x[k] > 0) y[k] = x[k];
    return y;
  }

  function reluBack(y, dy) {
    const dx = new Float64Array(y.length);
    for (let k = 0; k < y.length; k++) if (y[k] > 0) dx[k] = dy[k];
    return dx;
  }

  // psi(x) = ReLU(W x + b). x [n, 64] -> [n, 32]
  const features = (theta, layers, x, n) => relu(linear(theta, layers.hidden[0], x, n));
  const featuresBack = (theta, layers, x, n, h, dh, gradient) =>
    linearBack(theta, layers.hidden[0], x, n, reluBack(h, dh), gradient, null);

  // One step of SGD with momentum: v <- mu v + g, theta <- theta - eta v. Says whether all weights stayed below a bound.
  function sgd(theta, velocity, gradient, rate, momentum, bound) {
    let sane = true;
    for (let p = 0; p < theta.length; p++) {
      velocity[p] = momentum * velocity[p] + gradient[p];
      theta[p] -= rate * velocity[p];
      if (!(Math.abs(theta[p]) < bound)) sane = false;
    }
    return sane;
  }

  Object.assign(pg, { PIXELS, HIDDEN, PLANE, PER_TASK, TASKS, layout, firstWeights, linear, linearBack, relu, reluBack });
  Object.assign(pg, { features, featuresBack, sgd });
})(globalThis.Playground = globalThis.Playground || {});
